"""Mistral: LLaMA with a window on attention."""

from transformer_hub.families.llama_like import (
    DECODER,
    GATED_FFN,
    decoder_keys,
    llama_like,
    read_window,
    write_window,
)

FAMILY = llama_like(
    "mistral",
    "Mistral",
    decoder_keys(131072, 8, None),
    (*DECODER, *GATED_FFN),
    supported={"attention_bias": False, "mlp_bias": False},
    read=lambda settings: {"mask": read_window(settings, 4096)},
    write=write_window,
)
