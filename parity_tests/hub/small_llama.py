"""A small LLaMA that stands for all families, and its arrays as checkpoints hold them."""

import numpy as np
import torch

from transformer_hub import FAMILIES, Pretrained
from transformer_spec.config import GatedFeedForward, ModelConfig, PreNorm, RMSNorm, Rotary
from transformer_spec.parameters import parameter_shapes

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


def random_arrays(
    config: ModelConfig, dtype: str = "bfloat16", seed: int = 0
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(config)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


MODEL = Pretrained("llama", LLAMA, random_arrays(LLAMA))


def stored_arrays(pretrained: Pretrained = MODEL) -> dict[str, np.ndarray]:
    """The arrays under the names of their family."""
    return dict(FAMILIES[pretrained.family].layout(pretrained.config).to_theirs(pretrained.arrays))


def torch_tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        for name, array in arrays.items()
    }


def assert_same_arrays(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray] = MODEL.arrays):
    """Names, dtypes and bits."""
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


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
