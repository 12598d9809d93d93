"""Files of checkpoints: every format to the last bit, and what a hostile file is answered with.

How a family's config and tensors relate to ours is tested elsewhere; here a LLaMA stands for all.
"""

import ast
import io
import itertools
import json
import os
import pickle
import re
import shutil
import struct
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.serialization
import gguf
import ml_dtypes
import msgpack
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from parity_tests.processes import ROOT, run, run_python
from transformer_hub import (
    FAMILIES,
    CheckpointError,
    Pretrained,
    from_pretrained,
    open_checkpoint,
    save_pretrained,
)
from transformer_hub.__main__ import PROGRAM, main
from transformer_hub.formats import safetensors_files
from transformer_hub.formats.gguf_llama import BLOCK, TOP, unpermute
from transformer_spec.config import (
    GatedFeedForward,
    LayerNorm,
    Learned,
    Llama3Scaling,
    ModelConfig,
    PreNorm,
    RMSNorm,
    Rotary,
)
from transformer_spec.naming import walk
from transformer_spec.parameters import count, parameter_shapes
from transformer_spec.rotary import NoScaling, frequencies

LLAMA = ModelConfig(
    arch="decoder",
    vocab_size=37,
    max_seq_len=48,
    d_model=32,
    d_ff=64,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    position=Rotary(),
    norm=RMSNorm(eps=1e-5),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    ffn_bias=False,
)


def drawn(config: ModelConfig, dtype: str = "bfloat16", seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(config)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


MODEL = Pretrained("llama", LLAMA, drawn(LLAMA))


def theirs(pretrained: Pretrained = MODEL) -> dict[str, np.ndarray]:
    """The arrays under the names of their family."""
    return dict(FAMILIES[pretrained.family].layout(pretrained.config).to_theirs(pretrained.arrays))


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        for name, array in arrays.items()
    }


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray] = MODEL.arrays):
    """Names, dtypes and bits."""
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "good"
    save_pretrained(path, MODEL)
    return path


@pytest.fixture
def directory(good, tmp_path) -> Path:
    """A copy of a good checkpoint, to be broken."""
    return Path(shutil.copytree(good, tmp_path / "copy"))


class TestFormats:
    def test_one_file(self, good):
        assert sorted(os.listdir(good)) == ["config.json", "model.safetensors"]
        found = from_pretrained(good)
        assert (found.family, found.config) == ("llama", LLAMA)
        assert_same(found.arrays)

    def test_shards_hold_at_most_what_they_may_and_are_all_in_the_index(self, tmp_path):
        limit = 20_000
        save_pretrained(tmp_path / "out", MODEL, max_shard_bytes=limit)
        index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
        names = sorted(set(index["weight_map"].values()))
        assert names == [
            f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))
        ]
        assert len(names) > 2
        assert sorted(os.listdir(tmp_path / "out")) == sorted(
            [*names, "config.json", "model.safetensors.index.json"]
        )
        shards = {name: load_file(tmp_path / "out" / name) for name in names}
        for shard, arrays in shards.items():
            assert sum(array.nbytes for array in arrays.values()) <= limit
            assert {index["weight_map"][name] for name in arrays} == {shard}
        assert index["metadata"]["total_size"] == 2 * count(LLAMA)
        assert_same(from_pretrained(tmp_path / "out").arrays)

    def test_a_tensor_above_the_limit_has_a_shard_of_its_own(self, tmp_path):
        save_pretrained(tmp_path / "out", MODEL, max_shard_bytes=1)
        assert len(list((tmp_path / "out").glob("*.safetensors"))) == len(theirs())
        assert_same(from_pretrained(tmp_path / "out").arrays)

    @pytest.mark.parametrize("archive", [True, False], ids=["archive", "before torch 1.6"])
    def test_pickled(self, directory, archive):
        (directory / "model.safetensors").unlink()
        path = directory / "pytorch_model.bin"
        torch.save(tensors(theirs()), path, _use_new_zipfile_serialization=archive)
        assert_same(from_pretrained(directory).arrays)

    def test_pickled_in_shards(self, directory):
        (directory / "model.safetensors").unlink()
        named = list(tensors(theirs()).items())
        weight_map = {}
        for i, part in enumerate((named[:4], named[4:])):
            shard = f"pytorch_model-{i + 1:05}-of-00002.bin"
            torch.save(dict(part), directory / shard)
            weight_map |= {name: shard for name, _ in part}
        index = json.dumps({"metadata": {}, "weight_map": weight_map})
        (directory / "pytorch_model.bin.index.json").write_text(index)
        assert_same(from_pretrained(directory).arrays)

    @pytest.mark.parametrize("chunk", [2**30, 100], ids=["whole", "in chunks"])
    def test_msgpack_of_flax(self, directory, chunk, monkeypatch):
        (directory / "model.safetensors").unlink()
        monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", chunk)
        content = flax.serialization.to_bytes(linen_tree(theirs()))
        assert (b"__msgpack_chunked_array__" in content) == (chunk == 100)
        (directory / "flax_model.msgpack").write_bytes(content)
        assert_same(from_pretrained(directory).arrays)

    def test_the_first_of_safetensors_bin_msgpack_and_gguf_is_taken(self, directory):
        formats = ["model.safetensors", "pytorch_model.bin", "flax_model.msgpack", "any.gguf"]
        for name in formats[1:]:
            (directory / name).write_bytes(b"broken")
        assert_same(from_pretrained(directory).arrays)
        for name, following in itertools.pairwise(formats):
            (directory / name).unlink()
            with pytest.raises(CheckpointError, match=re.escape(following)):
                from_pretrained(directory)

    def test_transformers_opens_what_is_written(self, tmp_path):
        import transformers

        save_pretrained(tmp_path / "out", MODEL, max_shard_bytes=20_000)
        loaded: Any = transformers.LlamaForCausalLM.from_pretrained(
            tmp_path / "out", output_loading_info=True
        )
        model, info = loaded
        assert not any(info.values())
        assert model.dtype == torch.bfloat16
        found = {n: t.view(torch.int16).numpy() for n, t in model.state_dict().items()}
        assert_same(found, {name: array.view(np.int16) for name, array in theirs().items()})


