"""Configs: round trips, one-line errors, and no field that nobody varies."""

import dataclasses
import json
import typing
from dataclasses import replace

import pytest

from transformer_spec import fields
from transformer_spec.config import (
    Causal,
    DeepNorm,
    Llama3Scaling,
    MixtureOfExperts,
    ModelConfig,
    PrefixLM,
    RelativeBias,
    RMSNorm,
    Rotary,
    TwoChannelRotary,
    YarnScaling,
)
from transformer_spec.fields import ConfigError
from transformer_spec.presets import PRESETS
from transformer_spec.train_config import TrainConfig
from verification.twins.hostile import hostile_config

SORT = PRESETS["sort"]
MIXTURE = MixtureOfExperts(num_experts=4, top_k=2)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name):
    for config in (PRESETS[name].model, PRESETS[name].train):
        text = json.dumps(config.to_dict())
        assert type(config).from_dict(json.loads(text)) == config


def test_every_model_field_takes_two_values_across_the_presets():
    """A field that never varies is a constant in disguise."""
    models = [preset.model for preset in PRESETS.values()]
    for field in dataclasses.fields(ModelConfig):
        assert len({str(getattr(model, field.name)) for model in models}) >= 2, field.name


@pytest.mark.parametrize("config", [SORT.model, SORT.train], ids=["model", "train"])
def test_every_field_has_help(config):
    assert all(len(f.metadata["help"]) > 10 for f in dataclasses.fields(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 130}, "d_model: 130 is not usable; it must be divisible by num_heads 4"),
        ({"d_model": -128}, "d_model: -128 .* at least 1"),
        ({"d_ff": 0}, "d_ff: 0 .* at least 1"),
        ({"vocab_size": 2.5}, "vocab_size: 2.5 .* int"),
        ({"vocab_size": True}, "vocab_size: True .* int"),
        ({"num_heads": 0}, "num_heads: 0 .* at least 1"),
        ({"num_kv_heads": 3}, "num_kv_heads: 3 .* a divisor of num_heads 4"),
        ({"num_kv_heads": 0}, "num_kv_heads: 0 .* a divisor"),
        ({"head_dim": 0}, "head_dim: 0 .* at least 1"),
        ({"num_decoder_layers": None}, "num_decoder_layers: None .* at least 1"),
        ({"arch": "decodr"}, "arch: no 'decodr'; did you mean decoder"),
        ({"embed_dropout": 1.0}, r"embed_dropout: 1.0 .* in \[0, 1\)"),
        ({"attn_dropout": -0.1}, r"attn_dropout: -0.1 .* in \[0, 1\)"),
        ({"attn_dropout": float("nan")}, r"attn_dropout: nan .* in \[0, 1\)"),
        ({"attention_scale": 0.0}, "attention_scale: 0.0 .* above 0"),
        ({"attention_scale": float("inf")}, "attention_scale: inf .* finite"),
        ({"scale_head": True}, "scale_head: True .* false for a head that is not tied"),
        ({"position": Rotary(fraction=0.1)}, "position: 0.1 .* even number of a head's 32"),
        ({"position": TwoChannelRotary()}, r"mask: Causal\(window=None\) .* PrefixLM under"),
        ({"mask": PrefixLM()}, r"mask: PrefixLM\(\) .* Causal in an encoder_decoder"),
        ({"ffn": MIXTURE}, "ffn_bias: True .* false under MixtureOfExperts"),
        ({"num_token_types": 2}, "num_token_types: 2 .* unset for a encoder_decoder"),
        ({"pooler": True}, "pooler: True .* unset for a encoder_decoder"),
        ({"norm": "LayerNorm"}, "norm: 'LayerNorm' .* LayerNorm or RMSNorm or StdLayerNorm"),
        ({"norm": None}, "norm: None"),
    ],
    ids=str,
)
def test_a_wrong_model_field_is_named_with_what_it_may_be(changes, message):
    with pytest.raises(ConfigError, match=message) as raised:
        replace(SORT.model, **changes)
    assert "\n" not in str(raised.value)


