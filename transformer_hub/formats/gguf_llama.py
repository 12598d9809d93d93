"""LLaMA in a GGUF file, under the names `transformers` has for its tensors and settings."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from transformer_hub.errors import CheckpointError
from transformer_hub.formats import gguf_files
from transformer_hub.formats.lazy_tensor import LazyTensor
from transformer_spec.rotary import Llama3Scaling, NoScaling, frequencies

SUFFIX = ".gguf"
REQUIRED = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OPTIONAL = ("attention.head_count_kv", "attention.key_length", "rope.freq_base")
SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
}
# Keys that repeat what other keys or tensors say; one with a value here must have that value.
REDUNDANT = {
    "vocab_size": None,
    "rope.scaling.finetuned": None,
    "tensor_data_layout": "Meta AI original pth",
    "expert_count": 0,
    "expert_used_count": 0,
}
TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
ROPE_FREQS = "rope_freqs.weight"


def unpermute(array: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorder the rows of a q or k projection as `transformers` has them: rotary pairs by halves.

    GGUF's LLaMA rotates adjacent rows of a head together, (0, 1), (2, 3), ..., so the halves were
    interleaved when the weights were written (`permute` in llama.cpp's convert_hf_to_gguf.py). This
    is the inverse; `array` is [heads * head_dim, ...], a weight or a bias.
    """
    pairs = array.reshape(num_heads, -1, 2, *array.shape[1:])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def read(path: Path) -> tuple[dict[str, Any], dict[str, LazyTensor]]:
    """A config.json's content and tensors under the names of `LlamaForCausalLM`."""
    metadata, stored = gguf_files.read(path)
    if (architecture := metadata.get("general.architecture")) != "llama":
        raise CheckpointError(f"{path}: general.architecture is {architecture!r}, not 'llama'")
    divisors = stored.pop(ROPE_FREQS, None)
    config = _config(path, metadata, stored)
    if divisors is not None:
        config["rope_scaling"] = _llama3(path, config, divisors.read())
    return config, dict(_renamed(name, tensor, config) for name, tensor in stored.items())


def _config(path: Path, metadata: dict[str, Any], stored: dict[str, LazyTensor]) -> dict[str, Any]:
    given = _settings(path, metadata)
    embedding = stored.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(
            f"{path}: has no matrix token_embd.weight; the file must hold a whole LLaMA"
        )
    config = {ours: given.pop(key) for key, ours in REQUIRED.items()}
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = given.pop("attention.key_length", width // heads)
    scaling = {ours: given.pop(key) for key, ours in SCALING.items() if key in given}
    config |= {
        "model_type": "llama",
        "vocab_size": embedding.shape[0],
        "num_key_value_heads": given.pop("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in stored,
        "mlp_bias": "blk.0.ffn_up.bias" in stored,
        "tie_word_embeddings": "output.weight" not in stored,
        "rope_theta": given.pop("rope.freq_base", 10000.0),
        "rope_scaling": scaling if scaling.get("rope_type", "none") != "none" else None,
    }
    _refuse_unsupported(path, given, head_dim)
    return config


def _settings(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata under `llama.`, without that prefix; its sizes are checked to be above 0."""
    given = {
        key.removeprefix("llama."): _shortest(value)
        for key, value in metadata.items()
        if key.startswith("llama.")
    }
    for key in (*REQUIRED, *(key for key in OPTIONAL if key in given)):
        if type(given.get(key)) not in (int, float) or given[key] <= 0:
            raise CheckpointError(f"{path}: llama.{key} must be one number above 0 for all layers")
    return given


def _refuse_unsupported(path: Path, given: dict[str, Any], head_dim: int) -> None:
    """Refuse any setting left over that could change the model."""
    known = REDUNDANT | dict.fromkeys(("attention.value_length", "rope.dimension_count"), head_dim)
    for key, value in given.items():
        if key not in known:
            raise CheckpointError(f"{path}: llama.{key} is not supported (its value is {value!r})")
        if known[key] is not None and value != known[key]:
            raise CheckpointError(f"{path}: llama.{key} is {value!r}; it must be {known[key]!r}")


def _shortest(value: Any) -> Any:
    """The shortest decimal of a float32: 1e-5, not 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _llama3(path: Path, config: dict[str, Any], divisors: np.ndarray) -> dict[str, Any]:
    """The scaling of LLaMA 3.1, which GGUF stores as the divisor of each frequency."""
    width, theta = config["head_dim"], config["rope_theta"]
    usable = divisors.shape == (width // 2,) and np.isfinite(divisors).all()
    scaling = Llama3Scaling(factor=max(1.0, float(divisors.max())) if usable else 1.0)
    if config["rope_scaling"] or not usable or not _divides(divisors, width, theta, scaling):
        raise CheckpointError(f"{path}: {ROPE_FREQS} is not LLaMA 3.1's scaling of frequencies")
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_seq_len,
    }


def _divides(divisors: np.ndarray, width: int, theta: float, scaling: Llama3Scaling) -> bool:
    plain = frequencies(width, theta, NoScaling())
    return np.allclose(divisors, plain / frequencies(width, theta, scaling), rtol=1e-5)


def _renamed(name: str, tensor: LazyTensor, config: dict[str, Any]) -> tuple[str, LazyTensor]:
    """A tensor under its name in `LlamaForCausalLM`; one that LLaMA does not have keeps its own."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if not match or match[2] not in BLOCK:
        return TOP.get(name, name), tensor
    if heads := config.get(HEADS.get(match[2], "")):
        stored = tensor
        tensor = replace(stored, read=lambda: unpermute(stored.read(), heads))
    return f"model.layers.{match[1]}.{BLOCK[match[2]]}.{match[3]}", tensor
