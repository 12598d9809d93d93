"""What is held against transformers: its classes in sizes that a test can afford, and batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.observe.points import probe_weights
from verification.twins.hostile import ragged_mask, tokens

BATCH, VOCABULARY = 3, 23
Batch = dict[str, np.ndarray]
# Classes that read the first place of a row, which padding on the left would fill.
POOLING = ("BertModel", "BertForPreTraining")


@dataclass(frozen=True)
class Case:
    """A class of transformers, what its config says, and how long the sequences are.

    Args:
        architecture: the class.
        settings: arguments of its config class.
        length: tokens of a row, or of its target.
        source: tokens of a row that is read by an encoder before a decoder.
        own_head: give a head of its own to a class that ties it always: its `lm_head` gets another
            parameter once it is built. T5's code reads no other place, and scales by the config.
    """

    architecture: str
    settings: Mapping[str, Any]
    length: int = 7
    source: int = 0
    own_head: bool = False

    @property
    def router_coefficient(self) -> float:
        """The factor on the router's loss; 0 where it is no part of theirs."""
        counts = self.settings.get("output_router_logits", False)
        return self.settings["router_aux_loss_coef"] if counts else 0.0


# Ids beyond the vocabulary, as by default, are warned of.
_NO_IDS = {"bos_token_id": None, "eos_token_id": None}
_LLAMA = _NO_IDS | {
    "vocab_size": VOCABULARY,
    "hidden_size": 18,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "pad_token_id": 0,
}
# Eight pairs a head, so that each of a scaling's three ranges has some.
_LONG = _LLAMA | {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
_MIXTRAL = _LLAMA | {
    "num_hidden_layers": 1,
    "num_local_experts": 5,
    "router_aux_loss_coef": 0.3,
    "output_router_logits": True,
    "sliding_window": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 300.0},
}
# A window shorter than the rows; caps that bend scores and logits and leave tanh a slope: near 1,
# 1 - tanh**2 is a difference of almost equal numbers, whoever takes it.
_GEMMA2 = _LLAMA | {
    "sliding_window": 3,
    "query_pre_attn_scalar": 7,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 5.0,
    "tie_word_embeddings": True,
}
_GLM = _LLAMA | {
    "head_dim": 8,
    "attention_bias": True,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 300.0,
        "partial_rotary_factor": 0.5,
    },
}
_BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "intermediate_size": 17,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 13,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-2,
}
_GPT2 = _NO_IDS | {
    "vocab_size": VOCABULARY,
    "n_embd": 12,
    "n_inner": 17,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 13,
    "layer_norm_epsilon": 1e-3,
}
_T5 = _NO_IDS | {
    "vocab_size": VOCABULARY,
    "d_model": 13,
    "d_kv": 5,
    "d_ff": 17,
    "num_heads": 3,
    "layer_norm_epsilon": 1e-3,
    "decoder_start_token_id": 0,
}
_BLOOM = _NO_IDS | {"vocab_size": VOCABULARY, "n_layer": 2, "layer_norm_epsilon": 1e-3}


def _scaled(**scaling: Any) -> dict[str, Any]:
    return _LONG | {"rope_parameters": {"rope_theta": 1e4} | scaling}


