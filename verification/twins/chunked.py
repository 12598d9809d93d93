"""Models that read their text through a key/value cache, a few tokens at a time."""

from itertools import pairwise

import jax.numpy as jnp
import torch

import flax_transformer.cache as flax_cache
import flax_transformer.models as flax_models
import torch_reference.cache as torch_cache
import torch_reference.models as torch_models
from transformer_spec.config import ModelConfig

Chunks = tuple[int, ...]


def spans(chunks: Chunks) -> list[slice]:
    """Where each call's tokens stand."""
    ends = [sum(chunks[:i]) for i in range(len(chunks) + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def _part(array, span):
    return None if array is None else array[:, span]


class FlaxChunkedDecoder(flax_models.LanguageModel):
    """A decoder whose logits are those of `chunks` tokens at a time."""

    chunks: Chunks = ()

    def __call__(
        self,
        tokens,
        token_mask=None,
        mask=None,
        positions=None,
        prefix_mask=None,
        *,
        deterministic=True,
    ):
        flax_cache.refuse_beside_cache(mask, positions)
        length, chunk = tokens.shape[1], max(self.chunks)
        embed = self.decoder.embed
        dtype = jnp.float32 if embed is None else embed.embedding.dtype
        cache = flax_cache.make_cache(self.config, len(tokens), length, chunk, dtype)
        logits = []
        for span in spans(self.chunks):
            given = _part(token_mask, span), _part(prefix_mask, span)
            out, cache = self.extend(tokens[:, span], cache, *given, deterministic=deterministic)
            logits.append(out)
        return jnp.concatenate(logits, axis=1)


class TorchChunkedDecoder(torch_models.LanguageModel):
    """Its twin."""

    def __init__(self, config: ModelConfig, chunks: Chunks):
        super().__init__(config)
        self.chunks = chunks

    def forward(self, tokens, token_mask=None, mask=None, positions=None, prefix_mask=None):
        torch_cache.refuse_beside_cache(mask, positions)
        length, chunk = tokens.shape[1], max(self.chunks)
        weight = next(self.parameters())
        cache = torch_cache.make_cache(
            self.config, len(tokens), length, chunk, weight.dtype, weight.device
        )
        logits = []
        for span in spans(self.chunks):
            given = _part(token_mask, span), _part(prefix_mask, span)
            out, cache = self.extend(tokens[:, span], cache, *given)
            logits.append(out)
        return torch.cat(logits, dim=1)


class FlaxChunkedEncoderDecoder(flax_models.EncoderDecoder):
    """An encoder-decoder that reads its target `chunks` tokens at a time."""

    chunks: Chunks = ()

    def __call__(self, source, target, source_mask=None, target_mask=None, *, deterministic=True):
        memory = self.encode(source, source_mask, deterministic=deterministic)
        length, chunk = target.shape[1], max(self.chunks)
        cache = flax_cache.make_cache(self.config, len(target), length, chunk, memory.dtype)
        logits = []
        for span in spans(self.chunks):
            part = target[:, span], memory, cache, source_mask, _part(target_mask, span)
            out, cache = self.extend(*part, deterministic=deterministic)
            logits.append(out)
        return jnp.concatenate(logits, axis=1)


class TorchChunkedEncoderDecoder(torch_models.EncoderDecoder):
    """Its twin."""

    def __init__(self, config: ModelConfig, chunks: Chunks):
        super().__init__(config)
        self.chunks = chunks

    def forward(self, source, target, source_mask=None, target_mask=None):
        memory = self.encode(source, source_mask)
        length, chunk = target.shape[1], max(self.chunks)
        cache = torch_cache.make_cache(
            self.config, len(target), length, chunk, memory.dtype, memory.device
        )
        logits = []
        for span in spans(self.chunks):
            part = target[:, span], memory, cache, source_mask, _part(target_mask, span)
            out, cache = self.extend(*part)
            logits.append(out)
        return torch.cat(logits, dim=1)


def flax_model(config: ModelConfig, chunks: Chunks) -> flax_models.Model:
    """The Flax model that reads in `chunks`; all at once where there are none."""
    if not chunks:
        return flax_models.build_model(config)
    if config.arch == "decoder":
        return FlaxChunkedDecoder(config, chunks=chunks)
    return FlaxChunkedEncoderDecoder(config, chunks=chunks)


def torch_model(config: ModelConfig, chunks: Chunks) -> torch_models.Model:
    """The torch model that reads in `chunks`; all at once where there are none."""
    if not chunks:
        return torch_models.build_model(config)
    if config.arch == "decoder":
        return TorchChunkedDecoder(config, chunks)
    return TorchChunkedEncoderDecoder(config, chunks)
