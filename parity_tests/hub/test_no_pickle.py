"""Nothing that a file holds is run: no pickle is read or written, in the tests neither."""

import ast

import pytest

from parity_tests.hub.test_checkpoint_files import unsafe
from parity_tests.processes import ROOT

# Who may, and why.
ALLOWED = {
    "parity_tests/hub/test_checkpoint_files.py": "makes hostile pickles, runs one to show its harm",
}
SOURCES = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not any(
        part.startswith(".") or part in ("build", "dist") for part in path.relative_to(ROOT).parts
    )
)


def forbidden(source: str) -> list[str]:
    """What in a source reads or writes a pickle, or runs text."""
    found = unsafe(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            if called in ("np.load", "numpy.load") and given.get("allow_pickle") is not False:
                found.append(called)
            if called in ("eval", "exec", "torch.save", "__import__"):
                found.append(called)
    return found


def test_no_file_of_the_project_does():
    assert len(SOURCES) > 200
    found = {str(path.relative_to(ROOT)): forbidden(path.read_text()) for path in SOURCES}
    assert {name for name, faults in found.items() if faults} == set(ALLOWED), found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import dill as d",
        "from cloudpickle.compat import pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.save(state, path)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "eval(text)",
        "exec(code, scope)",
    ],
)
def test_what_it_would_find(source):
    assert forbidden(source)


@pytest.mark.parametrize(
    "source",
    ["torch.load(path, weights_only=True)", "np.load(path, allow_pickle=False)", "model.eval()"],
)
def test_what_it_would_not(source):
    assert not forbidden(source)
