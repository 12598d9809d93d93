"""What a user names on the command line: `file.py:function`, inputs, renamings."""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from parity.observe.points import first_line
from parity.observe.settings import NotComparableError
from parity.suggestions import suggest

_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:x\d+)*)(?::(?P<limit>\d+))?")


def call_target(target: str) -> Any:
    """What `path/to/file.py:function` or `package.module:function` returns.

    Raises:
        NotComparableError: it cannot be imported, has no such function, or fails.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise NotComparableError(f"{target}: expected file.py:function or module:function")
    module = _import(place)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [n for n, f in vars(module).items() if callable(f) and n[0] != "_"]
        hint = suggest(name, functions)
        raise NotComparableError(f"{target}: no function {name} there; {hint}")
    try:
        return function()
    except Exception as error:
        raise NotComparableError(f"{target} fails: {first_line(error)}") from error


def _import(place: str) -> ModuleType:
    path = Path(place)
    try:
        if path.suffix != ".py":
            sys.path.insert(0, "")
            return importlib.import_module(place)
        if not path.is_file():
            raise NotComparableError(f"{place}: no such file")
        # Two files may have one name: old/model.py beside new/model.py.
        name = f"_compared_{path.stem}_{sha1(bytes(path.resolve())).hexdigest()}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise NotComparableError(f"{place}: no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.parent.resolve()))
        spec.loader.exec_module(module)
        return module
    except NotComparableError:
        raise
    except (Exception, SystemExit) as error:
        raise NotComparableError(f"{place} cannot be imported: {first_line(error)}") from error


def load_inputs(specs: Sequence[str]) -> dict[str, np.ndarray] | list[np.ndarray]:
    """Arrays from an .npz file, from file.py:function, or drawn: `2x5x12`, `ids=2x7:50`.

    Raises:
        NotComparableError: a specification cannot be read.
    """
    if len(specs) == 1 and specs[0].endswith(".npz"):
        return _archive(specs[0])
    if len(specs) == 1 and ".py:" in specs[0]:
        return call_target(specs[0])
    drawn = [_drawn(spec, seed) for seed, spec in enumerate(specs)]
    names = [name for name, _ in drawn]
    if all(names):
        return {str(name): array for name, array in drawn}
    if any(names):
        raise NotComparableError("--inputs: name all of them, or none")
    return [array for _, array in drawn]


def _archive(path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except Exception as error:
        raise NotComparableError(f"--inputs {path}: {first_line(error)}") from error


def _drawn(spec: str, seed: int) -> tuple[str | None, np.ndarray]:
    match = _SPEC.fullmatch(spec)
    if not match:
        expected = "2x5x12 (normal), 2x7:50 (ids below 50), NAME=..., file.npz or file.py:function"
        raise NotComparableError(f"--inputs {spec}: expected {expected}")
    shape = tuple(int(n) for n in match["shape"].split("x"))
    rng = np.random.default_rng([seed, 43])
    if match["limit"]:
        return match["name"], rng.integers(0, int(match["limit"]), shape)
    return match["name"], rng.normal(size=shape)


def parse_renames(pairs: Sequence[str]) -> dict[str, str]:
    """`Dense_0=fc1` as a dictionary."""
    renamed = {}
    for pair in pairs:
        flax_name, _, torch_name = pair.partition("=")
        if not (flax_name and torch_name):
            raise NotComparableError(f"--rename {pair}: expected FLAX_NAME=torch_name")
        renamed[flax_name] = torch_name
    return renamed


def parse_options(flag: str, pairs: Sequence[str]) -> dict[str, Any]:
    """`train=False` as a dictionary; what is no Python literal is text.

    Raises:
        NotComparableError: a word holds no "=".
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name.isidentifier() and equals):
            raise NotComparableError(f"{flag} {pair}: expected NAME=VALUE, such as train=False")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def require_writable(flag: str, path: str | None) -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    Raises:
        NotComparableError: its folder does not exist, or it is a folder itself.
    """
    if path is None:
        return
    if Path(path).is_dir() or not Path(path).parent.is_dir():
        raise NotComparableError(f"{flag} {path}: expected a file in a folder that exists")


def read_text(flag: str, path: str | None) -> str | None:
    """The text of a file; None where none was named.

    Raises:
        NotComparableError: it cannot be read.
    """
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise NotComparableError(f"{flag} {path}: {first_line(error)}") from error
