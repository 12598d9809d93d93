"""The Transformer in Flax Linen. Never imports torch; its twin, file for file, is torch_reference."""

from flax_transformer.models import Decoder, Encoder, EncoderDecoder, LanguageModel, build_model

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "LanguageModel", "build_model"]