def linen_tree(arrays: dict[str, np.ndarray]) -> dict:
    """The parameters of transformers' FlaxLlamaForCausalLM (4.57, modeling_flax_llama.py)."""
    tree: dict = {}
    for name, array in arrays.items():
        *path, _ = name.split(".")
        inner = tree
        for key in path:
            inner = inner.setdefault(key, {})
        if path[-1] == "embed_tokens":
            inner["embedding"] = array
        elif path[-1] == "lm_head" or path[-1].endswith("_proj"):
            inner["kernel"] = np.ascontiguousarray(array.T)
        else:
            inner["weight"] = array
    return tree


def test_leaves_of_linen_take_the_names_of_torch(tmp_path):
    """T5's `wi_0` is no list, GPT-2's FlaxConv1D is [out, in] and torch's Conv1D [in, out]."""
    from transformer_hub.formats import flax_files

    tree = {
        "DenseReluDense": {"wi_0": {"kernel": np.ones((2, 3), np.float32)}},
        "h": {"0": {"ln_1": {"scale": np.ones(2), "bias": np.ones(2, np.float16)}}},
        "wte": {"embedding": np.ones((4, 2), ml_dtypes.bfloat16)},
    }
    path = tmp_path / "flax_model.msgpack"
    path.write_bytes(flax.serialization.to_bytes(tree))
    found = {n: (t.shape, t.dtype.name) for n, t in flax_files.read(path).items()}
    assert found == {
        "DenseReluDense.wi_0.weight": ((3, 2), "float32"),
        "h.0.ln_1.weight": ((2,), "float64"),
        "h.0.ln_1.bias": ((2,), "float16"),
        "wte.weight": ((4, 2), "bfloat16"),
    }
    assert len(found) == len(list(walk(tree)))


class TestDtypes:
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_what_is_stored_stays(self, tmp_path, dtype):
        model = replace(MODEL, arrays=drawn(LLAMA, dtype))
        save_pretrained(tmp_path / "out", model)
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert config["torch_dtype"] == config["dtype"] == dtype
        assert_same(from_pretrained(tmp_path / "out").arrays, model.arrays)

    def test_a_dtype_that_is_asked_for(self, good):
        found = from_pretrained(good, dtype="float32").arrays
        assert_same(found, {n: a.astype(np.float32) for n, a in MODEL.arrays.items()})
        with pytest.raises(CheckpointError, match="dtype: no 'int8'; choose from float16"):
            from_pretrained(good, dtype="int8")

    def test_a_value_that_becomes_infinite_is_refused_by_name(self, tmp_path):
        arrays = drawn(LLAMA)
        arrays["lm_head.weight"][3, 2] = 70_000
        save_pretrained(tmp_path / "out", replace(MODEL, arrays=arrays))
        assert from_pretrained(tmp_path / "out", dtype="float32").arrays
        with pytest.raises(
            CheckpointError, match="lm_head.weight: has values outside the range of float16"
        ):
            from_pretrained(tmp_path / "out", dtype="float16")

    def test_integers_are_no_parameters(self, directory):
        named = theirs() | {"lm_head.weight": np.ones((37, 32), np.int8)}
        save_file(named, directory / "model.safetensors")
        with pytest.raises(CheckpointError, match="lm_head.weight is int8; parameters must be"):
            from_pretrained(directory)


def test_all_missing_unknown_and_misshapen_tensors_are_named(directory):
    named = theirs()
    del named["lm_head.weight"], named["model.layers.1.mlp.up_proj.weight"]
    named["model.norm.weight"] = np.ones(7, ml_dtypes.bfloat16)
    named["model.layers.3.input_layernorm.weight"] = np.ones(32, ml_dtypes.bfloat16)
    save_file(named, directory / "model.safetensors")
    with pytest.raises(CheckpointError) as error:
        from_pretrained(directory)
    for fault in (
        "missing lm_head.weight (37, 32)",
        "missing model.layers.1.mlp.up_proj.weight (64, 32)",
        "model.norm.weight has shape (7,), not (32,)",
        "unexpected model.layers.3.input_layernorm.weight",
    ):
        assert fault in str(error.value)


