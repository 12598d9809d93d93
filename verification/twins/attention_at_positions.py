"""Attention together with what turns positions into rotations and biases, in both frameworks."""

import flax.linen
import torch

import flax_transformer.attention as flax_attention
import flax_transformer.positions as flax_positions
import torch_reference.attention as torch_attention
import torch_reference.positions as torch_positions
from transformer_spec.config import ModelConfig


class FlaxAttentionAtPositions(flax.linen.Module):
    """A decoder's self-attention at given positions [B, T, C] of C channels."""

    config: ModelConfig

    def setup(self):
        self.rotary = flax_positions.make_rotary(self.config)
        self.rel_bias = flax_positions.make_score_bias(self.config, False)
        self.attn = flax_attention.Attention(self.config)

    def __call__(self, x, positions, mask):
        rotation = None if self.rotary is None else self.rotary(positions)
        bias = (
            None if self.rel_bias is None else self.rel_bias(positions[..., 0], positions[..., 0])
        )
        return self.attn(x, None, mask, rotation, bias)


class TorchAttentionAtPositions(torch.nn.Module):
    """Its twin."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.rotary = torch_positions.make_rotary(config)
        self.rel_bias = torch_positions.make_score_bias(config, False)
        self.attn = torch_attention.Attention(config)

    def forward(self, x, positions, mask):
        rotation = None if self.rotary is None else self.rotary(positions)
        bias = (
            None if self.rel_bias is None else self.rel_bias(positions[..., 0], positions[..., 0])
        )
        return self.attn(x, None, mask, rotation, bias)
