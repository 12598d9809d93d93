"""Renamings that a user gives: `Dense_0=fc1`, `layers_*=h.*`."""

import re
from collections.abc import Mapping


def rename(path: str, renames: Mapping[str, str]) -> str | None:
    """Torch's name of a JAX layer or array by the longest pattern that fits; None: none fits.

    A pattern names a layer or an array by its path or the beginning of it, "/" or "." between its
    parts; each "*" stands for a number or a part of a name, and for the same in the torch name.
    """
    for pattern in sorted(renames, key=len, reverse=True):
        parts = re.split(r"(\*)", pattern.replace(".", "/").strip("/"))
        expression = "".join("([^/]*)" if p == "*" else _any_spelling(p) for p in parts)
        if found := re.match(rf"{expression}(?=/|$)", path):
            theirs = renames[pattern].replace("/", ".")
            for star in found.groups():
                theirs = theirs.replace("*", star, 1)
            rest = path[found.end() :].replace("/", ".")
            return (theirs + rest).strip(".")
    return None


def _any_spelling(part: str) -> str:
    """Linen's `layers_0` may be given as `layers/0`, and the other way round."""
    return re.sub(r"[_/](?=\d+(?:/|$)|$)", "[_/]", re.escape(part).replace(r"\/", "/"))


def as_torch(path: str) -> str:
    """A JAX path in torch's spelling: `layers_0/attn` is `layers.0.attn`."""
    return ".".join(re.sub(r"_(\d+)$", r".\1", part) for part in path.split("/"))
