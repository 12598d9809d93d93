"""The Flax classes of `transformers` 4 beside its torch classes, tiny and random.

They were removed in version 5: in an environment with 4.57.6, all pairs run.
"""

import jax.numpy as jnp
import numpy as np
import torch
import transformers

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TEXT = {"vocab_size": 50, "max_position_embeddings": 16, **SMALL}
IMAGE = {"image_size": 8, "patch_size": 4, **SMALL}
CONFIGS = {
    "Bert": lambda **changed: transformers.BertConfig(**TEXT | changed),
    "GPT2": lambda **changed: transformers.GPT2Config(
        **{"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4} | changed
    ),
    "T5": lambda **changed: transformers.T5Config(
        **{"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        | changed
    ),
    "Llama": lambda **changed: transformers.LlamaConfig(num_key_value_heads=2, **TEXT | changed),
    "Mistral": lambda **changed: transformers.MistralConfig(
        num_key_value_heads=2, sliding_window=3, **TEXT | changed
    ),
    "ViT": lambda **changed: transformers.ViTConfig(**IMAGE | changed),
    "CLIP": lambda **changed: transformers.CLIPConfig(
        text_config=TEXT, vision_config=IMAGE, projection_dim=16, **changed
    ),
}

_clip = jnp.clip


def _clip_of_old(array, low=None, high=None, *, a_min=None, a_max=None, **bounds):
    """The names of `jnp.clip`'s bounds that version 4 uses and jax has removed."""
    return _clip(array, a_min if low is None else low, a_max if high is None else high, **bounds)


jnp.clip = _clip_of_old


def torch_model(kind, name="Model"):
    torch.manual_seed(0)
    config = CONFIGS[kind]()
    config._attn_implementation, config.use_cache = "eager", False
    model = getattr(transformers, f"{kind}{name}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # As trained: scores that differ, norms that are not 1 and 0.
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.1))
    return model


def jax_model(kind, name="Model", **changed):
    config = CONFIGS[kind](**changed)
    config.use_cache = False
    flax = getattr(transformers, f"Flax{kind}{name}")
    return flax(config, dtype=jnp.float64, _do_init=False)


def text():
    return {
        "input_ids": np.random.default_rng(0).integers(1, 50, (2, 7)),
        "attention_mask": np.array([[1] * 7, [1] * 5 + [0] * 2]),
    }


def text_to_text():
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(1, 50, (2, 7)),
        "decoder_input_ids": rng.integers(1, 50, (2, 5)),
    }


def images():
    return {"pixel_values": np.random.default_rng(0).normal(size=(2, 3, 8, 8))}


def text_and_images():
    return {**text(), **images()}


def build_torch_bert():
    return torch_model("Bert")


def build_torch_gpt2():
    return torch_model("GPT2", "LMHeadModel")


def build_torch_t5():
    return torch_model("T5", "ForConditionalGeneration")


def build_torch_llama():
    return torch_model("Llama", "ForCausalLM")


def build_torch_mistral():
    return torch_model("Mistral", "ForCausalLM")


def build_torch_vit():
    return torch_model("ViT")


def build_torch_clip():
    return torch_model("CLIP")


def build_jax_bert():
    return jax_model("Bert")


def build_jax_gpt2():
    return jax_model("GPT2", "LMHeadModel")


def build_jax_t5():
    return jax_model("T5", "ForConditionalGeneration")


def build_jax_llama():
    return jax_model("Llama", "ForCausalLM")


def build_jax_mistral():
    """Its window is one token wider than torch's."""
    return jax_model("Mistral", "ForCausalLM")


def build_jax_vit():
    return jax_model("ViT")


def build_jax_clip():
    return jax_model("CLIP")


def build_gelu():
    return jax_model("Bert", hidden_act="gelu_new")


def build_epsilon():
    return jax_model("Bert", layer_norm_eps=1e-6)


def build_theta():
    return jax_model("Llama", "ForCausalLM", rope_theta=5e5)
