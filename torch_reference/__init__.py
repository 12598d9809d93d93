"""The Transformer in PyTorch. Never imports jax; its twin, file for file, is flax_transformer."""

from torch_reference.models import Decoder, Encoder, EncoderDecoder, LanguageModel, build_model

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "LanguageModel", "build_model"]
