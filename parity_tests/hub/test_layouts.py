"""Stored tensors: names of older classes, copies, faults, dtypes, and the order of reading."""

import re

import ml_dtypes
import numpy as np
import pytest

from parity_tests.hub.family_cases import arrays_of, counted, digest, imported, settings_of, to_ours
from transformer_hub import families
from transformer_hub.errors import CheckpointError
from transformer_hub.formats.lazy_tensor import LazyTensor
from transformer_spec.parameters import parameter_shapes


def test_experts_in_memory_and_stored_are_one_model():
    model, _, _, _, layout = imported("mixtral")
    ours = to_ours(layout, arrays_of(model))
    stored = dict(layout.to_theirs(ours))
    w3 = stored["model.layers.1.block_sparse_moe.experts.4.w3.weight"]
    gate_up = model.state_dict()["model.layers.1.mlp.experts.gate_up_proj"].numpy()
    np.testing.assert_array_equal(w3, gate_up[4, 17:])
    assert list(ours) == list(parameter_shapes(imported("mixtral")[3]))


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "chatglm", "chatglm2", "bloom"])
def test_bfloat16_stays_bit_for_bit(name):
    """Every pattern of 16 bits, those of NaN with a payload too."""
    family = families.FAMILIES[name]
    layout = family.layout(family.read_config(settings_of(name)))
    start, theirs = 0, {}
    for tensor, shape in layout.their_shapes().items():
        count = int(np.prod(shape))
        bits = (np.arange(start, start + count) * 7 % 2**16).astype(np.uint16)
        theirs[tensor] = bits.view(ml_dtypes.bfloat16).reshape(shape)
        start += count
    if name == "chatglm":
        theirs["lm_head.weight"] = theirs["transformer.word_embeddings.weight"]
    ours = to_ours(layout, theirs)
    assert {str(a.dtype) for a in ours.values()} == {"bfloat16"}
    back = dict(layout.to_theirs(ours))
    assert {n: digest(a) for n, a in back.items()} == {n: digest(a) for n, a in theirs.items()}


def test_names_of_bare_and_older_gpt2():
    model, _, _, _, layout = imported("gpt2")
    theirs = arrays_of(model)
    theirs.pop("lm_head.weight")
    bare = {n.removeprefix("transformer."): a for n, a in theirs.items()}
    bare |= {"h.0.attn.bias": np.ones((1, 1, 41, 41)), "h.0.attn.masked_bias": np.array(-1e4)}
    ours = to_ours(layout, bare)
    assert {n: digest(a) for n, a in ours.items()} == {
        n: digest(a) for n, a in to_ours(layout, theirs).items()
    }


def test_names_and_heads_of_older_bert():
    model, hf, family, config, layout = imported("bert-pretraining")
    theirs = arrays_of(model)
    ours = to_ours(layout, theirs)
    theirs.pop("cls.predictions.decoder.bias")
    old = {
        re.sub(
            r"(?<=LayerNorm\.)(weight|bias)", lambda m: {"weight": "gamma"}.get(m[0], "beta"), n
        ): a
        for n, a in theirs.items()
    }
    old["bert.embeddings.position_ids"] = np.arange(41)
    assert sum(n.endswith(".gamma") for n in old) == 6
    assert {n: digest(a) for n, a in to_ours(layout, old).items()} == {
        n: digest(a) for n, a in ours.items()
    }
    # bert-base-uncased says BertForMaskedLM and holds every head.
    masked = hf | {"architectures": ["BertForMaskedLM"]}
    assert family.read_config(masked, old) == config
    assert not family.read_config(masked).pooler
    # A BertModel saved with its prefix, and without its pooler.
    bare = {n: a for n, a in theirs.items() if n.startswith("bert.") and "pooler" not in n}
    plain = family.read_config(hf | {"architectures": ["BertModel"]}, bare)
    assert not plain.pooler
    assert set(to_ours(family.layout(plain), bare)) == set(parameter_shapes(plain))
    assert family.write_config(plain, {})["architectures"] == ["BertModel"]


