"""GLM-4-9B as transformers has it: half of each head is rotated, in adjacent pairs."""

from transformer_hub.families.llama_like import DECODER, OURS, THEIRS, decoder_keys, llama_like
from transformer_hub.families.relations import Fused, Same
from transformer_hub.families.settings import Key

KEYS = (*decoder_keys(131072, 2, 128), Key("attention_bias", "qkv_bias", True))
TABLE = (
    *DECODER,
    Fused(
        f"{THEIRS}.mlp.gate_up_proj.weight",
        (f"{OURS}.ffn.gate_proj.weight", f"{OURS}.ffn.up_proj.weight"),
    ),
    Same(f"{THEIRS}.mlp.down_proj.weight", f"{OURS}.ffn.down_proj.weight"),
)
EPS = 1.5625e-07
SUPPORTED = {"mlp_bias": False, "sliding_window": None, "layer_types": None}

FAMILY = llama_like(
    "glm",
    "Glm",
    KEYS,
    TABLE,
    eps=EPS,
    partial_rotary=0.5,
    interleaved=True,
    supported=SUPPORTED,
)
