"""Each published model is opened and run once, by whichever of its tests comes first.

The twins are imported in the fixtures: pytest checks annotations of what is imported after it has
started.
"""

import pytest

from transformer_hub import from_pretrained, save_pretrained


@pytest.fixture(scope="class")
def directory(request, tmp_path_factory):
    """The files of `request.cls`, which is a PublishedModel."""
    directory = tmp_path_factory.mktemp("published")
    request.cls.archive.unpack(request.cls.members, directory)
    return directory


@pytest.fixture(scope="class")
def opened(request, directory):
    """The model read; what its twins in float64 compute. They are not kept: they may be large."""
    from parity_tests.weights.published_model import Opened
    from parity_tests.weights.twins import PublishedTwins

    pretrained = from_pretrained(directory / request.cls.source)
    twins = PublishedTwins(pretrained.config, pretrained.arrays, "float64")
    inputs = request.cls.inputs(directory)
    flax, torch = twins.run_flax(inputs), twins.run_torch(inputs)
    return Opened(directory, pretrained, inputs, flax, torch)


@pytest.fixture(scope="class")
def in_float32(opened):
    """The twins as they are used."""
    from parity_tests.weights.twins import PublishedTwins

    return PublishedTwins(opened.pretrained.config, opened.pretrained.arrays, "float32")


@pytest.fixture(scope="class")
def original(request, directory, opened):
    return request.cls.run_original(directory, opened.inputs)


@pytest.fixture(scope="class")
def saved(opened, tmp_path_factory):
    """What we write of the model."""
    directory = tmp_path_factory.mktemp("saved")
    save_pretrained(directory, opened.pretrained)
    return directory
