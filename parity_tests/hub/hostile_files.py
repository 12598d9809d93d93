"""Files that are broken or that lie, each with the message it must be answered with."""

import json
import os
import struct
import zipfile
from pathlib import Path

import flax.serialization
import msgpack
import numpy as np
import torch
from safetensors.numpy import save_file

from parity_tests.hub.file_bytes import (
    flax_array_bytes,
    gguf_header,
    gguf_text,
    msgpack_bytes,
    pickle_bytes,
    safetensors_bytes,
    safetensors_entry,
    torch_bytes,
    torch_tar_bytes,
    zip_bytes,
)
from parity_tests.hub.small_llama import linen_tree, stored_arrays, torch_tensors

ST, BIN, FLAX, GGUF = "model.safetensors", "pytorch_model.bin", "flax_model.msgpack", "m.gguf"


def only_file(name: str, content: bytes):
    """A checkpoint whose weights are this one file."""

    def make(directory: Path) -> None:
        (directory / "model.safetensors").unlink()
        (directory / name).write_bytes(content)

    return make


def one_tensor(shape: list[int], begin: int, end: int, dtype: str = "F32", size: int = 0):
    """A safetensors file whose header says this of one tensor, before `size` bytes of data."""
    entry = safetensors_entry(shape, begin, end, dtype)
    return only_file(ST, safetensors_bytes({"a": entry}, bytes(size)))


def with_index(*shards: str):
    """A checkpoint whose index names these files, a tensor each."""

    def make(directory: Path) -> None:
        (directory / "model.safetensors").rename(directory / "a.safetensors")
        index = {"weight_map": {f"tensor {i}": shard for i, shard in enumerate(shards)}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))

    return make


def with_config(content: str | bytes):
    def make(directory: Path) -> None:
        (directory / "config.json").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )

    return make


def with_settings(**values: object):
    """The good config.json with other values."""

    def make(directory: Path) -> None:
        path = directory / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return make


def link_out(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory.parent / "blob")
    (directory / "model.safetensors").symlink_to("../blob")


def link_to_nothing(directory: Path) -> None:
    only_file("pytorch_model.bin", torch_bytes(torch_tensors(stored_arrays())))(directory)
    (directory / "model.safetensors").symlink_to("nothing")


