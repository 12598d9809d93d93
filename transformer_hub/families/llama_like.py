"""LLaMA and the families made from it: what they share, and `llama_like`, which builds one.

A family's own file says what is its own: the defaults of its config class, the settings it has
beyond LLaMA's, and the names of the tensors that LLaMA has not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Same, Table
from transformer_hub.families.rotary_settings import read_rotary, write_rotary
from transformer_hub.families.settings import Key, Settings, their_activation, write_keys
from transformer_spec.config import (
    Causal,
    GatedFeedForward,
    ModelConfig,
    PreNorm,
    RMSNorm,
    Rotary,
)
from transformer_spec.fields import ConfigError

THEIRS, OURS = "model.layers.{i}", "decoder.layers.{i}"
ENDS: Table = (
    Same("model.embed_tokens.weight", "decoder.embed.weight"),
    Same("model.norm.weight", "decoder.final_norm.weight"),
    Same("lm_head.weight", "lm_head.weight"),
)
ATTENTION: Table = (
    Same(f"{THEIRS}.input_layernorm.weight", f"{OURS}.attn_norm.weight"),
    Same(f"{THEIRS}.self_attn.q_proj.*", f"{OURS}.attn.q_proj.*"),
    Same(f"{THEIRS}.self_attn.k_proj.*", f"{OURS}.attn.k_proj.*"),
    Same(f"{THEIRS}.self_attn.v_proj.*", f"{OURS}.attn.v_proj.*"),
    Same(f"{THEIRS}.self_attn.o_proj.*", f"{OURS}.attn.o_proj.*"),
)
FFN_NORM: Table = (Same(f"{THEIRS}.post_attention_layernorm.weight", f"{OURS}.ffn_norm.weight"),)
GATED_FFN: Table = (
    Same(f"{THEIRS}.mlp.gate_proj.*", f"{OURS}.ffn.gate_proj.*"),
    Same(f"{THEIRS}.mlp.up_proj.*", f"{OURS}.ffn.up_proj.*"),
    Same(f"{THEIRS}.mlp.down_proj.*", f"{OURS}.ffn.down_proj.*"),
)
# All but the feed-forward layer.
DECODER: Table = (*ENDS, *ATTENTION, *FFN_NORM)
SLOTS = {
    "position": (Rotary,),
    "mask": (Causal,),
    "norm": (RMSNorm,),
    "ffn": (GatedFeedForward,),
}


def decoder_keys(
    max_seq_len: int, num_kv_heads: int | None, head_dim: int | None, tied: bool = False
) -> tuple[Key, ...]:
    """The settings that all of them have, with the defaults of one config class."""
    return (
        Key("vocab_size", "vocab_size"),
        Key("max_position_embeddings", "max_seq_len", max_seq_len),
        Key("hidden_size", "d_model"),
        Key("intermediate_size", "d_ff"),
        Key("num_hidden_layers", "num_layers"),
        Key("num_attention_heads", "num_heads"),
        Key("num_key_value_heads", "num_kv_heads", num_kv_heads),
        Key("head_dim", "head_dim", head_dim),
        Key("attention_dropout", "attn_dropout", 0.0),
        Key("tie_word_embeddings", "tie_embeddings", tied),
    )


def llama_like(
    name: str,
    classes: str,
    keys: Sequence[Key],
    *tables: Table,
    eps: float = 1e-6,
    norm_offset: float = 0.0,
    activation: tuple[str, str] = ("hidden_act", "silu"),
    theta: float = 10000.0,
    partial_rotary: float | None = None,
    interleaved: bool = False,
    supported: Mapping[str, Any] | None = None,
    read: Callable[[Settings], dict[str, Any]] = lambda settings: {},
    write: Callable[[ModelConfig], dict[str, Any]] = lambda config: {},
    slots: Mapping[str, tuple[type, ...]] | None = None,
) -> Family:
    """A decoder with rotary positions, RMS norms before each sublayer and a gated feed-forward.

    Args:
        name: its model_type, and our name for it.
        classes: what the names of its classes begin with: `Llama` of `LlamaForCausalLM`.
        keys: settings that are fields of ours, by the names of both.
        tables: the layouts that are read; the first is also written.
        eps, activation, theta, partial_rotary: defaults of its config class: the epsilon of norms,
            the key of the activation and its value, the base of wavelengths, and the share of a
            head that is rotated (none: the class rotates whole heads).
        norm_offset: what the class adds to the weight of a norm.
        interleaved: the class rotates adjacent dimensions together.
        supported: settings of which one value is supported, and that value.
        read: settings -> further fields of ours, or other values than the ones above.
        write: config -> further settings, or other values.
        slots: field -> the variants it may hold, where they are not LLaMA's.
    """
    activation_key, activation_default = activation
    defaults = {key.theirs: key.default for key in keys}

    def read_config(settings: Settings) -> ModelConfig:
        for key, value in (supported or {}).items():
            settings.require(key, value)
        fields = {
            "position": read_rotary(settings, theta, partial_rotary, interleaved),
            "norm": RMSNorm(eps=settings.get("rms_norm_eps", eps), offset=norm_offset),
            "residual": PreNorm(),
            "ffn": GatedFeedForward(
                activation=settings.activation(activation_key, activation_default)
            ),
            "ffn_bias": False,
        }
        return ModelConfig(arch="decoder", **fields | settings.fields(keys) | read(settings))

    def write_config(config: ModelConfig) -> dict[str, Any]:
        assert isinstance(config.position, Rotary)
        shared = {
            "num_key_value_heads": config.kv_heads,
            # A null means d_model / num_heads only where it is the default of the class.
            "head_dim": config.head_dim if defaults["head_dim"] is None else config.head_size,
            "rms_norm_eps": config.norm.eps,
            activation_key: their_activation(config.ffn.activation, activation_default),
        }
        rotary = write_rotary(config.position, partial=partial_rotary is not None)
        return write_keys(keys, config) | rotary | shared | write(config)

    def layout(config: ModelConfig) -> Layout:
        embedding = "model.embed_tokens.weight"
        tied = [Copy("lm_head.weight", embedding)] if config.tie_embeddings else []
        # Releases before 4.32 stored the rotary frequencies.
        return Layout(name, config, tables, tied, "model.", (r"\.rotary_emb\.inv_freq$",))

    return Family(
        name=name,
        model_type=name,
        architectures=(f"{classes}ForCausalLM", f"{classes}Model"),
        slots=SLOTS | dict(slots or {}),
        read=read_config,
        write=write_config,
        layout=layout,
        architecture=lambda config: f"{classes}ForCausalLM",
    )


def read_window(settings: Settings, default: int | None = None) -> Causal:
    """The mask of a class that has one window for all layers."""
    mask = Causal(window=settings.get("sliding_window", default))
    check_layer_types(settings, lambda layer: mask)
    return mask


def write_window(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.mask, Causal)
    return {"sliding_window": config.mask.window}


def check_layer_types(settings: Settings, layer_mask: Callable[[int], Causal]) -> None:
    """Refuse `layer_types` other than what these masks of the layers come to."""
    given = settings.get("layer_types", None)
    if given is None:
        return
    if not isinstance(given, list):
        raise ConfigError(f"layer_types: {given!r} is not usable; it must be a list, or absent")
    windows = [layer_mask(layer).window for layer in range(len(given))]
    expected = ["full_attention" if w is None else "sliding_attention" for w in windows]
    depth = settings.get("num_hidden_layers")
    if given != expected or len(given) != depth:
        raise ConfigError(
            f"layer_types: {given!r} is not supported; it must be {expected!r} for the {depth} "
            "layers"
        )
