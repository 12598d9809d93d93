"""Mistakes in rotations: their frequencies, and what they turn."""

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from torch_reference import attention, positions, stacks
from torch_reference.attention import Attention
from torch_reference.positions import Rotation, rotate
from torch_reference.stacks import Stack
from transformer_spec.config import ModelConfig, NoScaling
from transformer_spec.rotary import Scaling, frequencies
from verification.bugs.seeded_bug import SeededBug, github, swapped

_init = Stack.__init__


def _by_head(x: Tensor, rotation: Rotation, interleaved: bool) -> Tensor:
    heads_first = x.transpose(1, 2)
    cos, sin = (table[:, : x.shape[2]] for table in rotation)
    return rotate(heads_first, (cos, sin), interleaved).transpose(1, 2)


def _of_the_whole_head(config: ModelConfig, width: int, theta: float, scaling: Scaling):
    return theta ** -(np.arange(0, width, 2) / config.head_size)


def _make_of_the_whole_head(config: ModelConfig):
    wrong = partial(_of_the_whole_head, config)
    with swapped(positions, "frequencies", wrong):
        return positions.make_rotary(config)


def _fixed_base(width: int, theta: float, scaling: Scaling) -> np.ndarray:
    return frequencies(width, 10000.0, scaling)


def _not_rescaled(width: int, theta: float, scaling: Scaling) -> np.ndarray:
    return frequencies(width, theta, NoScaling())


def _halved_in_each_layer(self: Stack, config: ModelConfig) -> None:
    _init(self, config)
    layers = [module for module in self.modules() if isinstance(module, Attention)]
    for number, layer in enumerate(layers):
        forward: Any = partial(_with_a_part, layer.forward, 2**number)
        layer.forward = forward


def _with_a_part(forward, divisor, x, memory, mask, rotation: Rotation, bias, cache=None):
    cos, sin = (table[..., : table.shape[-1] // divisor] for table in rotation)
    return forward(x, memory, mask, (cos, sin), bias, cache)


BUGS = (
    SeededBug(
        id="PE-02",
        name="Rotation by the number of the head",
        component="positions",
        sources=github(
            "mlfoundations/open_lm/issues/4",
            "facebookresearch/xformers/issues/841",
            "NVIDIA/audio-flamingo/issues/27",
            "tensorgi/TPA/issues/4",
        ),
        how="Heads come before tokens when q and k are turned: head n turns as position n should.",
        case="rotary",
        at="decoder.layers.0.attn",
        cause="rotated by the index of the head, where the reference takes that of the position",
        install=partial(swapped, attention, "rotate", _by_head),
    ),
    SeededBug(
        id="PE-03",
        name="Frequencies of a partial rotation from the whole head",
        component="positions",
        sources=github(
            "pie-project/pie/issues/602",
            "apple/coreai-models/issues/66",
            "huggingface/transformers/pull/48652",
        ),
        how="The exponents are 2i / head_dim although only a part of the head turns.",
        case="partial",
        at="decoder.rotary",
        cause=r"frequencies theta\*\*\(-2i / 11\), .* the reference has theta\*\*\(-2i / 8\)",
        install=partial(swapped, stacks, "make_rotary", _make_of_the_whole_head),
    ),
    SeededBug(
        id="PE-04",
        name="Rotated part halved once more in every layer",
        component="positions",
        sources=github("vllm-project/vllm/issues/16904"),
        how="Layers halve the width of one rotation that they share: the n-th turns a 2**n-th.",
        case="partial",
        at="decoder.layers.1.attn",
        cause="rotates 4 dimensions of each head, 1/2 of the reference's 8",
        install=partial(swapped, Stack, "__init__", _halved_in_each_layer),
    ),
    SeededBug(
        id="PE-05",
        name="Base of the rotation fixed at 10000",
        component="positions",
        sources=github(
            "lyogavin/airllm/pull/369", "vllm-project/vllm/pull/9503", "intel/ipex-llm/pull/10787"
        ),
        how="The config's theta never arrives: frequencies are powers of the usual 10000.",
        case="rotary",
        at="decoder.rotary",
        cause="frequencies of theta 10000, where the reference has theta 500000",
        install=partial(swapped, positions, "frequencies", _fixed_base),
    ),
    SeededBug(
        id="PE-06",
        name="Long-context frequencies not rescaled",
        component="positions",
        sources=github("NVIDIA/TensorRT-Model-Connect/pull/655", "Xilinx/mlir-air/pull/1948"),
        how="The scaling for long texts is dropped: every frequency stays as it is.",
        case="rotary",
        at="decoder.rotary",
        cause="powers of theta as they are, where the reference has them divided by 8 for the 3",
        install=partial(swapped, positions, "frequencies", _not_rescaled),
    ),
)