CASES: dict[str, Case] = {
    "gpt2": Case("GPT2LMHeadModel", _GPT2),
    "gpt2, eleven layers, own head": Case(
        "GPT2LMHeadModel", _GPT2 | {"n_layer": 11, "tie_word_embeddings": False}
    ),
    "bert": Case("BertForPreTraining", _BERT),
    "bert, masked tokens alone": Case("BertForMaskedLM", _BERT | {"hidden_act": "gelu_new"}),
    "bert, no head": Case("BertModel", _BERT),
    # Rows longer than max_distance 128, in both stacks.
    "t5": Case(
        "T5ForConditionalGeneration",
        _T5 | {"num_layers": 2, "num_decoder_layers": 1},
        length=149,
        source=151,
    ),
    "t5 1.1": Case(
        "T5ForConditionalGeneration",
        _T5
        | {
            "num_layers": 1,
            "num_decoder_layers": 2,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 11,
        },
        source=19,
        own_head=True,
    ),
    "llama": Case(
        "LlamaForCausalLM",
        _LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    ),
    "llama, tied, biases": Case(
        "LlamaForCausalLM",
        _LLAMA | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, llama3 scaling": Case(
        "LlamaForCausalLM",
        _scaled(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=37,
        ),
        length=41,
    ),
    "llama, linear scaling": Case(
        "LlamaForCausalLM", _scaled(rope_type="linear", factor=4.0), length=41
    ),
    "llama, yarn": Case(
        "LlamaForCausalLM",
        _scaled(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=16,
            beta_fast=2.0,
            beta_slow=0.25,
        ),
        length=41,
    ),
    "mistral": Case(
        "MistralForCausalLM",
        _LLAMA
        | {
            "sliding_window": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 300.0},
        },
        length=11,
    ),
    "mixtral": Case("MixtralForCausalLM", _MIXTRAL | {"num_experts_per_tok": 2}),
    "mixtral, one expert a token": Case(
        "MixtralForCausalLM", _MIXTRAL | {"num_experts_per_tok": 1}
    ),
    "qwen3": Case("Qwen3ForCausalLM", _LLAMA | {"tie_word_embeddings": True}),
    "qwen3, own head, biases": Case("Qwen3ForCausalLM", _LLAMA | {"attention_bias": True}),
    "gemma2": Case("Gemma2ForCausalLM", _GEMMA2),
    "gemma2, no caps, own head": Case(
        "Gemma2ForCausalLM",
        _GEMMA2
        | {
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "tie_word_embeddings": False,
            "attention_bias": True,
        },
    ),
    "glm": Case("GlmForCausalLM", _GLM),
    "glm4": Case("Glm4ForCausalLM", _GLM),
    "bloom": Case("BloomForCausalLM", _BLOOM | {"n_head": 6, "hidden_size": 18}),
    "bloom, eight heads": Case("BloomForCausalLM", _BLOOM | {"n_head": 8, "hidden_size": 24}),
}


def batch(case: Case, padded: bool = True) -> Batch:
    """Ids, padding on the left, on the right and on both sides, labels; under our names.

    Padding has id 0 and no token has: several of their embeddings give that row no gradient. A
    token is counted by no loss where its own place or the one that predicts it is padding: what a
    query computes that sees nothing is nobody's to compare.
    """
    keep = _mask(case.length, padded)
    if case.architecture in POOLING:
        keep[:, 0] = True
    ids = _ids(keep)
    if case.source:
        source_mask = _mask(case.source, padded)
        found = {"source": _ids(source_mask, seed=3), "source_mask": source_mask}
        return found | {"target_mask": keep, "labels": _labels(ids, keep)}
    found = {"tokens": ids, "token_mask": keep}
    if not case.architecture.startswith("Bert"):
        before = np.roll(keep, 1, axis=1)
        before[:, 0] = False
        return found | {"labels": _labels(ids, keep & before)}
    found["token_types"] = tokens(case.settings["type_vocab_size"], BATCH, case.length)
    if case.architecture == "BertModel":
        width = case.settings["hidden_size"]
        hidden, pooled = probe_weights([(BATCH, case.length, width), (BATCH, width)])
        return found | {"hidden_weights": hidden * keep[..., None], "pooled_weights": pooled}
    found["labels"] = _labels(tokens(VOCABULARY, BATCH, case.length, seed=8), keep)
    if case.architecture == "BertForPreTraining":
        found["sentence_labels"] = np.arange(BATCH) % 2
    return found


def _mask(length: int, padded: bool) -> np.ndarray:
    return ragged_mask(BATCH, length) if padded else np.ones((BATCH, length), bool)


def _ids(keep: np.ndarray, seed: int = 5) -> np.ndarray:
    return np.where(keep, 1 + tokens(VOCABULARY - 1, *keep.shape, seed=seed), 0)


def _labels(ids: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """-100 under what is not counted, and at one token that could be."""
    labels = np.where(counted, ids, -100)
    labels[0, np.flatnonzero(counted[0])[1]] = -100
    return labels