def link_to_itself(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").symlink_to("model.safetensors")


def folder_as_file(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").mkdir()


def pipe_as_file(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    os.mkfifo(directory / "model.safetensors")


def one_shard_twice(directory: Path) -> None:
    with_index("a.safetensors", "b.safetensors")(directory)
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"tensor 0": np.ones(2), "tensor 1": np.ones(2)}, directory / name)


def truncated(name: str, content: bytes):
    return only_file(name, content[: len(content) * 2 // 3])


class Code:
    """What a pickle runs when it is read without care."""

    def __reduce__(self):
        return os.mkdir, ("the code has run",)


GOOD_FLAX = flax.serialization.to_bytes(linen_tree(stored_arrays()))


HOSTILE = {
    "header cut off": (
        only_file(ST, safetensors_bytes({"a": safetensors_entry([2], 0, 8)})[:20]),
        f"{ST}: not a safetensors file",
    ),
    "data cut off": (
        only_file(ST, safetensors_bytes({"a": safetensors_entry([2], 0, 8)}, b"1234")),
        "not fully covered",
    ),
    "no header": (only_file(ST, b"1234"), "requires a buffer of 8 bytes"),
    "empty": (only_file(ST, b""), "is empty; download it again"),
    "header of 2**63 bytes": (
        only_file(ST, safetensors_bytes({}, length=2**63)),
        "9,223,372,036,854,775,808",
    ),
    "header of 90 MB": (
        only_file(ST, safetensors_bytes({}, length=90_000_000)),
        "16,777,216 bytes at most",
    ),
    "header no JSON": (only_file(ST, safetensors_bytes(b"{a")), "invalid JSON"),
    "header a list": (only_file(ST, safetensors_bytes([1])), "invalid type"),
    "header deep": (only_file(ST, safetensors_bytes(b'{"a":' + b"[" * 100_000)), "recursion limit"),
    "overlap": (
        only_file(
            ST,
            safetensors_bytes(
                {"a": safetensors_entry([2], 0, 8), "b": safetensors_entry([2], 4, 12)}, bytes(12)
            ),
        ),
        "offset",
    ),
    "gap": (one_tensor([2], 4, 12, size=12), "invalid offset"),
    "beyond the end": (one_tensor([4], 0, 16, size=8), "not fully covered"),
    "bytes left over": (one_tensor([2], 0, 8, size=9), "not fully covered"),
    "shape too large": (one_tensor([3], 0, 8, size=8), "invalid shape"),
    "shape of 10**18": (one_tensor([10**18], 0, 8, size=8), "overflow"),
    "shape that wraps": (one_tensor([2**33, 2**31], 0, 0), "overflow"),
    "shape below 0": (one_tensor([-2], 0, 8, size=8), "invalid value"),
    "eight-bit floats": (one_tensor([2], 0, 2, "F8_E4M3", size=2), "a has dtype F8_E4M3"),
    "name with a line break": (
        only_file(ST, safetensors_bytes({"a\nb\x1b[2J": safetensors_entry([2], 0, 8)}, bytes(8))),
        r"unexpected a\\nb\\x1b\[2J",
    ),
    "shard missing": (with_index("b.safetensors"), "b.safetensors: No such file"),
    "shard above": (
        with_index("../blob"),
        r"names the file '\.\./blob'; it may only name files in the same directory",
    ),
    "shard absolute": (with_index("/etc/passwd"), "names the file '/etc/passwd'"),
    "shard in a folder": (with_index("b/a.safetensors"), "names the file 'b/a.safetensors'"),
    "shard with a null": (with_index("a\0b"), "in the same directory"),
    "shard of other tensors": (
        with_index("a.safetensors"),
        "a.safetensors: does not match .*lacks tensor 0, also holds lm_head",
    ),
    "tensor in two shards": (
        one_shard_twice,
        "a.safetensors: does not match .*: also holds tensor 1",
    ),
    "index of numbers": (
        only_file("model.safetensors.index.json", b'{"weight_map": {"a": 1}}'),
        "weight_map must be",
    ),
    "index a list": (only_file("model.safetensors.index.json", b"[]"), "holds a list"),
    "pickle with code": (only_file(BIN, torch_bytes({"a": Code()})), "no code in it was run"),
    "old pickle with code": (
        only_file(BIN, torch_bytes({"a": Code()}, old=True)),
        "no code in it was run",
    ),
    "bare pickle with code": (only_file(BIN, pickle_bytes({"a": Code()})), "no code in it was run"),
    "tar": (only_file(BIN, torch_tar_bytes()), "holds more than tensors"),
    "archive cut off": (
        truncated(BIN, torch_bytes(torch_tensors(stored_arrays()))),
        "is truncated",
    ),
    "old file cut off": (
        truncated(BIN, torch_bytes(torch_tensors(stored_arrays()), old=True)),
        "is truncated",
    ),
    "archive that grows": (only_file(BIN, zip_bytes(zipfile.ZIP_DEFLATED, 10**7)), "is compressed"),
    "archive of nothing": (
        only_file(BIN, zip_bytes(zipfile.ZIP_STORED)),
        "holds more than tensors",
    ),
    "pointer of git-lfs": (
        only_file(BIN, b"version https://git-lfs.github.com/spec/v1\n"),
        "holds more than tensors",
    ),
    "list of tensors": (only_file(BIN, torch_bytes([torch.ones(2)])), "holds a list"),
    "tensors in a dict": (
        only_file(BIN, torch_bytes({"model": {"a": torch.ones(2)}})),
        "'model' is a dict",
    ),
    "one number, 10**9 wide": (
        only_file(BIN, torch_bytes({"a": torch.ones(1).expand(10**9)})),
        "'a' is larger than",
    ),
    "sparse": (
        only_file(BIN, torch_bytes({"a": torch.eye(3).to_sparse()})),
        "must be a plain dense tensor",
    ),
    "msgpack cut off": (truncated(FLAX, GOOD_FLAX), "No more data"),
    "msgpack goes on": (only_file(FLAX, GOOD_FLAX + b"xyz"), "3 bytes are left over"),
    "msgpack of a list": (only_file(FLAX, msgpack_bytes([])), "a list instead of named parameters"),
    "msgpack of numbers": (
        only_file(FLAX, msgpack_bytes({"a": 1})),
        "a is a int instead of an array",
    ),
    "map of 2**32": (only_file(FLAX, b"\xdf\xff\xff\xff\xff"), "exceeds max_map_len"),
    "array of 2**32": (only_file(FLAX, b"\x81\xa1a\xdd\xff\xff\xff\xff"), "exceeds max_array_len"),
    "ext of 2**32": (only_file(FLAX, b"\x81\xa1a\xc9\xff\xff\xff\xff\x01"), "exceeds max_ext_len"),
    "maps in maps": (only_file(FLAX, b"\x81\xa1a" * 100_000 + b"\x80"), "not a checkpoint of Flax"),
    "ndarray too short": (
        only_file(FLAX, flax_array_bytes([10**18], "float32", b"1234")),
        "cannot reshape",
    ),
    "ndarray of objects": (
        only_file(FLAX, flax_array_bytes([1], "O", b"12345678")),
        "not a checkpoint of Flax",
    ),
    "unknown extension": (
        only_file(FLAX, msgpack_bytes({"a": msgpack.ExtType(9, b"")})),
        "extension of type 9",
    ),
    "gguf cut off": (
        only_file(GGUF, gguf_header(1) + gguf_text(b"a")[:6]),
        "not a GGUF file, or truncated",
    ),
    "gguf of another kind": (only_file(GGUF, b"GGML" + bytes(20)), "not a GGUF file"),
    "gguf version 9": (
        only_file(GGUF, gguf_header(0, version=9)),
        "version 9; only 2 and 3 are read",
    ),
    "gguf name of 2**60": (
        only_file(GGUF, gguf_header(1) + struct.pack("<Q", 2**60)),
        "1,152,921,504,606,846,976",
    ),
    "gguf array of 2**62": (
        only_file(GGUF, gguf_header(1) + gguf_text(b"a") + struct.pack("<IIQ", 9, 4, 2**62)),
        "18,446,744,073,709,551,616 bytes wanted",
    ),
    "gguf texts of 2**62": (
        only_file(GGUF, gguf_header(1) + gguf_text(b"a") + struct.pack("<IIQ", 9, 8, 2**62)),
        "not a GGUF file, or truncated",
    ),
    "gguf of 2**60 tensors": (
        only_file(GGUF, gguf_header(0, 2**60)),
        "not a GGUF file, or truncated",
    ),
    "gguf tensor of 2**60": (
        only_file(
            GGUF,
            gguf_header(0, 1) + gguf_text(b"a") + struct.pack("<IQIQ", 1, 2**60, 0, 0) + bytes(64),
        ),
        "a lies at .* with 4,611,686,018,427,387,904 bytes",
    ),
    "gguf of 2**31 axes": (
        only_file(GGUF, gguf_header(0, 1) + gguf_text(b"a") + struct.pack("<I", 2**31)),
        "a tensor of 2,147,483,648 axes",
    ),
    "gguf of another model": (
        only_file(
            GGUF,
            gguf_header(1)
            + gguf_text(b"general.architecture")
            + struct.pack("<I", 8)
            + gguf_text(b"rwkv"),
        ),
        "general.architecture is 'rwkv'",
    ),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json: No such file"),
    "no weights": (lambda d: (d / ST).unlink(), "holds no weights; expected model.safetensors"),
    "config a list": (with_config("[]"), "config.json: holds a list; it must be a JSON object"),
    "config no JSON": (with_config("{"), "config.json: is not valid JSON"),
    "config not text": (with_config(b"\xff\xfe\x00"), "config.json: is not valid JSON"),
    "config deep": (with_config("[" * 100_000), "config.json: is not valid JSON"),
    "config huge": (
        with_config('{"a": "' + "x" * 2**20 + '"}'),
        "config.json: is larger than 1,048,576 bytes",
    ),
    "config with 400 digits": (
        with_settings(rms_norm_eps=10**400),
        "config.json: is not valid JSON",
    ),
    "config of another model": (
        with_settings(model_type="rwkv"),
        "model_type: 'rwkv' is not supported",
    ),
    "config with no sizes": (with_config('{"model_type": "llama"}'), "vocab_size: missing"),
    "config of 10**12 layers": (
        with_settings(num_hidden_layers=10**12),
        "1,000,000,000,000 layers",
    ),
    "config of 10**12 experts": (
        with_settings(
            model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=10**12
        ),
        "1,000,000,000,000 experts",
    ),
    "link out of the directory": (
        link_out,
        "link out of its directory.*hf download NAME --local-dir",
    ),
    "link to nothing": (link_to_nothing, "model.safetensors: No such file"),
    "link to itself": (link_to_itself, "model.safetensors: Too many levels of symbolic links"),
    "folder as file": (folder_as_file, "is not a regular file"),
    "pipe as file": (pipe_as_file, "is not a regular file"),
}