def test_names_of_early_t5():
    model, _, _, _, layout = imported("t5")
    theirs = arrays_of(model)
    cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    ours = to_ours(layout, theirs | {cross: np.zeros((8, 3))})
    # A file may hold a shared tensor under one of its other names alone.
    alone = {n: a for n, a in theirs.items() if n not in ("shared.weight", "lm_head.weight")}
    alone.pop("decoder.embed_tokens.weight")
    assert {n: digest(a) for n, a in to_ours(layout, alone).items()} == {
        n: digest(a) for n, a in ours.items()
    }


def test_each_fault_of_a_checkpoint_is_named():
    model, _, _, _, layout = imported("llama")
    theirs = arrays_of(model)
    theirs.pop("model.layers.10.mlp.up_proj.weight")
    theirs["model.layers.0.self_attn.q_norm.weight"] = np.ones(2)
    theirs["model.norm.weight"] = np.ones(13)
    with pytest.raises(CheckpointError) as error:
        to_ours(layout, theirs)
    for part in (
        "llama: ",
        "missing model.layers.10.mlp.up_proj.weight (17, 12)",
        "unexpected model.layers.0.self_attn.q_norm.weight",
        "model.norm.weight has shape (13,), not (12,)",
    ):
        assert part in str(error.value)

    ours = to_ours(layout, arrays_of(model))
    ours.pop("lm_head.weight")
    ours["decoder.embed.weight"] = np.ones((37, 13))
    with pytest.raises(CheckpointError, match="missing lm_head.weight .*decoder.embed.weight has"):
        layout.to_theirs(ours)


def test_a_copy_must_be_one():
    model, _, _, _, layout = imported("llama-tied")
    theirs = arrays_of(model)
    assert "lm_head.weight" in theirs
    assert "lm_head.weight" not in dict(layout.to_theirs(to_ours(layout, theirs)))
    theirs["lm_head.weight"] = theirs["lm_head.weight"].copy()
    theirs["lm_head.weight"][36, 11] += 1
    expected = "lm_head.weight differs from model.embed_tokens.weight"
    with pytest.raises(CheckpointError, match=expected):
        to_ours(layout, theirs)
    theirs["lm_head.weight"] = theirs["model.embed_tokens.weight"].astype(np.float64)
    with pytest.raises(CheckpointError, match=expected):
        to_ours(layout, theirs)
    theirs["lm_head.weight"] = np.ones((38, 12), np.float32)
    with pytest.raises(CheckpointError, match=r"lm_head.weight has shape \(38, 12\)"):
        to_ours(layout, theirs)

    _, _, _, _, layout = imported("bert-untied")
    theirs = counted(layout.their_shapes())
    with pytest.raises(CheckpointError, match="decoder.bias differs from cls.predictions.bias"):
        to_ours(layout, theirs)


def test_two_names_of_one_tensor_and_two_dtypes_in_one():
    model, _, _, _, layout = imported("gpt2")
    theirs = arrays_of(model)
    with pytest.raises(CheckpointError, match=r"wte.weight and transformer.wte.weight are both"):
        to_ours(layout, {"wte.weight": theirs["transformer.wte.weight"]} | theirs)
    ours = to_ours(layout, theirs)
    ours["decoder.layers.0.attn.k_proj.bias"] = ours["decoder.layers.0.attn.k_proj.bias"].astype(
        "f2"
    )
    with pytest.raises(CheckpointError, match="the same dtype.*k_proj.bias float16"):
        dict(layout.to_theirs(ours))


def test_tensors_are_read_one_after_the_other():
    model, _, _, _, layout = imported("llama")
    arrays, read = arrays_of(model), []

    def stored(name, array):
        return LazyTensor(array.shape, array.dtype, lambda: (read.append(name), array)[1])

    pairs = layout.to_ours({name: stored(name, array) for name, array in arrays.items()})
    assert not read
    next(pairs)
    assert read == ["model.embed_tokens.weight"]
    layers = [name.split(".")[2] for name, _ in pairs if ".layers." in name]
    assert layers == sorted(layers, key=int), "layer after layer, as files are cut"
