"""What the comparison does not say yet, by pair, with what it lacks."""

_SCALAR = "a loss is one number: an edit that reproduces it proves nothing"
_FAULTY = "[torch-faulty]"

MISJUDGED = {
    "reports/hard_sigmoid[torch-jax]": "torch's own gradient holds 1/6 in single precision",
    "conv_layers[torch_2d-jax_channels_last]": "one function gives the inputs of both sides",
    "reports/gru_reset[torch-jax]": "recurrent weights in a plain tree find no counterpart",
    f"reports/gru_reset{_FAULTY}": "recurrent weights in a plain tree find no counterpart",
    "transformers_models[torch_t5-jax_t5]": "the torch side is run in two dtypes at once",
}
MISPLACED = {
    f"reports/gru_reset{_FAULTY}": "recurrent weights in a plain tree find no counterpart",
    f"reports/kl_direction{_FAULTY}": "placed in the line before",
}
UNNAMED = {
    "user_llama[torch-axis]": "nothing is said of the axis",
    "user_llama[torch-theta]": "named in a second fault",
    "encoder_layer[torch-pre_norm]": "a norm moved before what it follows",
    f"ema{_FAULTY}": "an average of the other side's weights",
    f"init_truncated{_FAULTY}": "another draw of the weights",
    "rmsprop[torch-decay]": "a number that stands in two places",
}
UNNAMED |= {
    f"reports/{file}{_FAULTY}": reason
    for file, reason in {
        "resize_antialias": "weights of an interpolation",
        "resize_cubic": "weights of an interpolation",
        "resize_nearest": "an index of its own formula",
        "conv_transpose_padding": "padding of a transposed convolution",
        "kl_direction": _SCALAR,
        "kl_batchmean": _SCALAR,
        "gru_reset": "recurrent weights in a plain tree find no counterpart",
        "resnet_stride": "a stride that moved to the next layer",
        "bidirectional_padding": "lengths of sequences",
        "group_norm_layer_norm": "a layer normalization for a group normalization",
        "smooth_l1": _SCALAR,
        "label_smoothing": _SCALAR,
        "cosine_epsilon": "a bound on a square",
        "padding_symmetric": "a mode of padding",
        "circular_axis": "a padded axis",
        "median": "an order statistic",
        "hann_window": "a table of its own formula",
        "distillation_temperature": _SCALAR,
        "squeeze_excite": "a function moved behind the next layer",
        "logit_scale": "a function of one number: any factor reproduces it",
        "softplus_beta": "a function of a scaled argument",
        "focal_arguments": _SCALAR,
    }.items()
}
