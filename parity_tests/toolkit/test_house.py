"""The layout: imports run one way, there are no cycles, and the wheel holds what users need."""

import tomllib

import pytest

from parity_tests.toolkit.imports import (
    FOLDERS,
    ROOT,
    cycles,
    folder_imports,
    imports,
    module_files,
    picture,
)

GRAPH = imports(module_files())

# Folder -> the folders it may import.
ALLOWED: dict[str, set[str]] = {
    "transformer_spec": set(),
    "flax_transformer": {"transformer_spec"},
    "torch_reference": {"transformer_spec"},
    "transformer_hub": {"transformer_spec"},
    "transformer_training": {"transformer_spec", "transformer_hub"},
    "train": set(FOLDERS[:5]),
    "parity": {"transformer_spec"},
    "verification": set(FOLDERS) - {"train", "verification", "parity_tests"},
    "parity_tests": set(FOLDERS) - {"parity_tests"},
}
LIBRARY = [folder for folder in FOLDERS if folder not in ("train", "verification", "parity_tests")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_run_one_way(folder):
    extra = folder_imports(GRAPH)[folder] - ALLOWED[folder]
    assert not extra, f"{folder} imports {', '.join(sorted(extra))}\n\n{picture()}"


def test_no_folder_is_in_a_cycle():
    assert cycles(folder_imports(GRAPH)) == [], picture()


def test_no_file_is_in_a_cycle():
    """The imports inside functions and under TYPE_CHECKING count too."""
    assert cycles(GRAPH) == []


def test_a_cycle_is_found_and_named():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert cycles(graph) == [["b", "c"], ["e"]]


def test_the_wheel_holds_the_library_and_nothing_else():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(LIBRARY)


def test_every_folder_of_modules_is_in_the_picture():
    """A new package at the top has to be given its place in FOLDERS and ALLOWED."""
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found == set(FOLDERS) - {"train"} == set(ALLOWED) - {"train"}
