"""Mistakes in normalization."""

from functools import partial

import torch
from torch import Tensor

from torch_reference.norms import LayerNorm, RMSNorm, widen
from torch_reference.stacks import Stack
from transformer_spec.parameters import is_norm
from verification.bugs.seeded.conversion import Values, converted
from verification.bugs.seeded_bug import SeededBug, github, swapped


def _standardized(self: LayerNorm, x: Tensor, divisor: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / divisor * self.weight + self.bias


def _eps_outside(self: LayerNorm, x: Tensor) -> Tensor:
    std = x.var(-1, unbiased=False, keepdim=True).sqrt()
    return _standardized(self, x, std + self.eps)


def _unbiased(self: LayerNorm, x: Tensor) -> Tensor:
    return _standardized(self, x, (x.var(-1, keepdim=True) + self.eps).sqrt())


def _rounded_before_weight(self: RMSNorm, x: Tensor) -> Tensor:
    wide = widen(x)
    mean_square = wide.square().mean(-1, keepdim=True)
    return (wide / torch.sqrt(mean_square + self.eps)).to(x.dtype) * self.weight


def _one_folded_in(fresh: Values, right: Values) -> Values:
    return {name: weight + 1 for name, weight in right.items() if is_norm(name)}


def _not_normalized(self: Stack, x: Tensor) -> Tensor:
    return x


BUGS = (
    SeededBug(
        id="NRM-03",
        name="Epsilon outside the root",
        component="norm",
        sources=(
            "https://github.com/codertimo/BERT-pytorch/issues/30",
            "https://github.com/hyunwoongko/transformer/issues/7",
            "https://github.com/harvardnlp/annotated-transformer/issues/122",
        ),
        how="LayerNorm divides by sqrt(var) + eps, not by sqrt(var + eps).",
        case="decoder",
        at="decoder.layers.0.attn_norm",
        cause="epsilon is added to the standard deviation where the reference epsilon is inside",
        install=partial(swapped, LayerNorm, "forward", _eps_outside),
    ),
    SeededBug(
        id="NRM-04",
        name="Variance over n - 1",
        component="norm",
        sources=(
            "https://github.com/harvardnlp/annotated-transformer/pull/119",
            "https://github.com/allenai/allennlp/pull/953",
        ),
        how="LayerNorm uses torch's default variance, which divides by the width less one.",
        case="decoder",
        at="decoder.layers.0.attn_norm",
        cause=r"divides by n - 1 \(unbiased\) where the reference divides by n$",
        install=partial(swapped, LayerNorm, "forward", _unbiased),
    ),
    SeededBug(
        id="NRM-06",
        name="RMSNorm rounds before it applies its weight",
        component="norm",
        sources=(
            "https://github.com/huggingface/transformers/pull/25421",
            "https://github.com/NVIDIA/TransformerEngine/issues/1132",
            "https://github.com/tinygrad/tinygrad/pull/5095",
        ),
        how="x / rms is rounded to bfloat16 and then multiplied by the weight: two roundings.",
        case="modern",
        at="decoder.layers.0.attn_norm",
        cause="rounded before the weight is applied in bfloat16",
        install=partial(swapped, RMSNorm, "forward", _rounded_before_weight),
    ),
    SeededBug(
        id="NRM-07",
        name="Norm weight shifted by one twice or never",
        component="norm",
        sources=github("utensils/mold/pull/1078", "ggml-org/llama.cpp/pull/5810"),
        how="The conversion folds the 1 of a norm's 1 + w into w, and the norm adds it again.",
        case="scaled_head",
        at="parameters.decoder.layers.0.attn_norm.weight",
        cause="^the reference's with 1 added to every value$",
        install=partial(converted, _one_folded_in),
    ),
    SeededBug(
        id="NRM-08",
        name="No norm after the last block",
        component="norm",
        sources=(
            "https://github.com/pytorch/pytorch/issues/50086",
            "https://github.com/pytorch/pytorch/issues/74092",
            "https://github.com/facebookresearch/xformers/issues/665",
        ),
        how="A pre-norm stack hands its residual stream to the head without the final norm.",
        case="decoder",
        at="decoder",
        cause="decoder.final_norm is never called",
        install=partial(swapped, Stack, "finish", _not_normalized),
    ),
)
