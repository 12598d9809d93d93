"""LLaMA 1 to 3."""

from transformer_hub.families.llama_like import DECODER, GATED_FFN, decoder_keys, llama_like
from transformer_hub.families.settings import Key

FAMILY = llama_like(
    "llama",
    "Llama",
    (
        *decoder_keys(2048, None, None),
        Key("attention_bias", ("qkv_bias", "out_bias"), False),
        Key("mlp_bias", "ffn_bias", False),
    ),
    (*DECODER, *GATED_FFN),
    # With these set its cache would follow a window, but not its mask.
    supported={"sliding_window": None, "layer_types": None},
)
