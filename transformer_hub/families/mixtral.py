"""Mixtral: Mistral with a mixture of experts.

transformers 5 holds the experts of a layer as two stacked tensors in memory, and stores them one by
one, under the names of transformers 4. That is what is written; both are read.
"""

from typing import Any

from transformer_hub.families.llama_like import (
    DECODER,
    OURS,
    THEIRS,
    decoder_keys,
    llama_like,
    read_window,
    write_window,
)
from transformer_hub.families.relations import Fused, Same, Stacked
from transformer_hub.families.settings import Settings
from transformer_spec.config import MixtureOfExperts, ModelConfig

_STORED, _IN_MEMORY = f"{THEIRS}.block_sparse_moe", f"{THEIRS}.mlp"
STORED = (
    Same(f"{_STORED}.gate.weight", f"{OURS}.ffn.router.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w1.weight", f"{OURS}.ffn.gate_proj.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w3.weight", f"{OURS}.ffn.up_proj.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w2.weight", f"{OURS}.ffn.down_proj.weight"),
)
IN_MEMORY = (
    Same(f"{_IN_MEMORY}.gate.weight", f"{OURS}.ffn.router.weight"),
    Fused(
        f"{_IN_MEMORY}.experts.gate_up_proj",
        (f"{OURS}.ffn.gate_proj.weight", f"{OURS}.ffn.up_proj.weight"),
    ),
    Same(f"{_IN_MEMORY}.experts.down_proj", f"{OURS}.ffn.down_proj.weight"),
)


def read(settings: Settings) -> dict[str, Any]:
    experts = MixtureOfExperts(
        num_experts=settings.get("num_local_experts", 8, ("num_experts",)),
        top_k=settings.get("num_experts_per_tok", 2),
        activation=settings.activation("hidden_act", "silu"),
    )
    return {"mask": read_window(settings), "ffn": experts}


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.ffn, MixtureOfExperts)
    return write_window(config) | {
        "num_local_experts": config.ffn.num_experts,
        "num_experts_per_tok": config.ffn.top_k,
    }


FAMILY = llama_like(
    "mixtral",
    "Mixtral",
    decoder_keys(131072, 8, None),
    (*DECODER, *STORED),
    (*DECODER, *IN_MEMORY),
    eps=1e-5,
    theta=1e6,
    supported={"router_jitter_noise": 0.0, "attention_bias": False},
    read=read,
    write=write,
    slots={"ffn": (MixtureOfExperts,)},
)