def test_what_is_saved_must_be_whole_too(tmp_path):
    arrays = drawn(LLAMA)
    del arrays["lm_head.weight"]
    with pytest.raises(CheckpointError, match="missing lm_head.weight"):
        save_pretrained(tmp_path / "out", replace(MODEL, arrays=arrays))
    with pytest.raises(CheckpointError, match="family: no 'lama'; did you mean llama?"):
        save_pretrained(tmp_path / "out", replace(MODEL, family="lama"))
    normed = replace(MODEL, config=replace(LLAMA, norm=LayerNorm()))
    with pytest.raises(CheckpointError, match="norm"):
        save_pretrained(tmp_path / "out", replace(normed, arrays=drawn(normed.config)))
    assert not (tmp_path / "out").exists()


class TestGGUF:
    """LLaMA as llama.cpp has it, written by the gguf library."""

    @staticmethod
    def write(path: Path, kind: str = "F32", settings: dict | None = None, **more: np.ndarray):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_context_length(48)
        writer.add_embedding_length(32)
        writer.add_block_count(3)
        writer.add_feed_forward_length(64)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_rope_dimension_count(8)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_token_list([f"token {i}" for i in range(37)])
        writer.add_token_scores([0.5] * 37)
        for key, value in (settings or {}).items():
            {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[
                type(value)
            ](f"llama.{key}", value)
        for name, array in TestGGUF.named().items():
            quantized = gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"]
            data = gguf.quants.quantize(array, quantized)
            writer.add_tensor(name, data, raw_dtype=quantized)
        for name, array in more.items():
            writer.add_tensor(f"{name}.weight", array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    @staticmethod
    def named() -> dict[str, np.ndarray]:
        found = {}
        parts = {ours: part for part, ours in BLOCK.items()}
        tops = {ours: name for name, ours in TOP.items()}
        for name, array in theirs(replace(MODEL, arrays=drawn(LLAMA, "float32"))).items():
            if match := re.fullmatch(r"model\.layers\.(\d)\.(.*)\.weight", name):
                part = parts[match[2]]
                heads = {"attn_q": 4, "attn_k": 2}.get(part)
                turned = interleaved(array, heads) if heads else array
                found[f"blk.{match[1]}.{part}.weight"] = turned
            else:
                found[tops[name]] = array
        return found

    def test_numbers_that_are_kept(self, tmp_path):
        self.write(tmp_path / "model.gguf")
        for path in (tmp_path, tmp_path / "model.gguf"):
            found = from_pretrained(path)
            assert found.config == LLAMA
            assert_same(found.arrays, drawn(LLAMA, "float32"))

    @pytest.mark.parametrize(("kind", "dtype"), [("F16", "float16"), ("BF16", "bfloat16")])
    def test_two_bytes_stay_two_bytes(self, tmp_path, kind, dtype):
        self.write(tmp_path / "model.gguf", kind)
        found = from_pretrained(tmp_path).arrays
        wanted = drawn(LLAMA, "float32")
        assert_same(found, {n: a.astype(dtype) if a.ndim == 2 else a for n, a in wanted.items()})

    @pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
    def test_quantized_numbers_become_float32(self, tmp_path, kind):
        """The blocks that share a scale lie within a row, so the order of rows changes nothing."""
        self.write(tmp_path / "model.gguf", kind)
        wanted, quantized = drawn(LLAMA, "float32"), gguf.GGMLQuantizationType[kind]
        for name, array in wanted.items():
            if array.ndim == 2:
                packed = gguf.quants.quantize(array, quantized)
                wanted[name] = gguf.quants.dequantize(packed, quantized)
        assert_same(from_pretrained(tmp_path).arrays, wanted)

    def test_rows_of_a_head_are_put_back(self):
        assert unpermute(np.array([0, 2, 1, 3, 4, 6, 5, 7]), 2).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
        assert unpermute(np.arange(8), 1).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
        weight = np.random.default_rng(0).normal(size=(30, 7))
        np.testing.assert_array_equal(unpermute(interleaved(weight, 3), 3), weight)

    def test_a_tied_head(self, tmp_path, monkeypatch):
        named = self.named()
        del named["output.weight"]
        monkeypatch.setattr(TestGGUF, "named", staticmethod(lambda: named))
        self.write(tmp_path / "model.gguf")
        assert from_pretrained(tmp_path).config == replace(LLAMA, tie_embeddings=True)

    def test_scalings_of_frequencies(self, tmp_path):
        scaling = Llama3Scaling(factor=4.0)
        base = {"rope.freq_base": 500000.0}
        plain = frequencies(8, 500000.0, NoScaling())
        divisors = (plain / frequencies(8, 500000.0, scaling)).astype(np.float32)
        assert divisors[-1] == 4 != divisors[0]
        self.write(tmp_path / "a.gguf", settings=base, rope_freqs=divisors)
        found = from_pretrained(tmp_path / "a.gguf").config.position
        assert found == Rotary(theta=500000.0, scaling=scaling)
        message = "rope_freqs.weight is not LLaMA 3.1's scaling"
        for odd in (divisors + divisors[::-1], divisors[:2], divisors * np.float32(np.inf)):
            self.write(tmp_path / "b.gguf", settings=base, rope_freqs=odd)
            with pytest.raises(CheckpointError, match=message):
                from_pretrained(tmp_path / "b.gguf")

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"expert_count": 8}, "llama.expert_count is 8; it must be 0"),
            ({"attention.sliding_window": 16}, "llama.attention.sliding_window is not supported"),
            ({"rope.scaling.type": "longrope"}, "longrope"),
            ({"attention.key_length": 16}, "llama.rope.dimension_count is 8; it must be 16"),
        ],
    )
    def test_what_would_be_another_model_is_refused(self, tmp_path, settings, message):
        self.write(tmp_path / "model.gguf", settings=settings)
        with pytest.raises(CheckpointError, match=message):
            from_pretrained(tmp_path)

    def test_two_of_them_are_one_too_many(self, tmp_path):
        for name in ("a.gguf", "b.gguf"):
            self.write(tmp_path / name)
        with pytest.raises(CheckpointError, match="2 GGUF files, give the path of one"):
            from_pretrained(tmp_path)


def interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows (first half, second half) of each head, taken from the halves in turn."""
    rows = []
    for head in np.split(array, heads):
        for pair in zip(*np.split(head, 2), strict=True):
            rows += pair
    return np.array(rows)


def header(entries: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file that may lie."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def ndarray(*fields: object) -> bytes:
    """An array as flax.serialization packs it, or as it does not."""
    return packed({"a": msgpack.ExtType(1, packed(fields))})


def packed(value: object) -> bytes:
    return msgpack.Packer().pack(value)


def archive(compression: int, size: int = 100) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        file.writestr("archive/data.pkl", bytes(size))
        file.writestr("archive/version", b"3\n")
    return content.getvalue()


def saved(value: object, old: bool = False) -> bytes:
    content = io.BytesIO()
    torch.save(value, content, _use_new_zipfile_serialization=not old)
    return content.getvalue()


def legacy_tar() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            member = tarfile.TarInfo(name)
            member.size = len(pickle.dumps({}))
            tar.addfile(member, io.BytesIO(pickle.dumps({})))
    return content.getvalue()


def gguf_head(values: int, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values)


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def only(name: str, content: bytes):
    """A checkpoint whose weights are this one file."""

    def make(directory: Path) -> None:
        (directory / "model.safetensors").unlink()
        (directory / name).write_bytes(content)

    return make


def indexed(*shards: str):
    """A checkpoint whose index names these files, a tensor each."""

    def make(directory: Path) -> None:
        (directory / "model.safetensors").rename(directory / "a.safetensors")
        index = {"weight_map": {f"tensor {i}": shard for i, shard in enumerate(shards)}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))

    return make


def config(content: str | bytes):
    def make(directory: Path) -> None:
        (directory / "config.json").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )

    return make


def setting(**values: object):
    """The good config.json with other values."""

    def make(directory: Path) -> None:
        path = directory / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return make


def link_out(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory.parent / "blob")
    (directory / "model.safetensors").symlink_to("../blob")


def link_to_nothing(directory: Path) -> None:
    only("pytorch_model.bin", saved(tensors(theirs())))(directory)
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
    indexed("a.safetensors", "b.safetensors")(directory)
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"tensor 0": np.ones(2), "tensor 1": np.ones(2)}, directory / name)


def truncated(name: str, content: bytes):
    return only(name, content[: len(content) * 2 // 3])


class Code:
    """What a pickle runs when it is read without care."""

    def __reduce__(self):
        return os.mkdir, ("the code has run",)


ST, BIN, FLAX, GGUF = "model.safetensors", "pytorch_model.bin", "flax_model.msgpack", "m.gguf"
GOOD_FLAX = flax.serialization.to_bytes(linen_tree(theirs()))
HOSTILE = {
    "header cut off": (
        only(ST, header({"a": entry([2], 0, 8)})[:20]),
        f"{ST}: not a safetensors file",
    ),
    "data cut off": (only(ST, header({"a": entry([2], 0, 8)}, b"1234")), "not fully covered"),
    "no header": (only(ST, b"1234"), "requires a buffer of 8 bytes"),
    "empty": (only(ST, b""), "is empty; download it again"),
    "header of 2**63 bytes": (only(ST, header({}, length=2**63)), "9,223,372,036,854,775,808"),
    "header of 90 MB": (only(ST, header({}, length=90_000_000)), "16,777,216 bytes at most"),
    "header no JSON": (only(ST, header(b"{a")), "invalid JSON"),
    "header a list": (only(ST, header([1])), "invalid type"),
    "header deep": (only(ST, header(b'{"a":' + b"[" * 100_000)), "recursion limit"),
    "overlap": (
        only(ST, header({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12))),
        "offset",
    ),
    "gap": (only(ST, header({"a": entry([2], 4, 12)}, bytes(12))), "invalid offset"),
    "beyond the end": (only(ST, header({"a": entry([4], 0, 16)}, bytes(8))), "not fully covered"),
    "bytes left over": (only(ST, header({"a": entry([2], 0, 8)}, bytes(9))), "not fully covered"),
    "shape too large": (only(ST, header({"a": entry([3], 0, 8)}, bytes(8))), "invalid shape"),
    "shape of 10**18": (only(ST, header({"a": entry([10**18], 0, 8)}, bytes(8))), "overflow"),
    "shape that wraps": (only(ST, header({"a": entry([2**33, 2**31], 0, 0)})), "overflow"),
    "shape below 0": (only(ST, header({"a": entry([-2], 0, 8)}, bytes(8))), "invalid value"),
    "eight-bit floats": (
        only(ST, header({"a": entry([2], 0, 2, "F8_E4M3")}, bytes(2))),
        "a has dtype F8_E4M3",
    ),
    "name with a line break": (
        only(ST, header({"a\nb\x1b[2J": entry([2], 0, 8)}, bytes(8))),
        r"unexpected a\\nb\\x1b\[2J",
    ),
    "shard missing": (indexed("b.safetensors"), "b.safetensors: No such file"),
    "shard above": (
        indexed("../blob"),
        r"names the file '\.\./blob'; it may only name files in the same directory",
    ),
    "shard absolute": (indexed("/etc/passwd"), "names the file '/etc/passwd'"),
    "shard in a folder": (indexed("b/a.safetensors"), "names the file 'b/a.safetensors'"),
    "shard with a null": (indexed("a\0b"), "in the same directory"),
    "shard of other tensors": (
        indexed("a.safetensors"),
        "a.safetensors: does not match .*lacks tensor 0, also holds lm_head",
    ),
    "tensor in two shards": (
        one_shard_twice,
        "a.safetensors: does not match .*: also holds tensor 1",
    ),
    "index of numbers": (
        only("model.safetensors.index.json", b'{"weight_map": {"a": 1}}'),
        "weight_map must be",
    ),
    "index a list": (only("model.safetensors.index.json", b"[]"), "holds a list"),
    "pickle with code": (only(BIN, saved({"a": Code()})), "no code in it was run"),
    "old pickle with code": (
        only(BIN, saved({"a": Code()}, old=True)),
        "no code in it was run",
    ),
    "bare pickle with code": (only(BIN, pickle.dumps({"a": Code()})), "no code in it was run"),
    "tar": (only(BIN, legacy_tar()), "holds more than tensors"),
    "archive cut off": (truncated(BIN, saved(tensors(theirs()))), "is truncated"),
    "old file cut off": (
        truncated(BIN, saved(tensors(theirs()), old=True)),
        "is truncated",
    ),
    "archive that grows": (only(BIN, archive(zipfile.ZIP_DEFLATED, 10**7)), "is compressed"),
    "archive of nothing": (only(BIN, archive(zipfile.ZIP_STORED)), "holds more than tensors"),
    "pointer of git-lfs": (
        only(BIN, b"version https://git-lfs.github.com/spec/v1\n"),
        "holds more than tensors",
    ),
    "list of tensors": (only(BIN, saved([torch.ones(2)])), "holds a list"),
    "tensors in a dict": (only(BIN, saved({"model": {"a": torch.ones(2)}})), "'model' is a dict"),
    "one number, 10**9 wide": (
        only(BIN, saved({"a": torch.ones(1).expand(10**9)})),
        "'a' is larger than",
    ),
    "sparse": (only(BIN, saved({"a": torch.eye(3).to_sparse()})), "must be a plain dense tensor"),
    "msgpack cut off": (truncated(FLAX, GOOD_FLAX), "No more data"),
    "msgpack goes on": (only(FLAX, GOOD_FLAX + b"xyz"), "3 bytes are left over"),
    "msgpack of a list": (only(FLAX, packed([])), "a list instead of named parameters"),
    "msgpack of numbers": (only(FLAX, packed({"a": 1})), "a is a int instead of an array"),
    "map of 2**32": (only(FLAX, b"\xdf\xff\xff\xff\xff"), "exceeds max_map_len"),
    "array of 2**32": (only(FLAX, b"\x81\xa1a\xdd\xff\xff\xff\xff"), "exceeds max_array_len"),
    "ext of 2**32": (only(FLAX, b"\x81\xa1a\xc9\xff\xff\xff\xff\x01"), "exceeds max_ext_len"),
    "maps in maps": (only(FLAX, b"\x81\xa1a" * 100_000 + b"\x80"), "not a checkpoint of Flax"),
    "ndarray too short": (only(FLAX, ndarray([10**18], "float32", b"1234")), "cannot reshape"),
    "ndarray of objects": (
        only(FLAX, ndarray([1], "O", b"12345678")),
        "not a checkpoint of Flax",
    ),
    "unknown extension": (
        only(FLAX, packed({"a": msgpack.ExtType(9, b"")})),
        "extension of type 9",
    ),
    "gguf cut off": (only(GGUF, gguf_head(1) + text(b"a")[:6]), "not a GGUF file, or truncated"),
    "gguf of another kind": (only(GGUF, b"GGML" + bytes(20)), "not a GGUF file"),
    "gguf version 9": (only(GGUF, gguf_head(0, version=9)), "version 9; only 2 and 3 are read"),
    "gguf name of 2**60": (
        only(GGUF, gguf_head(1) + struct.pack("<Q", 2**60)),
        "1,152,921,504,606,846,976",
    ),
    "gguf array of 2**62": (
        only(GGUF, gguf_head(1) + text(b"a") + struct.pack("<IIQ", 9, 4, 2**62)),
        "18,446,744,073,709,551,616 bytes wanted",
    ),
    "gguf texts of 2**62": (
        only(GGUF, gguf_head(1) + text(b"a") + struct.pack("<IIQ", 9, 8, 2**62)),
        "not a GGUF file, or truncated",
    ),
    "gguf of 2**60 tensors": (only(GGUF, gguf_head(0, 2**60)), "not a GGUF file, or truncated"),
    "gguf tensor of 2**60": (
        only(GGUF, gguf_head(0, 1) + text(b"a") + struct.pack("<IQIQ", 1, 2**60, 0, 0) + bytes(64)),
        "a lies at .* with 4,611,686,018,427,387,904 bytes",
    ),
    "gguf of 2**31 axes": (
        only(GGUF, gguf_head(0, 1) + text(b"a") + struct.pack("<I", 2**31)),
        "a tensor of 2,147,483,648 axes",
    ),
    "gguf of another model": (
        only(
            GGUF,
            gguf_head(1) + text(b"general.architecture") + struct.pack("<I", 8) + text(b"rwkv"),
        ),
        "general.architecture is 'rwkv'",
    ),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json: No such file"),
    "no weights": (lambda d: (d / ST).unlink(), "holds no weights; expected model.safetensors"),
    "config a list": (config("[]"), "config.json: holds a list; it must be a JSON object"),
    "config no JSON": (config("{"), "config.json: is not valid JSON"),
    "config not text": (config(b"\xff\xfe\x00"), "config.json: is not valid JSON"),
    "config deep": (config("[" * 100_000), "config.json: is not valid JSON"),
    "config huge": (
        config('{"a": "' + "x" * 2**20 + '"}'),
        "config.json: is larger than 1,048,576 bytes",
    ),
    "config with 400 digits": (setting(rms_norm_eps=10**400), "config.json: is not valid JSON"),
    "config of another model": (setting(model_type="rwkv"), "model_type: 'rwkv' is not supported"),
    "config with no sizes": (config('{"model_type": "llama"}'), "vocab_size: missing"),
    "config of 10**12 layers": (setting(num_hidden_layers=10**12), "1,000,000,000,000 layers"),
    "config of 10**12 experts": (
        setting(
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


@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_and_exit_status_2(directory, name, capsys, monkeypatch):
    """The same line from Python and from the command line, and no code of a pickle runs."""
    make, message = HOSTILE[name]
    make(directory)
    monkeypatch.chdir(directory)
    with pytest.raises(CheckpointError, match=message) as error:
        from_pretrained(directory)
    assert main(["inspect", str(directory)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"{PROGRAM}: error: {error.value}\n"
    assert not (directory / "the code has run").exists()


def test_the_code_of_the_pickles_would_run(tmp_path, monkeypatch):
    """What the test above rests on: the pickle does its harm where it is trusted."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps({"a": Code()}))
    assert (tmp_path / "the code has run").exists()


