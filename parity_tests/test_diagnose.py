"""Faults of our own making: located though others come first, and constants solved, not guessed."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

import torch_reference.attention as torch_attention
import torch_reference.norms as torch_norms
import torch_reference.stacks as torch_stacks
from parity.examine import Reference, examine
from parity.plants import CASES
from parity.plants.plant import swapped
from parity.twin_pair import TwinPair
from torch_reference.attention import dot_product_attention
from torch_reference.blocks import Block
from torch_reference.embeddings import Embed
from torch_reference.masks import causal_mask

REFERENCES: dict[str, Reference] = {}


def examined(case: str, *plants, flip: bool = False):
    """What is found of the torch twin under these plants; `flip` makes it the reference."""
    pair = TwinPair(CASES[case].config, CASES[case].inputs)
    params = pair.params()
    if case not in REFERENCES:
        REFERENCES[case] = Reference(pair.flax(params, "float64"))
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        twin = pair.torch(params, "float64")
        if flip:
            return examine(Reference(twin), REFERENCES[case].side, pair.sizes())
        return examine(REFERENCES[case], twin, pair.sizes())


def texts(found, module: str) -> str:
    return "; ".join(str(cause) for cause in found.causes[module])


def scaled_by(factor: float):
    def attend(*args, scale, **rest):
        return dot_product_attention(*args, scale=scale * factor, **rest)

    return swapped(torch_attention, "dot_product_attention", attend)


def layer_norm(eps: float, correction: int, outside: bool = False):
    def forward(self, x):
        centered = x - x.mean(-1, keepdim=True)
        variance = centered.square().sum(-1, keepdim=True) / (x.shape[-1] - correction)
        den = variance.sqrt() + eps if outside else (variance + eps).sqrt()
        return centered / den * self.weight + self.bias

    return swapped(torch_norms.LayerNorm, "forward", forward)


@pytest.mark.parametrize("case", ["decoder", "encoder_decoder", "modern", "post"])
def test_a_correct_pair_is_not_accused(float64, case):
    found = examined(case)
    assert found.equal
    assert not found.causes


@pytest.mark.parametrize("eps", [3.7e-4, 2.9e-2, 1e-6])
def test_an_epsilon_is_solved_for(float64, eps):
    found = examined("decoder", layer_norm(eps, 0))
    assert found.first.module == "decoder.layers.0.attn_norm"
    norms = {f.module for f in found.local}
    assert norms == {
        f"decoder.{name}"
        for name in ("layers.0.attn_norm", "layers.0.ffn_norm", "layers.1.attn_norm",
                     "layers.1.ffn_norm", "final_norm")
    }  # fmt: skip
    assert f"epsilon {eps:.3g} where the reference epsilon 0.001" in texts(
        found, "decoder.final_norm"
    )


def test_two_mistakes_in_one_norm_are_both_named(float64):
    found = examined("decoder", layer_norm(0.02, 1))
    said = texts(found, "decoder.layers.0.attn_norm")
    assert "epsilon 0.02" in said
    assert "divides by n - 1" in said


@pytest.mark.parametrize("factor", [0.731, 2.5, 1.001])
def test_a_scale_is_solved_for(float64, factor):
    found = examined("decoder", scaled_by(factor))
    right = 5**-0.5
    assert f"score scale {factor * right:.6g}" in texts(found, "decoder.layers.0.attn")
    assert {f.module for f in found.local} == {"decoder.layers.0.attn", "decoder.layers.1.attn"}


@pytest.mark.parametrize("window", [2, 4])
def test_a_window_is_solved_for(float64, window):
    def banded(length, device=None):
        return causal_mask(length, device) & causal_mask(length, device).mT.triu(0).mT.triu(
            1 - window
        )

    found = examined("modern", swapped(torch_stacks, "causal_mask", banded))
    assert [f.module for f in found.local] == ["decoder"]
    assert f"a window of {window} keys" in texts(found, "decoder")


def test_an_offset_of_positions_is_solved_for(float64):
    def late(self, tokens, token_mask, positions, embed):
        table = self.embed if embed is None else embed
        return table(tokens) + self.pos_embed(torch.arange(tokens.shape[1]) + 2)

    found = examined("modern", swapped(torch_stacks.Stack, "inputs", late))
    assert [f.module for f in found.local] == ["decoder"]
    assert "ids are off by +2" in texts(found, "decoder")


def test_an_embedding_scale_is_solved_for(float64):
    def forward(self, tokens):
        return 0.37 * self.weight[tokens]

    found = examined("modern", swapped(Embed, "forward", forward))
    assert "rows are multiplied by 0.37" in texts(found, "decoder.embed")


def test_an_early_fault_does_not_hide_a_late_one(float64):
    """Free-running names the first; by themselves both are found, and nothing else."""
    found = examined("decoder", scaled_by(2.0), layer_norm(0.1, 0))
    assert found.first.module == "decoder.layers.0.attn_norm"
    leaves = {f.module.rpartition(".")[2] for f in found.local}
    assert leaves == {"attn_norm", "ffn_norm", "final_norm", "attn"}


def test_either_side_can_be_the_reference(float64):
    found = examined("decoder", scaled_by(2.0), flip=True)
    assert found.first.module == "decoder.layers.0.attn"
    said = texts(found, "decoder.layers.0.attn")
    assert "score scale 0.447214 = head_dim**-0.5, where the reference has 0.894427" in said


def test_a_missing_residual_is_written_out(float64):
    whole = Block.forward

    def forward(self, x, *rest):
        return whole(self, x, *rest) - x

    found = examined("modern", swapped(Block, "forward", forward))
    assert [f.module for f in found.local] == ["decoder.layers.0", "decoder.layers.1"]
    said = texts(found, "decoder.layers.0")
    assert "is attn[0] + ffn, where the reference is x + attn[0] + ffn" in said


def test_a_gradient_that_is_stopped_is_found_where_values_agree(float64):
    def attend(q, k, v, mask=None, **rest):
        return dot_product_attention(q, k.detach(), v, mask, **rest)

    found = examined("modern", swapped(torch_attention, "dot_product_attention", attend))
    assert {f.stage for f in found.local} == {"backward"}
    assert [f.module for f in found.local] == ["decoder.layers.0.attn", "decoder.layers.1.attn"]


def test_what_nothing_explains_is_not_explained(float64):
    def forward(self, x):
        torch.manual_seed(3)
        return x + torch.randn_like(x)

    found = examined("modern", swapped(torch_norms.RMSNorm, "forward", forward))
    assert found.local
    assert found.causes["decoder.layers.0.attn_norm"] == []


def test_a_crash_is_located(float64):
    def broken(scores, mask):
        return scores + scores[..., :3]

    found = examined("decoder", swapped(torch_attention, "masked_softmax", broken))
    assert found.first.module == "decoder.layers.0.attn"
    assert "RuntimeError" in found.first.detail


def test_the_growth_of_the_error_is_reported(float64):
    found = examined("decoder", scaled_by(1.5))
    before = [e for name, e in found.growth if name == "output of decoder.layers.0.attn_norm"]
    after = [e for name, e in found.growth if name == "output of the model"]
    assert before[0] < 1e-12 < after[0]
    assert np.isfinite(after[0])