def test_a_lone_stack_has_no_use_for_the_fields_of_two():
    with pytest.raises(ConfigError, match="num_decoder_layers: 2 .* none for a lone decoder"):
        hostile_config(num_decoder_layers=2)
    with pytest.raises(ConfigError, match="share_embeddings: True .* false for a lone decoder"):
        hostile_config(share_embeddings=True)
    for name in ("tie_embeddings", "head_bias"):
        with pytest.raises(ConfigError, match=f"{name}: True .* no output head"):
            hostile_config(arch="encoder", **{name: True})
    with pytest.raises(ConfigError, match="mask: Causal.* for an encoder, unused"):
        hostile_config(arch="encoder", mask=Causal(window=3))
    with pytest.raises(ConfigError, match="next_sentence: True .* false without a pooler"):
        hostile_config(arch="encoder", next_sentence=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Causal(window=0), "window: 0 .* at least 1"),
        (lambda: Rotary(theta=1.0), "theta: 1.0 .* above 1"),
        (lambda: Rotary(fraction=0.0), r"fraction: 0.0 .* in \(0, 1\]"),
        (lambda: Rotary(scaling="linear"), "scaling: 'linear' .* NoScaling or LinearScaling"),
        (lambda: Llama3Scaling(high_freq_factor=1.0), "high_freq_factor: 1.0 .* above low_freq"),
        (lambda: YarnScaling(factor=0.5, original_max_seq_len=8), "factor: 0.5 .* at least 1"),
        (lambda: RelativeBias(num_buckets=6), "num_buckets: 6 .* a multiple of 4"),
        (lambda: RelativeBias(max_distance=16), "max_distance: 16 .* above half"),
        (lambda: RMSNorm(offset=0.5), "offset: 0.5 .* 0 or 1"),
        (lambda: DeepNorm(alpha=0.0), "alpha: 0.0 .* above 0"),
        (lambda: MixtureOfExperts(num_experts=1, top_k=1), "num_experts: 1 .* at least 2"),
        (lambda: MixtureOfExperts(num_experts=4, top_k=5), r"top_k: 5 .* in \[1, num_experts 4"),
    ],
)
def test_a_wrong_field_of_a_variant_is_named_with_what_it_may_be(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size: 0 .* at least 1"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0 .* above 0"),
        ({"learning_rate": float("nan")}, "learning_rate: nan .* finite"),
        ({"beta2": 1.0}, r"beta2: 1.0 .* in \[0, 1\)"),
        ({"label_smoothing": -0.1}, r"label_smoothing: -0.1 .* in \[0, 1\)"),
        ({"weight_decay": -1.0}, "weight_decay: -1.0 .* 0 or above"),
        ({"clip_norm": 0.0}, "clip_norm: 0.0 .* above 0"),
        ({"steps": 3}, "steps: 3, epochs: 50; give exactly one"),
        ({"epochs": None}, "steps: None, epochs: None; give exactly one"),
        ({"seed": -1}, "seed: -1"),
        ({"task": "sorting"}, "task: no 'sorting'; did you mean sort"),
        ({"log_every": 0}, "log_every: 0 .* at least 1"),
        ({"dtype": "float16"}, "dtype: no 'float16'; did you mean bfloat16"),
    ],
    ids=str,
)
def test_a_wrong_training_field_is_named_with_what_it_may_be(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(SORT.train, **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("d_ff"), "d_ff: missing from ModelConfig"),
        (lambda d: d.update(dff=3), "dff: no such field of ModelConfig; did you mean d_ff"),
        (lambda d: d.update(norm={"type": "LayrNorm"}), "norm: no variant 'LayrNorm'; did you"),
        (lambda d: d.update(norm={"eps": 1.0}), "norm: no variant None"),
        (lambda d: d.update(norm={"type": "LayerNorm", "epsilon": 1}), "epsilon: no such field"),
        (lambda d: d.update(norm={"type": "LayerNorm", "eps": "x"}), "eps: 'x' .* float"),
        (lambda d: d.update(d_model="128"), "d_model: '128' .* int"),
        (lambda d: d.update(d_model=[128]), "d_model: "),
    ],
)
def test_a_wrong_dictionary_is_refused_by_field(change, message):
    data = SORT.model.to_dict()
    change(data)
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_dict(data)
    with pytest.raises(ConfigError, match="expected an object"):
        ModelConfig.from_dict([1])


@pytest.mark.parametrize("text", [
    "RMSNorm(eps=1e-6)", "RMSNorm", "LayerNorm()", "StdLayerNorm(eps=1)"])  # fmt: skip
def test_a_slot_reads_the_text_it_prints(text):
    annotation = typing.get_type_hints(ModelConfig)["norm"]
    value = fields.parse_value("norm", text, annotation)
    assert fields.parse_value("norm", str(value), annotation) == value


def test_a_slot_within_a_slot_is_read_and_printed_too():
    annotation = typing.get_type_hints(ModelConfig)["position"]
    text = "Rotary(theta=5e5, interleaved=True, scaling=Llama3Scaling(factor=4))"
    value = fields.parse_value("position", text, annotation)
    assert value == Rotary(theta=5e5, interleaved=True, scaling=Llama3Scaling(factor=4.0))
    assert fields.parse_value("position", str(value), annotation) == value
    assert fields.variant_from_dict("position", value.to_dict(), annotation) == value
    with pytest.raises(ConfigError, match="scaling: no variant 'Lama3Scaling'; did you mean"):
        fields.parse_value("position", "Rotary(scaling=Lama3Scaling)", annotation)


@pytest.mark.parametrize("text", [
    "RMSNorm(1e-6)", "__import__('os').system('true')", "", "(", "RMSNorm(eps=open('x'))", "3",
    "WarmupConstant"])  # fmt: skip
def test_other_text_is_refused_and_never_evaluated(text):
    for cls, name in ((ModelConfig, "norm"), (TrainConfig, "schedule")):
        with pytest.raises(ConfigError, match=f"^{name}: "):
            fields.parse_value(name, text, typing.get_type_hints(cls)[name])
