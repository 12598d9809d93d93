"""ChatGLM in its authors' own layouts, which transformers cannot open."""

import numpy as np
import pytest
import torch

from parity.judge.errors import FLOAT64_TOLERANCE, difference
from parity_tests.hub.chatglm_cases import (
    chatglm2_config,
    chatglm2_shapes,
    chatglm_config,
    chatglm_shapes,
)
from parity_tests.hub.family_cases import arrays_of, counted, digest, imported, to_ours
from torch_reference.models import build_model
from transformer_hub import families
from transformer_spec.config import (
    DeepNorm,
    LayerNorm,
    PrefixLM,
    TwoChannelRotary,
)
from transformer_spec.parameters import parameter_shapes


@pytest.mark.parametrize(
    ("name", "hf", "shapes"),
    [
        ("chatglm", chatglm_config(), chatglm_shapes()),
        ("chatglm2", chatglm2_config(), chatglm2_shapes()),
    ],
)
def test_the_authors_own_layouts_of_chatglm(name, hf, shapes):
    """transformers has no class for these: names, shapes and settings are those published."""
    family = families.find(hf)
    assert family.name == name
    config = family.read_config(hf)
    layout = family.layout(config)
    theirs = counted(shapes)
    if name == "chatglm":
        theirs["lm_head.weight"] = theirs["transformer.word_embeddings.weight"].copy()
    ours = to_ours(layout, theirs)
    assert {n: a.shape for n, a in ours.items()} == parameter_shapes(config)
    trained = {n: digest(a) for n, a in theirs.items() if not n.endswith("inv_freq")}
    assert {n: digest(a) for n, a in layout.to_theirs(ours)} == trained
    written = family.write_config(config, hf)
    assert {k: written[k] for k in hf} == hf
    assert families.find(written).read_config(written) == config


def test_chatglm_is_deep_norm_whose_norms_are_one_place_later():
    hf = chatglm_config()
    config = families.find(hf).read_config(hf)
    assert config.residual == DeepNorm(alpha=6**0.5)
    assert config.mask == PrefixLM()
    assert config.position == TwoChannelRotary(theta=10000.0)
    assert config.embed_norm
    assert config.tie_embeddings
    theirs = counted(chatglm_shapes())
    theirs.pop("lm_head.weight")
    ours = to_ours(families.FAMILIES["chatglm"].layout(config), theirs)
    for leaf in ("weight", "bias"):
        for mine, name in [
            ("decoder.embed_norm", "layers.0.input_layernorm"),
            ("decoder.layers.0.attn_norm", "layers.0.post_attention_layernorm"),
            ("decoder.layers.0.ffn_norm", "layers.1.input_layernorm"),
            ("decoder.layers.1.ffn_norm", "layers.2.input_layernorm"),
            ("decoder.layers.2.ffn_norm", "final_layernorm"),
        ]:
            np.testing.assert_array_equal(
                ours[f"{mine}.{leaf}"], theirs[f"transformer.{name}.{leaf}"]
            )


def test_an_untied_chatglm_has_a_head_of_its_own():
    hf = chatglm_config(tie_word_embeddings=False)
    family = families.find(hf)
    config = family.read_config(hf)
    theirs = counted(chatglm_shapes())
    ours = to_ours(family.layout(config), theirs)
    np.testing.assert_array_equal(ours["lm_head.weight"], theirs["lm_head.weight"])
    assert family.write_config(config, {})["tie_word_embeddings"] is False


def test_chatglm2_without_groups_has_each_heads_q_k_and_v_side_by_side():
    hf = chatglm2_config(multi_query_attention=False, rope_ratio=1, add_bias_linear=True)
    hf |= {"rmsnorm": False}
    family = families.find(hf)
    config = family.read_config(hf)
    assert config.num_kv_heads is None
    assert config.norm == LayerNorm(eps=1.5625e-07)
    assert (config.out_bias, config.ffn_bias, config.head_bias) == (True, True, True)
    layout = family.layout(config)
    theirs = counted(layout.their_shapes())
    ours = to_ours(layout, theirs)
    fused = theirs["transformer.encoder.layers.1.self_attention.query_key_value.weight"]
    np.testing.assert_array_equal(
        ours["decoder.layers.1.attn.k_proj.weight"],
        fused.reshape(6, 3, 8, 15)[:, 1].reshape(48, 15),
    )
    assert family.write_config(config, hf)["multi_query_attention"] is False