def test_a_file_without_the_right_to_read_it(directory):
    (directory / "model.safetensors").chmod(0)
    if os.access(directory / "model.safetensors", os.R_OK):
        pytest.skip("this user, root, may read every file")
    with pytest.raises(CheckpointError, match="model.safetensors: Permission denied"):
        from_pretrained(directory)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gpt2", "gpt2: does not exist, and nothing is downloaded; give a directory .*hf download"),
        ("config.json", "config.json: is a file; give a directory that holds a config.json"),
    ],
)
def test_a_path_that_is_no_directory(good, path, message):
    with pytest.raises(CheckpointError, match=message):
        from_pretrained(good / path)


@pytest.mark.parametrize("name", ["torch", "msgpack", "gguf"])
def test_a_library_that_is_absent_is_asked_for(directory, name, monkeypatch):
    only({"torch": BIN, "msgpack": FLAX, "gguf": GGUF}[name], b"any")(directory)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CheckpointError, match=f"needs {name} to be read; pip install {name}"):
        from_pretrained(directory)


def test_safetensors_are_read_and_written_without_a_framework(good, tmp_path):
    run_python(
        "import sys\n"
        "from transformer_hub import from_pretrained, save_pretrained\n"
        f"save_pretrained({str(tmp_path / 'copy')!r}, from_pretrained({str(good)!r}))\n"
        "assert not {'jax', 'torch', 'transformers', 'gguf', 'msgpack'} & set(sys.modules)\n"
    )
    assert_same(from_pretrained(tmp_path / "copy").arrays)


