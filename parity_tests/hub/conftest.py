"""A good checkpoint of the small LLaMA."""

import shutil
from pathlib import Path

import pytest

from parity_tests.hub.small_llama import MODEL
from transformer_hub import save_pretrained


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "good"
    save_pretrained(path, MODEL)
    return path


@pytest.fixture
def directory(good, tmp_path) -> Path:
    """A copy of a good checkpoint, to be broken."""
    return Path(shutil.copytree(good, tmp_path / "copy"))
