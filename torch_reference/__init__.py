"""The Transformer in PyTorch. Never imports jax; flax_transformer is its twin."""

from torch_reference.models import EncoderDecoder, LanguageModel, build_model
from torch_reference.stacks import Decoder, Encoder

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "LanguageModel", "build_model"]
