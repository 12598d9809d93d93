"""What may become of a safetensors file: 8 bytes of length, a header in JSON, bytes of tensors."""

import json
import math
import random
import struct
from collections.abc import Callable

from parity_tests.survival import mutate

LENGTH = struct.Struct("<Q")
Header = dict[str, dict]
Mutation = Callable[[bytes, random.Random], bytes]

BYTES = {"F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
BYTES |= {"U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
DTYPES = [*BYTES, "F4", "X", "f32", ""]
SHAPES = [[], [0], [1], [2**31, 2**33], [2**62], [2**64], [-1], [10**18], [2**32, 2**32, 0]]
SHAPES += [[1.5], ["2"], [None], None, {}, "8", [[2]], [1] * 70, [2**63 - 1, 2]]
OFFSETS = [[0, 0], [0, 1], [0, 2**63], [2**64, 2**64 + 8], [-8, 0], [8, 0], [4], [0, 4, 8], None]
OFFSETS += [[0.0, 4.0], ["0", "4"], [2**62, 2**63 - 1]]


def parts(content: bytes) -> tuple[Header, bytes]:
    """The header and the bytes of a whole file."""
    (length,) = LENGTH.unpack(content[: LENGTH.size])
    end = LENGTH.size + length
    return json.loads(content[LENGTH.size : end]), content[end:]


def joined(header: object, data: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LENGTH.pack(len(text) if length is None else length) + text + data


def bit_of_the_header(content: bytes, rng: random.Random) -> bytes:
    _, data = parts(content)
    return _flipped(content, rng.randrange(len(content) - len(data)), rng)


def bit_of_the_data(content: bytes, rng: random.Random) -> bytes:
    _, data = parts(content)
    return _flipped(content, rng.randrange(len(content) - len(data), len(content)), rng)


def _flipped(content: bytes, place: int, rng: random.Random) -> bytes:
    flipped = bytes([content[place] ^ 1 << rng.randrange(8)])
    return content[:place] + flipped + content[place + 1 :]


def truncated(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def longer(content: bytes, rng: random.Random) -> bytes:
    return content + rng.randbytes(rng.randrange(1, 500))


def a_lie_about_length(content: bytes, rng: random.Random) -> bytes:
    lies = [0, 1, 2**24, 10**8, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1, len(content)]
    return LENGTH.pack(rng.choice(lies)) + content[LENGTH.size :]


def _entry(part: str, candidates: list) -> Mutation:
    """One tensor says something else of its dtype, its shape or its place."""

    def change(content: bytes, rng: random.Random) -> bytes:
        header, data = parts(content)
        entry = header[rng.choice([name for name in header if name != "__metadata__"])]
        entry[part] = rng.choice(candidates)
        return joined(header, data)

    return change


def another_dtype_of_as_many_bytes(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    entry = rng.choice(list(header.values()))
    begin, end = entry["data_offsets"]
    entry["dtype"] = rng.choice(list(BYTES))
    entry["shape"] = [(end - begin) // BYTES[entry["dtype"]]]
    return joined(header, data)


def another_shape_of_as_many(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    entry = rng.choice(list(header.values()))
    shape, size = entry["shape"], math.prod(entry["shape"])
    entry["shape"] = rng.choice([shape[::-1], [size], [1, *shape], [size, 1], [1, size]])
    return joined(header, data)


def places_swapped(content: bytes, rng: random.Random) -> bytes:
    """Two tensors have each other's bytes: no header can show it, if they are of one size."""
    header, data = parts(content)
    one, two = rng.sample(sorted(header), 2)
    a, b = header[one], header[two]
    a["data_offsets"], b["data_offsets"] = b["data_offsets"], a["data_offsets"]
    return joined(header, data)


def name_changed(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    name = rng.choice(sorted(header))
    new = rng.choice([name + "x", "", "../" + name, name.upper(), "\0", "\ud800", "__metadata__"])
    header[new] = header.pop(name)
    return joined(header, data)


def tensor_less(content: bytes, rng: random.Random) -> bytes:
    """Without the last one, and its bytes: a whole file."""
    header, data = parts(content)
    last = max(header, key=lambda name: header[name]["data_offsets"][1])
    begin, _ = header.pop(last)["data_offsets"]
    return joined(header, data[:begin])


def tensor_more(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    shape, size = rng.choice([([2], 8), ([0], 0), ([2**33, 0], 0), ([], 4)])
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
    return joined(header | {"more": entry}, data + bytes(size))


def tensor_twice(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    name = rng.choice(sorted(header))
    text = json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(header[name])}}}"
    return joined(text.encode(), data)


def not_finite(content: bytes, rng: random.Random) -> bytes:
    """A value is NaN or infinite."""
    header, data = parts(content)
    place = 4 * rng.randrange(len(data) // 4)
    value = struct.pack("<f", rng.choice([float("nan"), float("inf"), float("-inf")]))
    return joined(header, data[:place] + value + data[place + 4 :])


def mutated_header(content: bytes, rng: random.Random) -> bytes:
    """Whatever may become of JSON."""
    header, data = parts(content)
    return joined(rng.choice(list(mutate.MUTATIONS.values()))(header, rng), data)


def metadata(content: bytes, rng: random.Random) -> bytes:
    header, data = parts(content)
    odd = [{"a": "b"}, {"a": 1}, [], "x", None, {"a": "b" * 10**5}, {"\0": "\x1b[2J"}]
    return joined(header | {"__metadata__": rng.choice(odd)}, data)


def another_format(content: bytes, rng: random.Random) -> bytes:
    heads = [b"PK\3\4", b"\x80\4K\1.", b"GGUF\3\0\0\0", b"\x93NUMPY\1\0", b"", bytes(9), b"{}"]
    return rng.choice([*heads, rng.randbytes(rng.randrange(1, 3000))]) + rng.randbytes(8)


MUTATIONS: dict[str, Mutation] = {
    "a bit of the header": bit_of_the_header,
    "a bit of the data": bit_of_the_data,
    "truncated": truncated,
    "longer": longer,
    "a lie about its length": a_lie_about_length,
    "another dtype": _entry("dtype", DTYPES),
    "another dtype of as many bytes": another_dtype_of_as_many_bytes,
    "another shape": _entry("shape", SHAPES),
    "another place": _entry("data_offsets", OFFSETS),
    "another shape of as many values": another_shape_of_as_many,
    "two places swapped": places_swapped,
    "another name": name_changed,
    "a tensor less": tensor_less,
    "a tensor more": tensor_more,
    "a tensor twice": tensor_twice,
    "not finite": not_finite,
    "a mutated header": mutated_header,
    "metadata": metadata,
    "another format": another_format,
}
