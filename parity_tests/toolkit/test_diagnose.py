"""Faults of our own making: located though others come first, and constants solved, not guessed."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

import torch_reference.attention as torch_attention
import torch_reference.gradients as torch_gradients
import torch_reference.losses as torch_losses
import torch_reference.masks as torch_masks
import torch_reference.models as torch_models
import torch_reference.norms as torch_norms
import torch_reference.stacks as torch_stacks
from parity.explain.causes.norms import identify_norm
from parity.explain.causes.parameters import different_parameter
from parity.explain.examine import Reference, examine
from torch_reference.attention import dot_product_attention
from torch_reference.blocks import Block
from torch_reference.embeddings import Embed
from torch_reference.heads import head_logits
from torch_reference.losses import balance_loss, router_loss
from torch_reference.masks import causal_mask
from verification.bugs.cases import CASES
from verification.bugs.seeded_bug import swapped
from verification.stages import checkpoint, decoder_inputs, router
from verification.twins.twin_pair import TwinPair

REFERENCES: dict[str, Reference] = {}


def examined(case: str, *bugs, flip: bool = False):
    """What is found of the torch twin with these bugs seeded; `flip` makes it the reference."""
    pair = TwinPair(CASES[case].config, CASES[case].inputs)
    params = pair.params()
    if case not in REFERENCES:
        REFERENCES[case] = Reference(pair.flax(params, "float64"))
    with ExitStack() as stack:
        for bug in bugs:
            stack.enter_context(bug)
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
    assert found.first_fault.module == "decoder.layers.0.attn_norm"
    norms = {f.module for f in found.local_faults}
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
    assert {f.module for f in found.local_faults} == {
        "decoder.layers.0.attn",
        "decoder.layers.1.attn",
    }


@pytest.mark.parametrize("window", [2, 4])
def test_a_window_is_solved_for(float64, window):
    def banded(queries, keys, _):
        return causal_mask(queries, keys, window)

    found = examined("modern", swapped(torch_masks, "causal_mask", banded))
    assert [f.module for f in found.local_faults] == ["decoder"]
    assert f"a window of {window} keys" in texts(found, "decoder")


def test_an_offset_of_positions_is_solved_for(float64):
    def late(self, tokens, positions, token_types, embed, right=torch_stacks.Stack.inputs):
        return right(self, tokens, positions + 2, token_types, embed)

    found = examined("modern", swapped(torch_stacks.Stack, "inputs", late))
    assert [f.module for f in found.local_faults] == ["decoder"]
    assert "ids are off by +2" in texts(found, "decoder")


def test_an_embedding_scale_is_solved_for(float64):
    def forward(self, tokens):
        return 0.37 * self.weight[tokens]

    found = examined("modern", swapped(Embed, "forward", forward))
    assert "rows are multiplied by 0.37" in texts(found, "decoder.embed")


def test_an_early_fault_does_not_hide_a_late_one(float64):
    """Free-running names the first; by themselves both are found, and nothing else."""
    found = examined("decoder", scaled_by(2.0), layer_norm(0.1, 0))
    assert found.first_fault.module == "decoder.layers.0.attn_norm"
    leaves = {f.module.rpartition(".")[2] for f in found.local_faults}
    assert leaves == {"attn_norm", "ffn_norm", "final_norm", "attn"}


def test_either_side_can_be_the_reference(float64):
    found = examined("decoder", scaled_by(2.0), flip=True)
    assert found.first_fault.module == "decoder.layers.0.attn"
    said = texts(found, "decoder.layers.0.attn")
    assert "score scale 0.447214 = head_dim**-0.5, where the reference has 0.894427" in said


def test_a_missing_residual_is_written_out(float64):
    whole = Block.forward

    def forward(self, x, *rest):
        out, cache = whole(self, x, *rest)
        return out - x, cache

    found = examined("modern", swapped(Block, "forward", forward))
    assert [f.module for f in found.local_faults] == ["decoder.layers.0", "decoder.layers.1"]
    said = texts(found, "decoder.layers.0")
    assert "is attn[0] + ffn, where the reference is x + attn[0] + ffn" in said


def test_a_gradient_that_is_stopped_is_found_where_values_agree(float64):
    def attend(q, k, v, mask=None, **rest):
        return dot_product_attention(q, k.detach(), v, mask, **rest)

    found = examined("modern", swapped(torch_attention, "dot_product_attention", attend))
    assert {f.stage for f in found.local_faults} == {"backward"}
    assert [f.module for f in found.local_faults] == [
        "decoder.layers.0.attn",
        "decoder.layers.1.attn",
    ]


def test_what_nothing_explains_is_not_explained(float64):
    def forward(self, x):
        torch.manual_seed(3)
        return x + torch.randn_like(x)

    found = examined("modern", swapped(torch_norms.RMSNorm, "forward", forward))
    assert found.local_faults
    assert found.causes["decoder.layers.0.attn_norm"] == []


def test_a_crash_is_located(float64):
    def broken(scores, mask):
        return scores + scores[..., :3]

    found = examined("decoder", swapped(torch_attention, "masked_softmax", broken))
    assert found.first_fault.module == "decoder.layers.0.attn"
    assert "RuntimeError" in found.first_fault.detail


def test_the_growth_of_the_error_is_reported(float64):
    found = examined("decoder", scaled_by(1.5))
    before = [e for name, e in found.error_growth if name == "output of decoder.layers.0.attn_norm"]
    after = [e for name, e in found.error_growth if name == "output of the model"]
    assert before[0] < 1e-12 < after[0]
    assert np.isfinite(after[0])


def test_a_head_scale_is_solved_for(float64):
    def scaled(config, lm_head, embed, hidden):
        return head_logits(config, lm_head, embed, 0.37 * hidden)

    found = examined("modern", swapped(torch_models, "head_logits", scaled))
    assert [f.module for f in found.local_faults if f.stage == "forward"] == [""]
    assert "the tied head's input is scaled by 0.37, where the reference has 1" in texts(found, "")


@pytest.mark.parametrize("extra", [1.0, 2.0, -1.0, 0.37])
@pytest.mark.parametrize("centered", [False, True])
def test_what_is_added_to_a_norms_weight_is_solved_for(extra, centered):
    rng = np.random.default_rng(0)
    x, weight, bias = rng.normal(0.3, 1, (2, 5, 13)), rng.normal(1, 0.5, 13), rng.normal(size=13)
    kept = x - centered * x.mean(-1, keepdims=True)
    y = kept / np.sqrt(np.square(kept).mean(-1, keepdims=True) + 0.01) * (weight + extra) + bias
    form = next(identify_norm(x, y, weight, bias))
    assert form.extra == pytest.approx(extra, abs=1e-12)
    assert (form.centered, form.root, form.gain) == (centered, True, 1.0)
    assert form.eps == pytest.approx(0.01, rel=1e-9)


def test_what_is_not_added_to_a_norms_weight_is_not_made_up():
    """Alike weights leave it open: another divisor says the same; other functions have none."""
    x = np.random.default_rng(0).normal(size=(2, 5, 13))
    y = 3 * x / np.sqrt(np.square(x).mean(-1, keepdims=True))
    assert {form.extra for form in identify_norm(x, y, np.ones(13), 0.0)} == {0.0}
    assert list(identify_norm(x, np.tanh(x), np.linspace(1, 2, 13), 0.0)) == []


def attention_weights(rows: int = 6, columns: int = 4) -> dict[str, np.ndarray]:
    """6 rows of q and 3 of k and of v: groups of 2, 1 and 1."""
    counts = {"q": rows, "k": rows // 2, "v": rows // 2}
    rng = np.random.default_rng(0)
    return {f"a.{n}_proj.weight": rng.normal(size=(count, columns)) for n, count in counts.items()}


def test_a_fused_matrix_cut_otherwise_is_solved_for():
    """By hand: three groups of q q k v, cut as the first six rows, then three, then three."""
    ours = attention_weights()
    q, k, v = ours.values()
    rows = [q[0], q[1], k[0], v[0], q[2], q[3], k[1], v[1], q[4], q[5], k[2], v[2]]
    theirs = dict(zip(ours, np.split(np.array(rows), [6, 9]), strict=True))
    for name in ours:
        cause = different_parameter(name, ours[name], theirs[name], ours, theirs)
        assert cause.text == (
            "q_proj, k_proj and v_proj: fused in 3 groups of rows, cut as if in 1"
        )
    swapped_sides = different_parameter("a.q_proj.weight", theirs["a.q_proj.weight"], q, theirs,
                                        ours)  # fmt: skip
    assert swapped_sides.text.endswith("fused in 1 group of rows, cut as if in 3")


def test_numbers_of_no_cut_are_not_explained_by_one():
    ours = attention_weights()
    theirs = {n: np.random.default_rng(1).permutation(w.ravel()).reshape(w.shape) + (n[2] == "q")
              for n, w in ours.items()}  # fmt: skip
    cause = different_parameter("a.q_proj.weight", *(s["a.q_proj.weight"] for s in (ours, theirs)),
                                ours, theirs)  # fmt: skip
    assert cause.text == "other numbers: never copied, or of another checkpoint"


@pytest.mark.parametrize(("change", "text"), [
    (lambda w: w + 1, "the reference's with 1 added to every value"),
    (lambda w: w - 0.25, "the reference's with -0.25 added to every value"),
    (lambda w: 3 * w, "the reference's times 3"),
    (lambda w: w.astype(np.float16).astype(float), "rounded to a narrower type"),
])  # fmt: skip
def test_a_parameter_moved_by_one_number_is_explained(change, text):
    ours = {"norm.weight": np.random.default_rng(0).normal(size=7)}
    theirs = {"norm.weight": change(ours["norm.weight"])}
    cause = different_parameter("norm.weight", *(side["norm.weight"] for side in (ours, theirs)),
                                ours, theirs)  # fmt: skip
    assert cause.text == text


def routed(wrong) -> list[str]:
    """What is said of the twin's balance loss where `wrong` takes its place."""
    with swapped(torch_gradients, "router_loss", wrong):
        return [cause.text for found in router.compare_router_losses() for cause in found.causes]


