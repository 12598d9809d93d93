"""No code in a file is run: no source reads or writes a pickle, the tests' own included."""

import ast

import pytest

from parity_tests.processes import ROOT

# Who may, and why.
ALLOWED = {"parity_tests/hub/file_bytes.py": "makes hostile pickles, runs one to show its harm"}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}
SOURCES = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not any(
        part.startswith(".") or part in ("build", "dist") for part in path.relative_to(ROOT).parts
    )
)


def forbidden(source: str) -> list[str]:
    """What in a source reads or writes a pickle, or runs text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += sorted({name.split(".")[0] for name in names} & MODULES)
        if isinstance(node, ast.Call):
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            called = ast.unparse(node.func)
            if called == "torch.load" and given.get("weights_only") is not True:
                found.append(called)
            if called in ("np.load", "numpy.load") and given.get("allow_pickle") is not False:
                found.append(called)
            if given.get("allow_pickle"):
                found.append("allow_pickle")
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
        "def f():\n    from pickle import loads",
        "from joblib import load",
        "import dill as d",
        "from cloudpickle.compat import pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.save(state, path)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "read(path, allow_pickle=True)",
        "eval(text)",
        "exec(code, scope)",
    ],
)
def test_what_is_found(source):
    assert forbidden(source)


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(path, weights_only=True, mmap=True)",
        "np.load(path, allow_pickle=False)",
        "model.eval()",
    ],
)
def test_what_is_allowed(source):
    assert not forbidden(source)
