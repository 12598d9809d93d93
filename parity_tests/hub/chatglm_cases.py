"""ChatGLM as its authors publish it: settings, tensor names and shapes. transformers lacks it."""


def chatglm_config(**changes):
    """The settings of chatglm-6b, small."""
    return {
        "architectures": ["ChatGLMModel"],
        "model_type": "chatglm",
        "vocab_size": 37,
        "max_sequence_length": 41,
        "hidden_size": 24,
        "inner_hidden_size": 17,
        "num_layers": 3,
        "num_attention_heads": 3,
        "layernorm_epsilon": 1e-4,
        "position_encoding_2d": True,
        "gmask_token_id": 9,
        "torch_dtype": "float16",
    } | changes


def chatglm_shapes() -> dict[str, tuple[int, ...]]:
    """As its published index lists them."""
    v, d, f = 37, 24, 17
    shapes = {"transformer.word_embeddings.weight": (v, d), "lm_head.weight": (v, d)}
    for leaf in ("weight", "bias"):
        shapes[f"transformer.final_layernorm.{leaf}"] = (d,)
    for i in range(3):
        layer = f"transformer.layers.{i}."
        for name, out, width in [
            ("attention.query_key_value", 3 * d, d),
            ("attention.dense", d, d),
            ("mlp.dense_h_to_4h", f, d),
            ("mlp.dense_4h_to_h", d, f),
        ]:
            shapes[f"{layer}{name}.weight"] = (out, width)
            shapes[f"{layer}{name}.bias"] = (out,)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = shapes[f"{layer}{norm}.bias"] = (d,)
        shapes[f"{layer}attention.rotary_emb.inv_freq"] = (2,)
    return shapes


def chatglm2_config(**changes):
    """The settings of glm-4-9b-chat, small."""
    return {
        "architectures": ["ChatGLMModel"],
        "model_type": "chatglm",
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "apply_query_key_layer_scaling": True,
        "apply_residual_connection_post_layernorm": False,
        "attention_dropout": 0.0,
        "ffn_hidden_size": 17,
        "hidden_dropout": 0.0,
        "hidden_size": 15,
        "kv_channels": 8,
        "layernorm_epsilon": 1.5625e-07,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "num_attention_heads": 6,
        "num_hidden_layers": 3,
        "num_layers": 3,
        "original_rope": True,
        "padded_vocab_size": 37,
        "post_layer_norm": True,
        "rmsnorm": True,
        "rope_ratio": 500,
        "seq_length": 41,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 37,
    } | changes


def chatglm2_shapes() -> dict[str, tuple[int, ...]]:
    v, d, f, heads, groups, width = 37, 15, 17, 6, 2, 8
    rows = (heads + 2 * groups) * width
    shapes = {
        "transformer.embedding.word_embeddings.weight": (v, d),
        "transformer.rotary_pos_emb.inv_freq": (2,),
        "transformer.encoder.final_layernorm.weight": (d,),
        "transformer.output_layer.weight": (v, d),
    }
    for i in range(3):
        layer = f"transformer.encoder.layers.{i}."
        shapes |= {
            f"{layer}input_layernorm.weight": (d,),
            f"{layer}self_attention.query_key_value.weight": (rows, d),
            f"{layer}self_attention.query_key_value.bias": (rows,),
            f"{layer}self_attention.dense.weight": (d, heads * width),
            f"{layer}post_attention_layernorm.weight": (d,),
            f"{layer}mlp.dense_h_to_4h.weight": (2 * f, d),
            f"{layer}mlp.dense_4h_to_h.weight": (d, f),
        }
    return shapes


CHATGLM = {"chatglm": chatglm_config(), "chatglm2": chatglm2_config()}
