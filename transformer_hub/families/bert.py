"""BERT: a post-norm encoder with segments, and up to three heads."""

from typing import Any

from transformer_hub.families.family import Family
from transformer_hub.families.layout import Copy, Layout
from transformer_hub.families.relations import Same, Table
from transformer_hub.families.settings import Key, Settings, their_activation, write_keys
from transformer_spec.config import FeedForward, LayerNorm, Learned, ModelConfig, PostNorm
from transformer_spec.parameters import has_heads

KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("max_position_embeddings", "max_seq_len"),
    Key("hidden_size", "d_model"),
    Key("intermediate_size", "d_ff"),
    Key("num_hidden_layers", "num_layers"),
    Key("num_attention_heads", "num_heads"),
    Key("type_vocab_size", "num_token_types", 2),
    Key("hidden_dropout_prob", ("embed_dropout", "attn_out_dropout", "ffn_out_dropout"), 0.1),
    Key("attention_probs_dropout_prob", "attn_dropout", 0.1),
)

# Class -> masked_lm, pooler, next_sentence.
HEADS = {
    "BertModel": (False, True, False),
    "BertForMaskedLM": (True, False, False),
    "BertForPreTraining": (True, True, True),
    "BertForNextSentencePrediction": (False, True, True),
}


def read(settings: Settings) -> ModelConfig:
    settings.require("is_decoder", False)
    settings.require("add_cross_attention", False)
    settings.require("position_embedding_type", "absolute")
    masked_lm, pooler, next_sentence = _heads(settings)
    return ModelConfig(
        arch="encoder",
        position=Learned(),
        norm=LayerNorm(eps=settings.get("layer_norm_eps", 1e-12)),
        residual=PostNorm(),
        ffn=FeedForward(activation=settings.activation("hidden_act", "gelu")),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        embed_norm=True,
        masked_lm=masked_lm,
        pooler=pooler,
        next_sentence=next_sentence,
        head_bias=masked_lm,
        tie_embeddings=masked_lm and settings.get("tie_word_embeddings", True),
        **settings.fields(KEYS),
    )


def _heads(settings: Settings) -> tuple[bool, bool, bool]:
    """Those of the class that was saved, and those whose tensors are there.

    A checkpoint may hold more than its class has (bert-base-uncased says BertForMaskedLM, and has
    all three), and a BertModel may have been saved without its pooler.
    """
    masked_lm, pooler, next_sentence = HEADS[settings.architecture or "BertModel"]
    if settings.names is not None:
        masked_lm |= any("cls.predictions." in name for name in settings.names)
        next_sentence |= any("cls.seq_relationship." in name for name in settings.names)
        pooler = any(name.endswith("pooler.dense.weight") for name in settings.names)
    return masked_lm, pooler or next_sentence, next_sentence


def write(config: ModelConfig) -> dict[str, Any]:
    tied = {"tie_word_embeddings": config.tie_embeddings} if config.masked_lm else {}
    return (
        write_keys(KEYS, config)
        | tied
        | {
            "layer_norm_eps": config.norm.eps,
            "hidden_act": their_activation(config.ffn.activation),
        }
    )


def architecture(config: ModelConfig) -> str:
    heads = (config.masked_lm, config.pooler, config.next_sentence)
    by_heads = {value: name for name, value in HEADS.items()}
    return by_heads.get(heads, "BertForMaskedLM" if config.masked_lm else "BertModel")


def layout(config: ModelConfig) -> Layout:
    base = _base(config)
    copies = []
    if config.masked_lm:
        # Absent from checkpoints before transformers 3; the class unties it with the head.
        untied = not config.tie_embeddings
        bias = "cls.predictions.bias"
        copies.append(Copy("cls.predictions.decoder.bias", bias, written=untied))
    if config.tie_embeddings:
        embedding = f"{base}embeddings.word_embeddings.weight"
        copies.append(Copy("cls.predictions.decoder.weight", embedding))
    ignored = (r"(^|\.)embeddings\.(position_ids|token_type_ids)$",)
    return Layout("bert", config, [_table(config)], copies, "bert.", ignored)


def _base(config: ModelConfig) -> str:
    """What stands before the names of the stack in the class that has these heads."""
    return "bert." if config.masked_lm or config.next_sentence else ""


def _table(config: ModelConfig) -> Table:
    base, stack = _base(config), "encoder." if has_heads(config) else ""
    theirs, ours = f"{base}encoder.layer.{{i}}", f"{stack}layers.{{i}}"
    return (
        Same(f"{base}embeddings.word_embeddings.weight", f"{stack}embed.weight"),
        Same(f"{base}embeddings.position_embeddings.weight", f"{stack}pos_embed.weight"),
        Same(f"{base}embeddings.token_type_embeddings.weight", f"{stack}type_embed.weight"),
        Same(f"{base}embeddings.LayerNorm.*", f"{stack}embed_norm.*"),
        Same(f"{theirs}.attention.self.query.*", f"{ours}.attn.q_proj.*"),
        Same(f"{theirs}.attention.self.key.*", f"{ours}.attn.k_proj.*"),
        Same(f"{theirs}.attention.self.value.*", f"{ours}.attn.v_proj.*"),
        Same(f"{theirs}.attention.output.dense.*", f"{ours}.attn.o_proj.*"),
        Same(f"{theirs}.attention.output.LayerNorm.*", f"{ours}.attn_norm.*"),
        Same(f"{theirs}.intermediate.dense.*", f"{ours}.ffn.up_proj.*"),
        Same(f"{theirs}.output.dense.*", f"{ours}.ffn.down_proj.*"),
        Same(f"{theirs}.output.LayerNorm.*", f"{ours}.ffn_norm.*"),
        Same(f"{base}pooler.dense.*", "pooler.*"),
        Same("cls.seq_relationship.*", "sentence_head.*"),
        Same("cls.predictions.transform.dense.*", "lm_transform.*"),
        Same("cls.predictions.transform.LayerNorm.*", "lm_norm.*"),
        Same("cls.predictions.decoder.weight", "lm_head.weight"),
        Same("cls.predictions.bias", "lm_head.bias"),
    )


FAMILY = Family(
    name="bert",
    model_type="bert",
    architectures=tuple(HEADS),
    slots={"position": (Learned,), "norm": (LayerNorm,), "ffn": (FeedForward,)},
    read=read,
    write=write,
    layout=layout,
    architecture=architecture,
    stem="bert.",
)