# The highest resident size of a process, which unlike getrusage's forgets the parent's.
HIGHEST = """
def highest():
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
"""
LINUX = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc"
)


@LINUX
def test_no_hostile_file_takes_more_memory_than_it_is_large(good, tmp_path):
    """All of them in one process: they have 11 MB at most, a broken reader would take gigabytes."""
    for name, (make, _) in HOSTILE.items():
        make(Path(shutil.copytree(good, tmp_path / name / "checkpoint")))
    grown = run_python(
        f"{HIGHEST}\n"
        "import sys, pathlib, gguf, msgpack, torch\n"
        "from transformer_hub import from_pretrained\n"
        f"from_pretrained({str(good)!r})\n"
        "before = highest()\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).glob('*/checkpoint')):\n"
        "    try:\n"
        "        from_pretrained(path)\n"
        "    except ValueError:\n"
        "        continue\n"
        "    raise SystemExit(f'{path} is accepted')\n"
        "print(highest() - before)\n"
    )
    assert int(grown) < 64 * 2**20


@pytest.mark.slow
@LINUX
def test_a_checkpoint_of_1_gb_takes_its_own_size_to_import(tmp_path):
    """LLaMA-like, bfloat16, in shards. Bound: all parameters, and beside them the one in flight
    (the largest, for what makes it contiguous) and 32 MB of buffers.
    """
    large = replace(LLAMA, vocab_size=32000, d_model=2048, d_ff=5632, num_layers=7, head_dim=512)
    family, parts = FAMILIES["llama"], tmp_path / "parts"
    parts.mkdir()
    layout, rng = family.layout(large), np.random.default_rng(0)
    shapes = layout.their_shapes()
    named = (
        (name, rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16))
        for name, shape in shapes.items()
    )
    safetensors_files.write(parts, named, max_shard_bytes=400 * 10**6)
    (parts / "config.json").write_text(json.dumps(family.write_config(large, {})))
    assert len(list(parts.glob("*.safetensors"))) == 3
    grown = run_python(
        f"{HIGHEST}\n"
        "from transformer_hub.__main__ import main\n"
        "before = highest()\n"
        f"assert main(['import', {str(parts)!r}, {str(tmp_path / 'out')!r}]) == 0\n"
        "print(highest() - before)\n"
    )
    size = 2 * count(large)
    largest = 2 * 32000 * 2048
    ratio = int(grown.splitlines()[-1]) / size
    print(f"peak memory over parameters: {ratio:.3f} of {size / 1e9:.2f} GB")
    assert 0.9e9 < size < 1.1e9
    assert ratio < 1 + (largest + 32 * 2**20) / size


