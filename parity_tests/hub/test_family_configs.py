"""What a config.json asks that we cannot follow, and what of ours a family cannot say."""

from dataclasses import replace

import pytest

from parity_tests.hub.family_cases import YARN, imported, settings_of
from transformer_hub import families
from transformer_spec.config import (
    ALiBi,
    Causal,
    FeedForward,
    MixtureOfExperts,
    RMSNorm,
    Rotary,
    SandwichNorm,
)
from transformer_spec.fields import ConfigError

# The family, a setting, its value, and what the error says.
UNSUPPORTED = [
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: True"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights: False"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    (
        "gpt2",
        {"activation_function": "gelu_fast"},
        "activation_function: no activation 'gelu_fast'",
    ),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config"),
    ("gpt2", {"hidden_size": 16}, "n_embd 15, hidden_size 16"),
    ("gpt2", {"n_embd": "15"}, "n_embd: '15' is not usable; it must be a number"),
    ("gpt2", {"architectures": ["GPT2ForSequenceClassification"]}, "architectures: 'GPT2ForSeq"),
    (
        "gpt2",
        {"architectures": "GPT2LMHeadModel"},
        "architectures: 'GPT2LMHeadModel' is not usable",
    ),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("bert", {"is_decoder": True}, "is_decoder"),
    ("bert", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ("bert", {"per_layer_config": {"0": {}}}, "per_layer_config"),
    ("t5", {"feed_forward_proj": "double-relu"}, "feed_forward_proj: 'double-relu'"),
    ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder"),
    ("t5", {"tie_word_embeddings": False}, "scale_head: True"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type: 'dynamic'"),
    ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type: 'longrope'"),
    ("llama", {"rope_parameters": {"mrope_section": [1]}}, "mrope_section is not supported"),
    ("llama", {"rope_parameters": YARN | {"truncate": False}}, "truncate: False"),
    ("llama", {"rope_parameters": {"rope_type": "linear"}}, "factor: missing"),
    ("llama", {"rope_parameters": [1]}, r"rope_parameters: \[1\]"),
    ("llama", {"rope_theta": 7.0}, "rope_theta: given as 7.0 and as 10000.0"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5"),
    ("llama", {"sliding_window": 9}, "sliding_window: 9"),
    ("llama", {"num_key_value_heads": 4}, "num_kv_heads: 4"),
    ("mistral", {"layer_types": ["full_attention"]}, "layer_types"),
    ("mistral", {"layer_types": ["sliding_attention"] * 4}, "for the 3 layers"),
    ("mistral", {"layer_types": 7}, "layer_types: 7 is not usable; it must be a list"),
    ("mistral", {"attention_bias": True}, "attention_bias: True"),
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise: 0.1"),
    ("glm", {"mlp_bias": True}, "mlp_bias: True"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection"),
    ("chatglm", {"position_encoding_2d": False}, "position_encoding_2d: False"),
    ("chatglm", {"pre_seq_len": 128}, "pre_seq_len: 128"),
    ("chatglm", {"quantization_bit": 4}, "quantization_bit: 4"),
    ("chatglm2", {"post_layer_norm": False}, "post_layer_norm: False"),
    ("chatglm2", {"tie_word_embeddings": True}, "tie_word_embeddings: True"),
    ("chatglm2", {"_name_or_path": "THUDM/chatglm2-6b-32k"}, "rope_ratio: 500"),
    ("chatglm2", {"vocab_size": 38}, "padded_vocab_size 37, vocab_size 38"),
]


@pytest.mark.parametrize(("name", "change", "said"), UNSUPPORTED)
def test_a_setting_we_cannot_follow_is_refused_by_name(name, change, said):
    hf = settings_of(name)
    families.find(hf).read_config(hf)
    with pytest.raises(ConfigError, match=said) as error:
        families.FAMILIES[name].read_config(hf | change)
    assert "\n" not in str(error.value)


def test_a_missing_size_is_named():
    hf = {k: v for k, v in settings_of("llama").items() if k != "hidden_size"}
    with pytest.raises(ConfigError, match="hidden_size: missing from the config of this llama"):
        families.find(hf).read_config(hf)


def test_the_family_is_found():
    assert families.find({"model_type": "glm4"}).name == "glm4"
    assert families.find({"architectures": ["BertForMaskedLM"]}).name == "bert"
    assert families.find({"hidden_size": 8}, ["bert.pooler.dense.bias"]).name == "bert"
    assert (
        families.find({"architectures": ["ChatGLMModel"], "ffn_hidden_size": 1}).name == "chatglm2"
    )
    with pytest.raises(
        ConfigError, match="model_type: 'lama' is not supported; did you mean llama"
    ):
        families.find({"model_type": "lama"})
    with pytest.raises(ConfigError, match="model_type and architectures"):
        families.find({}, ["roberta.pooler.dense.bias", "pooler.dense.bias"])
    with pytest.raises(ConfigError, match="inner_hidden_size and position_encoding_2d"):
        families.find({"model_type": "chatglm"})
    assert set(families.FAMILIES) == {family.name for family in families.FAMILIES.values()}


# A case, fields that its family cannot say, and what the error says.
UNWRITABLE = [
    ("gpt2", {"norm": RMSNorm()}, r"norm: RMSNorm\(.*cannot be written as gpt2; .*be LayerNorm"),
    ("gpt2", {"qkv_bias": False}, "qkv_bias: False cannot be written as gpt2; it must be True"),
    ("gpt2", {"ffn_out_dropout": 0.7}, "ffn_out_dropout: 0.7 cannot"),
    ("gpt2", {"head_bias": True}, "has no place for lm_head.bias"),
    ("gpt2", {"attention_scale": 0.5}, "attention_scale: 0.5 cannot"),
    ("bert", {"embed_norm": False}, "embed_norm: False cannot"),
    ("t5", {"position": ALiBi()}, "position: ALiBi.* must be RelativeBias"),
    ("llama", {"position": Rotary(interleaved=True)}, "position: Rotary"),
    ("llama", {"mask": Causal(window=5)}, "mask: Causal"),
    ("llama", {"residual": SandwichNorm()}, "has no place for decoder.layers.0.attn_out_norm"),
    ("llama", {"norm": RMSNorm(offset=1.0)}, "norm: RMSNorm"),
    ("mistral", {"qkv_bias": True}, "qkv_bias: True cannot"),
    ("mixtral", {"ffn": MixtureOfExperts(num_experts=5, top_k=2, normalize=False)}, "ffn: Mixture"),
    ("glm", {"ffn": FeedForward()}, "ffn: FeedForward.* must be GatedFeedForward"),
    ("bloom", {"d_ff": 61}, "d_ff: 61 cannot be written as bloom; it must be 60"),
]


@pytest.mark.parametrize(("name", "changes", "said"), UNWRITABLE)
def test_a_field_the_family_cannot_say_is_refused_by_name(name, changes, said):
    hf = settings_of(name)
    family = families.find(hf)
    config = family.read_config(hf)
    family.write_config(config, hf)
    with pytest.raises(ConfigError, match=said):
        family.write_config(replace(config, **changes), hf)


def test_what_is_left_to_a_default_may_be_written():
    """Heads left at none are those the family writes out."""
    _, _, family, config, _ = imported("gpt2")
    spelled = replace(config, num_kv_heads=3, head_dim=5, attention_scale=5**-0.5)
    assert family.write_config(spelled, {}) == family.write_config(config, {})


def test_extra_settings_are_carried_along_and_never_override():
    _, hf, family, config, _ = imported("gpt2")
    extra = hf | {"n_layer": 99, "num_hidden_layers": 99, "hidden_size": 1, "bos_token_id": 7}
    written = family.write_config(config, extra | {"torch_dtype": "float16"})
    assert written["n_layer"] == 2
    assert "num_hidden_layers" not in written
    assert "hidden_size" not in written
    assert (written["bos_token_id"], written["torch_dtype"]) == (7, "float16")
