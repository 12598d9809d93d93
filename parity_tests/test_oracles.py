"""Somebody else's implementations: twins by one author could share a misreading.

Each oracle is in torch. The torch twin is held to it here, the Flax twin to the torch twin
everywhere else.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from parity.errors import difference
from parity.hostile import hostile_config, normal, ragged_mask, random_mask, tokens
from torch_reference.blocks import Block
from torch_reference.models import build_model
from transformer_spec.config import FeedForward, LayerNorm, PostNorm, PreNorm
from transformer_spec.presets import PRESETS

B, T, S, D, F, N = 2, 5, 7, 12, 17, 3


@torch.no_grad()
def randomize(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        fan_in = parameter.shape[-1] if parameter.ndim > 1 else 4
        parameter.add_(torch.randn_like(parameter) * fan_in**-0.5)
    return module.double().eval()


@torch.no_grad()
def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
        projection = getattr(ours, name)
        projection.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
        projection.bias.copy_(theirs.in_proj_bias.chunk(3)[i])
    ours.o_proj.load_state_dict(theirs.out_proj.state_dict())


def block_like(theirs: nn.Module, pre_norm: bool, cross: bool) -> Block:
    config = replace(
        hostile_config(d_model=D, d_ff=F, num_heads=N, num_kv_heads=None, head_dim=None),
        norm=LayerNorm(eps=1e-5),
        ffn=FeedForward(activation="relu"),
        residual=PreNorm() if pre_norm else PostNorm(),
    )
    ours = Block(config, cross).double().eval()
    norms = ["attn_norm", "cross_norm", "ffn_norm"] if cross else ["attn_norm", "ffn_norm"]
    for i, name in enumerate(norms, start=1):
        getattr(ours, name).load_state_dict(getattr(theirs, f"norm{i}").state_dict())
    copy_attention(ours.attn, theirs.self_attn)
    if cross:
        copy_attention(ours.cross_attn, theirs.multihead_attn)
    ours.ffn.up_proj.load_state_dict(theirs.linear1.state_dict())
    ours.ffn.down_proj.load_state_dict(theirs.linear2.state_dict())
    return ours


@pytest.mark.parametrize("pre_norm", [False, True], ids=["post-norm", "pre-norm"])
def test_torchs_encoder_layer(pre_norm):
    theirs = randomize(
        nn.TransformerEncoderLayer(D, N, F, dropout=0.0, batch_first=True, norm_first=pre_norm)
    )
    x = torch.tensor(normal(B, T, D))
    allowed = torch.tensor(random_mask(1, 1, T, T)).logical_or(torch.eye(T, dtype=torch.bool))
    expected = theirs(x, src_mask=~allowed[0, 0])
    found = block_like(theirs, pre_norm, cross=False)(x, allowed)
    assert difference("output", found.detach(), expected.detach()).error <= 1e-12


@pytest.mark.parametrize("pre_norm", [False, True], ids=["post-norm", "pre-norm"])
def test_torchs_decoder_layer(pre_norm):
    theirs = randomize(
        nn.TransformerDecoderLayer(D, N, F, dropout=0.0, batch_first=True, norm_first=pre_norm)
    )
    x, memory = torch.tensor(normal(B, T, D)), torch.tensor(normal(B, S, D))
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    keep = torch.tensor(ragged_mask(B, S))
    expected = theirs(x, memory, tgt_mask=~causal, memory_key_padding_mask=~keep)
    ours = block_like(theirs, pre_norm, cross=True)
    found = ours(x, causal[None, None], memory, keep[:, None, None])
    assert difference("output", found.detach(), expected.detach()).error <= 1e-12


def test_gpt2_of_transformers():
    """Tiny and random: logits of `GPT2LMHeadModel`, whose matrices are [in, out] and fused."""
    transformers = pytest.importorskip("transformers", reason="the oracle is not installed")
    theirs = randomize(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=23,
                n_positions=13,
                n_embd=D,
                n_layer=3,
                n_head=N,
                attn_implementation="eager",
            )
        )
    )
    preset = PRESETS["gpt2"].model
    sizes = {"vocab_size": 23, "max_seq_len": 13, "d_model": D, "d_ff": 4 * D}
    ours = build_model(replace(preset, **sizes, num_layers=3, num_heads=N)).double().eval()
    ours.load_state_dict(gpt2_names(theirs.state_dict()))
    ids = torch.tensor(tokens(23, B, 11))
    found, expected = ours(ids), theirs(ids).logits
    assert difference("logits", found.detach(), expected.detach()).error <= 1e-12


def gpt2_names(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The released checkpoint's names and layouts as ours."""
    renamed = {
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "attn.c_proj": "attn.o_proj",
        "mlp.c_fc": "ffn.up_proj",
        "mlp.c_proj": "ffn.down_proj",
    }
    found = {
        "decoder.embed.weight": theirs["transformer.wte.weight"],
        "decoder.pos_embed.weight": theirs["transformer.wpe.weight"],
        "decoder.final_norm.weight": theirs["transformer.ln_f.weight"],
        "decoder.final_norm.bias": theirs["transformer.ln_f.bias"],
    }
    for name, value in theirs.items():
        if not name.startswith("transformer.h."):
            continue
        _, _, layer, *rest = name.split(".")
        module, leaf = ".".join(rest[:-1]), rest[-1]
        turned = value.T if value.ndim == 2 else value
        if module == "attn.c_attn":
            for part, projection in zip(turned.chunk(3), "qkv", strict=True):
                found[f"decoder.layers.{layer}.attn.{projection}_proj.{leaf}"] = part
        else:
            found[f"decoder.layers.{layer}.{renamed[module]}.{leaf}"] = turned
    return found