class TestCommands:
    def test_inspect(self, good, capsys):
        assert main(["inspect", str(good), "--tensors"]) == 0
        shown = capsys.readouterr().out
        assert "family      llama" in shown
        assert f"parameters  {count(LLAMA):,}" in shown
        assert "model.layers.2.mlp.down_proj.weight" in shown
        model = re.findall(r"model +({.*?\n})", shown, re.DOTALL)
        assert [json.loads(text) for text in model] == [LLAMA.to_dict()]

    def test_there_and_back(self, good, tmp_path, capsys):
        ours, back = tmp_path / "ours", tmp_path / "back"
        assert main(["import", str(good), str(ours)]) == 0
        assert_same(load_file(ours / "model.safetensors"))
        assert open_checkpoint(ours).config == LLAMA
        assert main(["inspect", str(ours)]) == 0
        assert main(["export", str(ours), str(back)]) == 0
        assert_same(load_file(back / "model.safetensors"), theirs())
        assert json.loads((back / "config.json").read_text()) == json.loads(
            (good / "config.json").read_text()
        )
        assert capsys.readouterr().err == ""

    def test_import_in_another_dtype(self, good, tmp_path):
        assert main(["import", str(good), str(tmp_path / "ours"), "--dtype", "float32"]) == 0
        found = load_file(tmp_path / "ours" / "model.safetensors")
        assert {array.dtype.name for array in found.values()} == {"float32"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("inspect {tmp}/nothing", "nothing: does not exist, and nothing is downloaded"),
            ("import {good} {good}", "already holds files; give a new or empty directory"),
            ("import {good} {good}/config.json", "config.json: File exists"),
            ("export {tmp}/run {tmp}/out", "--family: .*/run is a run; give one of gpt2"),
            ("inspect {tmp}/odd", "family: 7 is not usable; it must be str or none"),
            ("export {tmp}/run {tmp}/out --family bert", "cannot be written as bert"),
            ("export {good} {tmp}/out --family lama", "no 'lama'; did you mean llama?"),
            ("import {good}", "the following arguments are required: OUT"),
            ("import {tmp}/run {tmp}/out", "model_type"),
        ],
    )
    def test_mistakes(self, good, tmp_path, arguments, message, capsys):
        run_directory = tmp_path / "run"
        run_directory.mkdir()
        save_file(MODEL.arrays, run_directory / "model.safetensors")
        (run_directory / "config.json").write_text(json.dumps({"model": LLAMA.to_dict()}))
        odd = Path(shutil.copytree(run_directory, tmp_path / "odd")) / "config.json"
        odd.write_text(json.dumps({"model": LLAMA.to_dict(), "family": 7}))
        argv = [word.format(good=good, tmp=tmp_path) for word in arguments.split()]
        try:
            status = main(argv)
        except SystemExit as exit:
            status = exit.code
        shown = capsys.readouterr()
        assert (status, shown.out) == (2, "")
        assert len(shown.err.splitlines()) == 1, shown.err
        assert re.search(message, shown.err), shown.err
        assert_same(from_pretrained(good).arrays)

    def test_help_teaches(self):
        done = run("-m", "transformer_hub", "--help")
        assert done.returncode == 0
        for word in ("hf download", "inspect gpt2", "--init-from", "--family", "llama"):
            assert word in done.stdout