def test_glm_is_one_model_in_both_of_its_layouts():
    """transformers' glm against the layout of glm-4-9b, from which its files were made."""
    model, _, _, config, layout = imported("glm")
    glm = arrays_of(model)
    ours = to_ours(layout, glm)
    family = families.FAMILIES["chatglm2"]
    assert family.read_config(family.write_config(config, {})) == config
    chatglm2 = dict(family.layout(config).to_theirs(ours))
    for i in range(3):
        old, new = f"transformer.encoder.layers.{i}.", f"model.layers.{i}."
        for leaf in ("weight", "bias"):
            parts = [glm[f"{new}self_attn.{name}_proj.{leaf}"] for name in "qkv"]
            fused = chatglm2[f"{old}self_attention.query_key_value.{leaf}"]
            np.testing.assert_array_equal(fused, np.concatenate(parts))
        for theirs, name in [
            ("self_attention.dense", "self_attn.o_proj"),
            ("mlp.dense_h_to_4h", "mlp.gate_up_proj"),
            ("mlp.dense_4h_to_h", "mlp.down_proj"),
        ]:
            np.testing.assert_array_equal(
                chatglm2[f"{old}{theirs}.weight"], glm[f"{new}{name}.weight"]
            )


def published_chatglm(weights: dict[str, torch.Tensor], tokens, prefix: int) -> torch.Tensor:
    """Logits [T, V] of ChatGLM-6B, step by step as its authors' code computes them.

    Source: THUDM/chatglm-6b, modeling_chatglm.py: GLMBlock, SelfAttention, get_position_ids.
    """
    layers, heads, time = 3, 3, len(tokens)

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, x):
        return torch.nn.functional.layer_norm(
            x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-4
        )

    def rotated(x, positions):  # [T, N, H / 2]
        half = x.shape[-1] // 2
        inverse = 10000.0 ** -(torch.arange(half).double() / half)
        angles = torch.cat([positions[:, None] * inverse] * 2, dim=-1)[:, None]
        return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()

    place = torch.arange(time).clamp(max=prefix - 1)
    within = (torch.arange(time) - prefix + 1).clamp(min=0)
    hidden_from = torch.ones(time, time).triu(1).bool()
    hidden_from[:, :prefix] = False

    x = weights["transformer.word_embeddings.weight"][tokens]
    for i in range(layers):
        layer = f"transformer.layers.{i}."
        h = norm(layer + "input_layernorm", x)
        fused = linear(layer + "attention.query_key_value", h).view(time, heads, -1)
        q, k, v = fused.chunk(3, dim=-1)
        q, k = (
            torch.cat(
                [
                    rotated(a, places)
                    for a, places in zip(z.chunk(2, -1), (place, within), strict=True)
                ],
                -1,
            )
            for z in (q, k)
        )
        scores = torch.einsum("tnh,snh->nts", q, k) / q.shape[-1] ** 0.5
        shares = scores.masked_fill(hidden_from, -torch.inf).softmax(-1)
        mixed = torch.einsum("nts,snh->tnh", shares, v).reshape(time, -1)
        x = (2 * layers) ** 0.5 * h + linear(layer + "attention.dense", mixed)
        m = norm(layer + "post_attention_layernorm", x)
        inner = linear(layer + "mlp.dense_h_to_4h", m)
        inner = torch.nn.functional.gelu(inner, approximate="tanh")
        x = (2 * layers) ** 0.5 * m + linear(layer + "mlp.dense_4h_to_h", inner)
    return norm("transformer.final_layernorm", x) @ weights["lm_head.weight"].T


def test_chatglm_computes_what_its_authors_code_does():
    hf = chatglm_config()
    family = families.find(hf)
    config = family.read_config(hf)
    generator = torch.Generator().manual_seed(0)
    theirs = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * shape[-1] ** -0.5
        for name, shape in chatglm_shapes().items()
        if not name.endswith("inv_freq")
    }
    theirs["lm_head.weight"] = theirs["transformer.word_embeddings.weight"]
    ours = to_ours(family.layout(config), {n: t.numpy() for n, t in theirs.items()})
    twin = build_model(config).double().eval()
    twin.load_state_dict({n: torch.from_numpy(a) for n, a in ours.items()})
    tokens, prefix = torch.tensor([5, 17, 3, 29, 11, 8, 36, 2, 23]), 4
    prefix_mask = (torch.arange(len(tokens)) < prefix)[None]
    found = twin(tokens[None], prefix_mask=prefix_mask)[0].detach()
    expected = published_chatglm(theirs, tokens, prefix)
    assert difference("output", found, expected).error <= FLOAT64_TOLERANCE