def test_a_balance_loss_is_taken_apart(float64):
    assert router.compare_router_losses() == []
    assert routed(
        lambda layers, k, mask: router_loss([x.softmax(-1) for x in layers], k, mask)
    ) == ["softmax of their softmax, where the reference has softmax of the logits"]
    assert routed(lambda layers, k, mask: router_loss(layers, 1, mask)) == [
        "the first choice alone, where the reference has the experts that are chosen"
    ]
    assert routed(lambda layers, k, mask: router_loss(layers, k, None)) == [
        "shares of tokens and padding, where the reference has shares of tokens",
        "mean probabilities of tokens and padding, where the reference has mean probabilities of "
        "tokens",
    ]


def test_two_mistakes_in_a_balance_loss_are_both_named(float64):
    def pooled(layers, top_k, mask):
        return 3 * balance_loss(torch.cat(layers), top_k, torch.cat([mask] * len(layers)))

    assert routed(pooled) == [
        "all layers end to end, where the reference has each layer by itself",
        "scaled by 3 = number of layers against the reference",
    ]


def test_a_balance_loss_that_nothing_explains_is_found_and_not_explained(float64):
    with swapped(torch_gradients, "router_loss", lambda layers, k, mask: layers[0].square().sum()):
        (found,) = router.compare_router_losses()
    assert (found.at, found.causes) == ("loss.router", [])


