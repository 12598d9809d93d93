"""LLaMA in GGUF files, written by the gguf library."""

import re
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from parity_tests.hub.small_llama import (
    LLAMA,
    MODEL,
    assert_same_arrays,
    random_arrays,
    stored_arrays,
)
from transformer_hub import CheckpointError, from_pretrained
from transformer_hub.formats.gguf_llama import BLOCK, TOP, unpermute
from transformer_spec.config import Llama3Scaling, Rotary
from transformer_spec.rotary import NoScaling, frequencies


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
        for name, array in stored_arrays(
            replace(MODEL, arrays=random_arrays(LLAMA, "float32"))
        ).items():
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
            assert_same_arrays(found.arrays, random_arrays(LLAMA, "float32"))

    @pytest.mark.parametrize(("kind", "dtype"), [("F16", "float16"), ("BF16", "bfloat16")])
    def test_two_bytes_stay_two_bytes(self, tmp_path, kind, dtype):
        self.write(tmp_path / "model.gguf", kind)
        found = from_pretrained(tmp_path).arrays
        wanted = random_arrays(LLAMA, "float32")
        assert_same_arrays(
            found, {n: a.astype(dtype) if a.ndim == 2 else a for n, a in wanted.items()}
        )

    @pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
    def test_quantized_numbers_become_float32(self, tmp_path, kind):
        """The blocks that share a scale lie within a row, so the order of rows changes nothing."""
        self.write(tmp_path / "model.gguf", kind)
        wanted, quantized = random_arrays(LLAMA, "float32"), gguf.GGMLQuantizationType[kind]
        for name, array in wanted.items():
            if array.ndim == 2:
                packed = gguf.quants.quantize(array, quantized)
                wanted[name] = gguf.quants.dequantize(packed, quantized)
        assert_same_arrays(from_pretrained(tmp_path).arrays, wanted)

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
