"""Mixtral: Mistral with a mixture of experts.

transformers 5 holds the experts of a layer as two stacked tensors in memory, and stores them one by
one, under the names of transformers 4. That is what is written; both are read.
"""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Layout
from transformer_hub.families.llama import (
    DECODER,
    decoder_keys,
    decoder_layout,
    read_window,
    write_decoder,
    write_window,
)
from transformer_hub.families.relations import Fused, Same, Stacked
from transformer_hub.families.rotary_settings import read_rotary
from transformer_hub.families.settings import Settings
from transformer_spec.config import Causal, MixtureOfExperts, ModelConfig, PreNorm, RMSNorm, Rotary

KEYS = decoder_keys(131072, 8, None)

_OURS = "decoder.layers.{i}.ffn"
_STORED, _IN_MEMORY = "model.layers.{i}.block_sparse_moe", "model.layers.{i}.mlp"
STORED = (
    Same(f"{_STORED}.gate.weight", f"{_OURS}.router.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w1.weight", f"{_OURS}.gate_proj.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w3.weight", f"{_OURS}.up_proj.weight"),
    Stacked(f"{_STORED}.experts.{{e}}.w2.weight", f"{_OURS}.down_proj.weight"),
)
IN_MEMORY = (
    Same(f"{_IN_MEMORY}.gate.weight", f"{_OURS}.router.weight"),
    Fused(
        f"{_IN_MEMORY}.experts.gate_up_proj",
        (f"{_OURS}.gate_proj.weight", f"{_OURS}.up_proj.weight"),
    ),
    Same(f"{_IN_MEMORY}.experts.down_proj", f"{_OURS}.down_proj.weight"),
)


def read(settings: Settings) -> ModelConfig:
    settings.must("router_jitter_noise", 0.0)
    settings.must("attention_bias", False)
    return ModelConfig(
        arch="decoder",
        position=read_rotary(settings, theta=1e6),
        mask=read_window(settings),
        norm=RMSNorm(eps=settings.get("rms_norm_eps", 1e-5)),
        residual=PreNorm(),
        ffn=MixtureOfExperts(
            num_experts=settings.get("num_local_experts", 8, ("num_experts",)),
            top_k=settings.get("num_experts_per_tok", 2),
            activation=settings.activation("hidden_act", "silu"),
        ),
        ffn_bias=False,
        **settings.fields(KEYS),
    )


def write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.ffn, MixtureOfExperts)
    return (
        write_decoder(KEYS, config)
        | write_window(config)
        | {
            "num_local_experts": config.ffn.num_experts,
            "num_experts_per_tok": config.ffn.top_k,
        }
    )


def layout(config: ModelConfig) -> Layout:
    return decoder_layout("mixtral", config, DECODER + STORED, DECODER + IN_MEMORY)


MIXTRAL = Family(
    name="mixtral",
    model_type="mixtral",
    architectures=("MixtralForCausalLM", "MixtralModel"),
    slots={
        "position": (Rotary,),
        "mask": (Causal,),
        "norm": (RMSNorm,),
        "ffn": (MixtureOfExperts,),
    },
    read=read,
    write=write,
    layout=layout,
    architecture=lambda config: "MixtralForCausalLM",
)
