"""Models of every family in transformers, small, with their weights counted through.

Weights are 1, 2, 3, ... through a whole model, so that each element is told from any other, and a
cut in the wrong place from the right one.
"""

import hashlib
import json
from typing import Any

import numpy as np
import torch
import transformers

from parity_tests.hub.chatglm_cases import CHATGLM
from transformer_hub import families
from transformer_hub.formats.lazy_tensor import LazyTensor

DECODER = {
    "vocab_size": 37,
    "hidden_size": 12,
    "intermediate_size": 17,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 41,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


WIDE = DECODER | {"head_dim": 10}


GPT2 = {
    "vocab_size": 37,
    "n_positions": 41,
    "n_embd": 15,
    "n_layer": 2,
    "n_head": 3,
    "bos_token_id": 1,
}
GPT2 |= {"eos_token_id": 2}


BERT = {"vocab_size": 37, "max_position_embeddings": 41, "hidden_size": 15, "intermediate_size": 17}
BERT |= {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_dropout_prob": 0.2}


T5 = {
    "vocab_size": 37,
    "d_model": 15,
    "d_kv": 7,
    "d_ff": 17,
    "num_layers": 2,
    "num_decoder_layers": 3,
}
T5 |= {"num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 19}


BLOOM = {"vocab_size": 37, "hidden_size": 15, "n_layer": 2, "n_head": 3, "hidden_dropout": 0.3}


YARN = {
    "rope_type": "yarn",
    "rope_theta": 5e5,
    "factor": 4.0,
    "original_max_position_embeddings": 10,
}
YARN |= {"beta_fast": 20.0, "beta_slow": 2.0, "attention_factor": 1.5}


LLAMA3 = {"rope_type": "llama3", "rope_theta": 3e5, "factor": 8.0, "low_freq_factor": 1.5}
LLAMA3 |= {"high_freq_factor": 3.0, "original_max_position_embeddings": 16}


# Name -> the class of the config, of the model, and settings that are not the default ones.
CASES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2 | {"resid_pdrop": 0.2, "embd_pdrop": 0.3}),
    "gpt2-untied": (
        "GPT2Config",
        "GPT2LMHeadModel",
        GPT2 | {"tie_word_embeddings": False, "n_inner": 19, "activation_function": "relu"},
    ),
    "bert": ("BertConfig", "BertModel", BERT),
    "bert-masked-lm": ("BertConfig", "BertForMaskedLM", BERT | {"hidden_act": "gelu_new"}),
    "bert-pretraining": ("BertConfig", "BertForPreTraining", BERT | {"type_vocab_size": 3}),
    "bert-untied": ("BertConfig", "BertForPreTraining", BERT | {"tie_word_embeddings": False}),
    "bert-sentence": ("BertConfig", "BertForNextSentencePrediction", BERT),
    "t5": ("T5Config", "T5ForConditionalGeneration", T5 | {"dropout_rate": 0.2}),
    "t5-1.1": (
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "t5-gated-silu": (
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-silu", "num_decoder_layers": None},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", DECODER | {"num_hidden_layers": 11}),
    "llama-tied": (
        "LlamaConfig",
        "LlamaForCausalLM",
        WIDE | {"tie_word_embeddings": True, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-4},
    ),
    "llama-biases": (
        "LlamaConfig",
        "LlamaForCausalLM",
        WIDE | {"attention_bias": True, "mlp_bias": True, "rope_parameters": YARN},
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", WIDE | {"sliding_window": 11}),
    "mistral-no-window": (
        "MistralConfig",
        "MistralForCausalLM",
        WIDE | {"sliding_window": None, "attention_dropout": 0.1, "hidden_act": "gelu"},
    ),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", WIDE | {"num_local_experts": 5}),
    "mixtral-tied": (
        "MixtralConfig",
        "MixtralForCausalLM",
        DECODER | {"tie_word_embeddings": True, "num_experts_per_tok": 3, "sliding_window": 9},
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", WIDE | {"rms_norm_eps": 1e-5}),
    "qwen3-tied": (
        "Qwen3Config",
        "Qwen3ForCausalLM",
        WIDE | {"tie_word_embeddings": True, "attention_bias": True, "rope_parameters": YARN},
    ),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        WIDE | {"sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0},
    ),
    "gemma2-untied": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        WIDE | {"tie_word_embeddings": False, "final_logit_softcapping": None},
    ),
    "glm": ("GlmConfig", "GlmForCausalLM", WIDE | {"head_dim": 8}),
    "glm-tied": (
        "GlmConfig",
        "GlmForCausalLM",
        WIDE | {"tie_word_embeddings": True, "attention_bias": False, "partial_rotary_factor": 0.2},
    ),
    "glm4": ("Glm4Config", "Glm4ForCausalLM", WIDE | {"head_dim": 8, "rms_norm_eps": 1e-5}),
    "bloom": ("BloomConfig", "BloomForCausalLM", BLOOM),
    "bloom-untied": ("BloomConfig", "BloomForCausalLM", BLOOM | {"tie_word_embeddings": False}),
}


def settings_of(case: str) -> dict[str, Any]:
    """The config.json of a case."""
    if case in CHATGLM:
        return CHATGLM[case]
    config_class, model_class, settings = CASES[case]
    hf = getattr(transformers, config_class)(**settings).to_dict()
    return hf | {"architectures": [model_class]}


def build(case: str):
    """The model of a case, its weights counted through."""
    config_class, model_class, settings = CASES[case]
    config = getattr(transformers, config_class)(**settings)
    model = getattr(transformers, model_class)(config)
    if case == "t5-1.1":
        # The class ties every head; it leaves one alone that a checkpoint holds by itself.
        model.lm_head.weight = torch.nn.Parameter(torch.empty(37, 15))
    start = 1
    with torch.no_grad():
        for parameter in model.parameters():
            end = start + parameter.numel()
            parameter.copy_(torch.arange(start, end).reshape(parameter.shape))
            start = end
        if case == "bert-untied":
            # Unused by the class, which reads the other one; one parameter before transformers 5.
            model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
    assert start < 2**24, "float32 cannot count any further"
    return model


def imported(case: str):
    """The model, its config as a file would have it, the family, our config and the layout."""
    model = build(case)
    hf = json.loads(model.config.to_json_string(use_diff=False))
    hf["architectures"] = [type(model).__name__]
    family = families.find(hf)
    config = family.read_config(hf, model.state_dict().keys())
    return model, hf, family, config, family.layout(config)


def arrays_of(model) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def lazily(arrays: dict[str, np.ndarray]) -> dict[str, LazyTensor]:
    return {
        name: LazyTensor(array.shape, array.dtype, lambda array=array: array)
        for name, array in arrays.items()
    }


def to_ours(layout, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    stored = lazily(arrays)
    found = {name: stored[theirs] for name, theirs in layout.canonical(arrays).items()}
    return dict(layout.to_ours(found))


def counted(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    sizes = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes.values()])
    return {
        name: np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape)
        for (name, shape), start in zip(shapes.items(), sizes, strict=False)
    }


def digest(array: np.ndarray) -> tuple:
    return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
