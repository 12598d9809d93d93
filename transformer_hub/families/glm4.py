"""GLM-4-0414: GLM-4 with a norm behind each sublayer too."""

from transformer_hub.families.glm import EPS, KEYS, SUPPORTED, TABLE
from transformer_hub.families.llama_like import OURS, THEIRS, llama_like
from transformer_hub.families.relations import Same
from transformer_spec.config import SandwichNorm

FAMILY = llama_like(
    "glm4",
    "Glm4",
    KEYS,
    (
        *TABLE,
        Same(f"{THEIRS}.post_self_attn_layernorm.weight", f"{OURS}.attn_out_norm.weight"),
        Same(f"{THEIRS}.post_mlp_layernorm.weight", f"{OURS}.ffn_out_norm.weight"),
    ),
    eps=EPS,
    partial_rotary=0.5,
    interleaved=True,
    supported=SUPPORTED,
    read=lambda settings: {"residual": SandwichNorm()},
)
