"""The Transformer in Flax Linen. Never imports torch; torch_reference is its twin."""

from flax_transformer.models import EncoderDecoder, LanguageModel, build_model
from flax_transformer.stacks import Decoder, Encoder

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "LanguageModel", "build_model"]
