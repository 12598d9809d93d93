"""Which random stream belongs to a name: both twins draw from a key and such a number."""

import hashlib
from functools import cache

from transformer_spec.naming import linen_path


def number(*path: str | int) -> int:
    """The number below 2**32 that Linen folds into a key for a path of names and counts.

    The first four bytes of the SHA-1 of all parts, strings as UTF-8 and numbers as their bytes.

    Source: `flax.core.scope`, `_fold_in_static`; a test holds this against the installed Flax.
    """
    parts = (
        part.encode() if isinstance(part, str) else part.to_bytes((part.bit_length() + 7) // 8)
        for part in path
    )
    return int.from_bytes(hashlib.sha1(b"".join(parts)).digest()[:4])


@cache  # asked for at every update
def first_call(module: str) -> int:
    """The number of the first `make_rng` in a module of this torch name."""
    return number(*linen_path(module), 1)