CHARACTERS = ModelConfig(
    arch="decoder",
    vocab_size=12,
    max_seq_len=7,
    d_model=8,
    d_ff=16,
    num_layers=1,
    num_heads=2,
    position=Learned(),
    norm=LayerNorm(),
    residual=PreNorm(),
    ffn=GatedFeedForward(),
)


class TestTrainingFromACheckpoint:
    @pytest.fixture
    def data(self, tmp_path) -> str:
        (tmp_path / "text.txt").write_text("abcdefghijkl" * 40)
        return str(tmp_path / "text.txt")

    @staticmethod
    def train(start: Path, data: str, *more: str):
        preset = ["--preset", "char-gpt", "--data", data, "--init-from", str(start)]
        return run("train.py", *preset, "--steps", "1", *more)

    @staticmethod
    def save(path: Path, tokenizer: dict | None = None, **changes: object) -> dict[str, np.ndarray]:
        """A run's directory with weights in bfloat16."""
        model = replace(CHARACTERS, **changes)
        arrays = drawn(model)
        path.mkdir()
        save_file(arrays, path / "model.safetensors")
        raw = {"model": model.to_dict(), "tokenizer": tokenizer}
        (path / "config.json").write_text(json.dumps(raw))
        return arrays

    @pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
    def test_its_weights_are_where_the_run_begins(self, tmp_path, data, backend):
        """A rate of 1e-30 changes no float32."""
        arrays = self.save(tmp_path / "start")
        out = ["--backend", backend, "--run-dir", str(tmp_path / "run")]
        done = self.train(tmp_path / "start", data, *out, "--learning-rate", "1e-30")
        assert done.returncode == 0, done.stderr
        found = load_file(tmp_path / "run" / "model.safetensors")
        assert_same(found, {name: array.astype(np.float32) for name, array in arrays.items()})
        raw = json.loads((tmp_path / "run" / "config.json").read_text())
        assert ModelConfig.from_dict(raw["model"]) == CHARACTERS
        assert raw["init_from"] == str(tmp_path / "start")

    @pytest.mark.parametrize(
        ("saved", "more", "message"),
        [
            ({"vocab_size": 11}, [], "its vocab_size is 11, not 12"),
            ({}, ["--max-seq-len", "5"], "its max_seq_len is 7, not 5"),
            (
                {"tokenizer": {"type": "characters", "characters": "bcdefghijklm"}},
                [],
                "other characters",
            ),
            ({}, ["--init-from", "nothing"], "nothing: does not exist"),
        ],
    )
    def test_one_that_does_not_fit_is_refused(self, tmp_path, data, saved, more, message):
        self.save(tmp_path / "start", **saved)
        done = self.train(tmp_path / "start", data, "--run-dir", str(tmp_path / "run"), *more)
        assert done.returncode == 2, done.stdout
        assert len(done.stderr.splitlines()) == 1
        assert message in done.stderr
        assert not (tmp_path / "run").exists()


def unsafe(source: str) -> list[str]:
    """What in a source could run the code of a file that is read."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules = {name.split(".")[0] for name in names}
        found += sorted(modules & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"})
        if isinstance(node, ast.Call):
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            called = ast.unparse(node.func)
            if called == "torch.load" and given.get("weights_only") is not True:
                found.append(called)
            if given.get("allow_pickle"):
                found.append("allow_pickle")
    return found


def test_no_source_reads_a_pickle_or_trusts_one():
    packages = ("transformer_spec", "flax_transformer", "torch_reference", "parity")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert len(sources) > 50
    for path in [ROOT / "train.py", *sources]:
        assert not unsafe(path.read_text()), path


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_what_that_test_would_find(source):
    assert unsafe(source)
    assert not unsafe("torch.load(path, weights_only=True, mmap=True)")
