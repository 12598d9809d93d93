"""What may become of a JSON file: by accident, by another program, by somebody's ill will."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Json = Any
Mutation = Callable[[Json, random.Random], bytes]

# Values of every type, and numbers at the edges of what a type holds.
ODD = [None, True, False, "", "x", [], {}, [[]], {"a": 1}, {"type": []}, {"type": "LayerNorm"}]
HUGE = [0, -1, 10**9, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64, 10**30, 1e308, 5e-324]
# Texts that break a line, a path, a terminal, an encoding or a parser of command lines.
TEXTS = ["\0", "a\nb", "\x1b[2J", "\ud800", "\udcff", "/dev/zero", "..", "--help", "a" * 10**5]


def places(value: Json, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all values in objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))


def changed(value: Json, rng: random.Random, candidates: list[Json]) -> Json:
    """A copy in which one value is another."""
    value = copy.deepcopy(value)
    inner, key = drawn(value, rng)
    inner[key] = rng.choice(candidates)
    return value


def drawn(value: Json, rng: random.Random) -> tuple[dict, str]:
    """An object somewhere in it, and one of its keys."""
    *way, key = rng.choice(list(places(value)))
    for name in way:
        value = value[name]
    return value, key


def without_a_key(value: Json, rng: random.Random) -> Json:
    value = copy.deepcopy(value)
    inner, key = drawn(value, rng)
    del inner[key]
    return value


def with_another_key(value: Json, rng: random.Random) -> Json:
    value = copy.deepcopy(value)
    inner, key = drawn(value, rng)
    inner[rng.choice([key + "_", key.upper(), "", "type", "\0", "\ud800"])] = rng.choice(ODD)
    return value


def swapped(value: Json, rng: random.Random) -> Json:
    """Two values have changed places."""
    value = copy.deepcopy(value)
    (one, a), (other, b) = drawn(value, rng), drawn(value, rng)
    one[a], other[b] = copy.deepcopy(other[b]), copy.deepcopy(one[a])
    return value


# Changes of what a JSON file says; any text of it may be written.
CHANGES: dict[str, Callable[[Json, random.Random], Json]] = {
    "another type": lambda value, rng: changed(value, rng, ODD),
    "a number at an edge": lambda value, rng: changed(value, rng, HUGE),
    "an odd text": lambda value, rng: changed(value, rng, TEXTS),
    "a key less": without_a_key,
    "a key more": with_another_key,
    "two values swapped": swapped,
}


def written(value: Json) -> bytes:
    return json.dumps(value, indent=2).encode()


def a_key_twice(value: Json, rng: random.Random) -> bytes:
    """A key comes twice, its two values in any order."""
    value = copy.deepcopy(value)
    inner, key = drawn(value, rng)
    values = {key + "<1>": rng.choice(ODD + HUGE), key + "<2>": inner.pop(key)}
    inner.update(rng.sample(list(values.items()), 2))
    return written(value).replace(b'<1>"', b'"').replace(b'<2>"', b'"')


def no_number(value: Json, rng: random.Random) -> bytes:
    """NaN and the like, which Python reads, and digits without an end."""
    words = ["NaN", "Infinity", "-Infinity", "9" * 5000, "1" * 400, "1e999", "0x10", "1_0"]
    return written(changed(value, rng, ["<word>"])).replace(b'"<word>"', rng.choice(words).encode())


def deep(value: Json, rng: random.Random) -> bytes:
    """A value nested so deep that a parser that calls itself runs out of stack."""
    depth, (left, right) = rng.choice([50, 900, 100_000]), rng.choice(["[]", ('{"a":', "}")])
    nested = left * depth + ("1" if left != "[" else "") + right * depth
    return written(changed(value, rng, ["<deep>"])).replace(b'"<deep>"', nested.encode())


def bits_flipped(value: Json, rng: random.Random) -> bytes:
    content = bytearray(written(value))
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def truncated(value: Json, rng: random.Random) -> bytes:
    content = written(value)
    return content[: rng.randrange(len(content))]


def binary(value: Json, rng: random.Random) -> bytes:
    return rng.choice([rng.randbytes(rng.randrange(1, 3000)), bytes(500), b"PK\3\4", b"\x80\4K\1."])


def in_another_encoding(value: Json, rng: random.Random) -> bytes:
    text = written(value).decode()
    return text.encode(rng.choice(["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7", "cp500"]))


def no_object(value: Json, rng: random.Random) -> bytes:
    return written(rng.choice([[value], "text", 1, None, [], {}, True]))


MUTATIONS: dict[str, Mutation] = {
    **{n: lambda v, rng, change=change: written(change(v, rng)) for n, change in CHANGES.items()},
    "a key twice": a_key_twice,
    "no number": no_number,
    "nested deep": deep,
    "bits flipped": bits_flipped,
    "truncated": truncated,
    "binary": binary,
    "another encoding": in_another_encoding,
    "no object": no_object,
}
