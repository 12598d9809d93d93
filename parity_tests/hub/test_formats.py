"""Every format of files, to the last bit, and what must be whole in a checkpoint."""

import itertools
import json
import os
import re
import sys
from dataclasses import replace
from typing import Any

import flax.serialization
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from parity_tests.hub.file_bytes import torch_bytes
from parity_tests.hub.hostile_files import BIN, FLAX, GGUF, only_file
from parity_tests.hub.small_llama import (
    LLAMA,
    MODEL,
    assert_same_arrays,
    linen_tree,
    random_arrays,
    stored_arrays,
    torch_tensors,
)
from parity_tests.processes import run_python
from transformer_hub import CheckpointError, from_pretrained, save_pretrained
from transformer_spec.config import LayerNorm
from transformer_spec.naming import walk
from transformer_spec.parameters import count


class TestFormats:
    def test_one_file(self, good):
        assert sorted(os.listdir(good)) == ["config.json", "model.safetensors"]
        found = from_pretrained(good)
        assert (found.family, found.config) == ("llama", LLAMA)
        assert_same_arrays(found.arrays)

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
        assert_same_arrays(from_pretrained(tmp_path / "out").arrays)

    def test_a_tensor_above_the_limit_has_a_shard_of_its_own(self, tmp_path):
        save_pretrained(tmp_path / "out", MODEL, max_shard_bytes=1)
        assert len(list((tmp_path / "out").glob("*.safetensors"))) == len(stored_arrays())
        assert_same_arrays(from_pretrained(tmp_path / "out").arrays)

    @pytest.mark.parametrize("archive", [True, False], ids=["archive", "before torch 1.6"])
    def test_pickled(self, directory, archive):
        (directory / "model.safetensors").unlink()
        path = directory / "pytorch_model.bin"
        path.write_bytes(torch_bytes(torch_tensors(stored_arrays()), old=not archive))
        assert_same_arrays(from_pretrained(directory).arrays)

    def test_pickled_in_shards(self, directory):
        (directory / "model.safetensors").unlink()
        named = list(torch_tensors(stored_arrays()).items())
        weight_map = {}
        for i, part in enumerate((named[:4], named[4:])):
            shard = f"pytorch_model-{i + 1:05}-of-00002.bin"
            (directory / shard).write_bytes(torch_bytes(dict(part)))
            weight_map |= {name: shard for name, _ in part}
        index = json.dumps({"metadata": {}, "weight_map": weight_map})
        (directory / "pytorch_model.bin.index.json").write_text(index)
        assert_same_arrays(from_pretrained(directory).arrays)

    @pytest.mark.parametrize("chunk", [2**30, 100], ids=["whole", "in chunks"])
    def test_msgpack_of_flax(self, directory, chunk, monkeypatch):
        (directory / "model.safetensors").unlink()
        monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", chunk)
        content = flax.serialization.to_bytes(linen_tree(stored_arrays()))
        assert (b"__msgpack_chunked_array__" in content) == (chunk == 100)
        (directory / "flax_model.msgpack").write_bytes(content)
        assert_same_arrays(from_pretrained(directory).arrays)

    def test_the_first_of_safetensors_bin_msgpack_and_gguf_is_taken(self, directory):
        formats = ["model.safetensors", "pytorch_model.bin", "flax_model.msgpack", "any.gguf"]
        for name in formats[1:]:
            (directory / name).write_bytes(b"broken")
        assert_same_arrays(from_pretrained(directory).arrays)
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
        assert_same_arrays(
            found, {name: array.view(np.int16) for name, array in stored_arrays().items()}
        )


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
        model = replace(MODEL, arrays=random_arrays(LLAMA, dtype))
        save_pretrained(tmp_path / "out", model)
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert config["torch_dtype"] == config["dtype"] == dtype
        assert_same_arrays(from_pretrained(tmp_path / "out").arrays, model.arrays)

    def test_a_dtype_that_is_asked_for(self, good):
        found = from_pretrained(good, dtype="float32").arrays
        assert_same_arrays(found, {n: a.astype(np.float32) for n, a in MODEL.arrays.items()})
        with pytest.raises(CheckpointError, match="dtype: no 'int8'; choose from float16"):
            from_pretrained(good, dtype="int8")

    def test_a_value_that_becomes_infinite_is_refused_by_name(self, tmp_path):
        arrays = random_arrays(LLAMA)
        arrays["lm_head.weight"][3, 2] = 70_000
        save_pretrained(tmp_path / "out", replace(MODEL, arrays=arrays))
        assert from_pretrained(tmp_path / "out", dtype="float32").arrays
        with pytest.raises(
            CheckpointError, match="lm_head.weight: has values outside the range of float16"
        ):
            from_pretrained(tmp_path / "out", dtype="float16")

    def test_integers_are_no_parameters(self, directory):
        named = stored_arrays() | {"lm_head.weight": np.ones((37, 32), np.int8)}
        save_file(named, directory / "model.safetensors")
        with pytest.raises(CheckpointError, match="lm_head.weight is int8; parameters must be"):
            from_pretrained(directory)


def test_all_missing_unknown_and_misshapen_tensors_are_named(directory):
    named = stored_arrays()
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
    arrays = random_arrays(LLAMA)
    del arrays["lm_head.weight"]
    with pytest.raises(CheckpointError, match="missing lm_head.weight"):
        save_pretrained(tmp_path / "out", replace(MODEL, arrays=arrays))
    with pytest.raises(CheckpointError, match="family: no 'lama'; did you mean llama?"):
        save_pretrained(tmp_path / "out", replace(MODEL, family="lama"))
    normed = replace(MODEL, config=replace(LLAMA, norm=LayerNorm()))
    with pytest.raises(CheckpointError, match="norm"):
        save_pretrained(tmp_path / "out", replace(normed, arrays=random_arrays(normed.config)))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["torch", "msgpack", "gguf"])
def test_a_library_that_is_absent_is_asked_for(directory, name, monkeypatch):
    only_file({"torch": BIN, "msgpack": FLAX, "gguf": GGUF}[name], b"any")(directory)
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
    assert_same_arrays(from_pretrained(tmp_path / "copy").arrays)
