"""The tests that every published model in a format of the hub goes through."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from parity_tests.weights import originals
from parity_tests.weights.archives import Archive
from parity_tests.weights.twins import Arrays, low_precision, worst
from transformer_hub import Pretrained
from transformer_spec import parameters


@dataclass(frozen=True)
class Opened:
    """A published model, and what both twins make of some inputs in float64."""

    directory: Path
    pretrained: Pretrained
    inputs: Arrays
    flax: Arrays
    torch: Arrays


@dataclass(frozen=True)
class Original:
    """What transformers makes of the same inputs, and its digest of every stored tensor."""

    outputs: Arrays
    digests: dict[str, str]


@pytest.mark.weights
@pytest.mark.usefixtures("float64")
class PublishedModel:
    """The tests; a subclass says which model it is, and adds its known answer.

    Attributes:
        title: its row in the table of figures.
        archive: where it is.
        members: file -> its place in the archive.
        source: the file that our readers are given; "": the directory of the files.
        parameters: how many it has.
        original, auto: the class of transformers whose weights these are, and the one by which
            transformers opens what is written.
        unseen: outputs that the original keeps to itself.
        repeated: stored tensors that repeat others or are tables, so that they are not written.
    """

    title: ClassVar[str]
    archive: ClassVar[Archive]
    members: ClassVar[Mapping[str, str]]
    source: ClassVar[str] = ""
    parameters: ClassVar[int]
    original: ClassVar[str]
    auto: ClassVar[str]
    unseen: ClassVar[frozenset[str]] = frozenset()
    repeated: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def inputs(cls, directory: Path) -> Arrays:
        """What all models are compared on."""
        raise NotImplementedError

    @classmethod
    def run_original(cls, directory: Path, inputs: Arrays) -> Original:
        """The files read without our readers."""
        model = originals.open_model(cls.original, directory)
        return Original(originals.run(model, inputs), originals.stored_digests(directory))

    def test_all_parameters_are_there(self, opened):
        found = sum(array.size for array in opened.pretrained.arrays.values())
        assert found == parameters.count(opened.pretrained.config) == self.parameters

    def test_the_twins_agree(self, opened, figure):
        figure(self.title, "twins, float64", f"{worst(opened.flax, opened.torch):.1e}")

    def test_the_original_agrees(self, opened, original, figure):
        names = opened.torch.keys() - self.unseen
        assert names == original.outputs.keys()
        differences = [
            worst({name: ours[name] for name in names}, original.outputs)
            for ours in (opened.flax, opened.torch)
        ]
        figure(self.title, "original, float64", f"{max(differences):.1e}")

    def test_every_tensor_comes_back_bit_for_bit(self, original, saved, figure):
        written = originals.stored_digests(saved)
        assert original.digests.keys() - written.keys() == self.repeated
        assert written == {name: original.digests[name] for name in written}
        figure(self.title, "there and back", f"{len(written)} tensors, same SHA-256")

    def test_transformers_opens_what_is_written(self, opened, original, saved, figure):
        model = originals.open_model(self.auto, saved)
        assert type(model).__name__ == self.original
        originals.same_bits(originals.run(model, opened.inputs), original.outputs)
        figure(self.title, "opened by transformers", "same bits")

    def test_float32_is_within_tolerance(self, opened, in_float32, figure):
        errors = low_precision(in_float32, opened.inputs, opened.torch)
        figure(self.title, "float32: flax / torch", " / ".join(f"{e:.1e}" for e in errors))
