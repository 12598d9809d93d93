"""The bytes of checkpoint files, well-formed or not, in each format."""

import io
import json
import pickle
import struct
import tarfile
import zipfile

import msgpack
import torch


def safetensors_bytes(entries: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file that may lie."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def msgpack_bytes(value: object) -> bytes:
    return msgpack.Packer().pack(value)


def flax_array_bytes(*fields: object) -> bytes:
    """An array as flax.serialization packs it, or as it does not."""
    return msgpack_bytes({"a": msgpack.ExtType(1, msgpack_bytes(fields))})


def zip_bytes(compression: int, size: int = 100) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        file.writestr("archive/data.pkl", bytes(size))
        file.writestr("archive/version", b"3\n")
    return content.getvalue()


def torch_bytes(value: object, old: bool = False) -> bytes:
    content = io.BytesIO()
    torch.save(value, content, _use_new_zipfile_serialization=not old)
    return content.getvalue()


def pickle_bytes(value: object) -> bytes:
    return pickle.dumps(value)


def unpickle(content: bytes) -> object:
    """Read a pickle as it must never be read: what it says is run."""
    return pickle.loads(content)


def torch_tar_bytes() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            member = tarfile.TarInfo(name)
            member.size = len(pickle.dumps({}))
            tar.addfile(member, io.BytesIO(pickle.dumps({})))
    return content.getvalue()


def gguf_header(values: int, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values)


def gguf_text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content
