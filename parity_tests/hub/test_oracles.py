"""torch's own layers: twins by one author could share a misreading.

The torch twin is held to them here, the Flax twin to the torch twin everywhere else. Whole models
of other people: test_oracles_families.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from parity.judge.errors import difference
from torch_reference.blocks import Block
from transformer_spec.config import FeedForward, LayerNorm, PostNorm, PreNorm
from verification.twins.hostile import hostile_config, normal, ragged_mask, random_mask

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
    found, _ = block_like(theirs, pre_norm, cross=False)(x, allowed)
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
    found, _ = ours(x, causal[None, None], memory, keep[:, None, None])
    assert difference("output", found.detach(), expected.detach()).error <= 1e-12