def shifted(wrong) -> list[str]:
    with swapped(torch_losses, "shift_right", wrong):
        return [
            cause.text
            for found in decoder_inputs.compare_decoder_inputs()
            for cause in found.causes
        ]


def test_decoder_inputs_are_taken_apart(float64):
    def begins_with_padding(labels, start, padding, right=torch_losses.shift_right):
        return right(labels, padding, padding)

    def one_kind_of_ignored(labels, start, padding):
        inputs = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)
        return torch.where(inputs == -100, padding, inputs)

    def labels_themselves(labels, start, padding):
        return torch.where(labels < 0, padding, labels)

    assert decoder_inputs.compare_decoder_inputs() == []
    assert shifted(begins_with_padding) == ["the first input is 2, where the reference has 3"]
    assert shifted(one_kind_of_ignored) == [
        "the ignored label -1 is kept, where the reference has 2"
    ]
    assert shifted(labels_themselves) == ["input t is label t+0, where the reference has label t-1"]
    assert shifted(lambda labels, start, padding: labels * 0) == []


def test_what_a_checkpoint_is_cast_into_is_read_off(float64, monkeypatch):
    def all_to_float64(path, dtype):
        return checkpoint.read(path, "float64")

    def one_left_out(path, dtype):
        found = checkpoint.read(path, dtype)
        return {name: array for name, array in found.items() if name != "decoder.embed.weight"}

    def said(reader) -> list[str]:
        monkeypatch.setitem(checkpoint.READERS, "torch", reader)
        return [cause.text for found in checkpoint.compare_checkpoints() for cause in found.causes]

    assert said(checkpoint.read) == []
    assert said(all_to_float64) == [
        f"what is stored in {dtype} comes in float64, where the reference has float32"
        for dtype in ("float16", "float32", "bfloat16")
    ]
    assert said(one_left_out) == ["decoder.embed.weight not read"]
