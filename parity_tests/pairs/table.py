"""Which pairs there are, what is handed to them, and what must be said of them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
_MARK = re.compile(r"# fault(?P<names>[ \w,]*)$")


@dataclass(frozen=True)
class Pair:
    """A command of a user and its right answer.

    Args:
        file: its path below this folder, without .py.
        inputs: what follows --inputs; a function of the file itself as ":function".
        torch, jax: names of the builders.
        verdict: the first line of the answer.
        cause: a regular expression that the cause of the fault must hold, or the message where
            nothing can be compared; case does not count.
        placed: whether a source line holds the fault; weights that differ lie in none.
        options: further flags.
    """

    file: str
    inputs: tuple[str, ...]
    torch: str = "build_torch"
    jax: str = "build_jax"
    verdict: Literal["equal", "different", "could not compare"] = "equal"
    cause: str = ""
    placed: bool = True
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = (self.torch.removeprefix("build_"), self.jax.removeprefix("build_"))
        return f"{self.file}[{'-'.join(names)}]"

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file}.py"

    def command(self) -> list[str]:
        """The arguments of `python -m parity`."""
        inputs = [f"{self.path}{spec}" if spec[0] == ":" else spec for spec in self.inputs]
        targets = [f"{self.path}:{name}" for name in (self.torch, self.jax)]
        return ["compare", *targets, "--inputs", *inputs, *self.options]

    def marked_lines(self) -> set[int]:
        """The lines, from 1, at which the fault may be placed."""
        names = {name.removeprefix("build_") for name in (self.torch, self.jax)}
        found = set()
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            if mark := _MARK.search(line):
                marked = {name.strip() for name in mark["names"].split(",")}
                if marked & (names | {""}):
                    found.add(number)
        return found


def _equal(file: str, inputs: str, jax: str = "jax", torch: str = "torch", flags: str = "") -> Pair:
    return Pair(
        file, tuple(inputs.split()), f"build_{torch}", f"build_{jax}", options=tuple(flags.split())
    )


def _wrong(
    file: str,
    inputs: str,
    cause: str,
    jax: str = "faulty",
    torch: str = "torch",
    flags: str = "",
    placed: bool = True,
) -> Pair:
    return Pair(
        file,
        tuple(inputs.split()),
        f"build_{torch}",
        f"build_{jax}",
        "different",
        cause,
        placed,
        tuple(flags.split()),
    )


def _without_counterpart(file: str, inputs: str, message: str) -> Pair:
    """A port that lacks a weight: told before anything runs."""
    wrong = _wrong(file, inputs, message, placed=False)
    return replace(wrong, verdict="could not compare")


def _report(file: str, inputs: str, cause: str, flags: str = "") -> list[Pair]:
    """A pair after a public report: the port as it should be, and as it was."""
    path = f"reports/{file}"
    return [_equal(path, inputs, flags=flags), _wrong(path, inputs, cause, flags=flags)]


_ORDER = r"order|transpos|permut|channels|layout"

PAIRS = [
    _equal("conv_same_stride", "2x3x16x16"),
    _wrong("conv_same_stride", "2x3x16x16", r"pad"),
    _equal("conv_transpose", "2x3x5x5"),
    _equal("conv_transpose", "2x3x5x5", "unflipped"),
    _wrong("conv_transpose", "2x3x5x5", r"flip|revers", flags="--weights loaded", placed=False),
    _equal("conv_haiku", "2x3x6x6"),
    _wrong("conv_haiku", "2x3x6x6", _ORDER),
    _equal("flatten_order", "2x3x4x4"),
    _wrong("flatten_order", "2x3x4x4", _ORDER),
    _equal("lstm", "2x7x5"),
    _equal("gru_nnx", "x=4x3 h=4x5"),
    _without_counterpart("gru_nnx", "x=4x3 h=4x5", r"bias_hh.*hidden bias of the new gate"),
    _equal("weight_norm", "2x5"),
    _equal("batch_norm", "6x5"),
    _equal("batch_norm", "6x5", "jax_with_statistics", flags="--weights torch"),
    _equal("batch_norm", "6x5", "jax_in_training", "torch_in_training"),
    _wrong("batch_norm", "6x5", r"eps.*(0\.001|1e-0?3)", "jax", "faulty_torch"),
    _equal("avg_pool", "2x6x6x4"),
    _wrong("avg_pool", "2x6x6x4", r"pad"),
    _equal("gelu_module", "2x5x8"),
    _wrong("gelu_module", "2x5x8", r"gelu.*(tanh|erf|exact|approx)|(tanh|approx).*gelu"),
    _equal("qk_norm", "2x6x12"),
    _wrong("qk_norm", "2x6x12", r"head|group|axis|axes|4.*12|12.*4"),
    _equal("window_ignored", "2x8x12"),
    _wrong("window_ignored", "2x8x12", r"mask|window|causal"),
    _wrong("window_ignored", "2x8x12", r"window|mask.*(3|2)", "causal"),
    _wrong("window_ignored", "2x8x12", r"mask|window|causal", "linen"),
    _wrong("window_ignored", "2x8x12", r"window|mask.*(3|2)", "linen_causal"),
    _equal("rmsprop", "g=6x5 nu=6x5"),
    _wrong(
        "rmsprop",
        "g=6x5 nu=6x5",
        r"(root|sqrt) (after|before|outside|inside)|(after|before|outside|inside).*(root|sqrt)",
        "eps",
    ),
    _wrong("rmsprop", "g=6x5 nu=6x5", r"0\.9\b.*0\.99|0\.99.*0\.9\b", "decay"),
    _equal("ema", "4x6", flags="--weights loaded"),
    _wrong("ema", "4x6", r"weight|average", flags="--weights loaded", placed=False),
    _wrong("init_truncated", "2x300", r"weight", flags="--weights loaded", placed=False),
    _equal("attention_layers", "2x6x16"),
    _equal("attention_layers", "2x6x16", "jax_layer_alone", "torch_split"),
    _equal("attention_layers", "2x6x16", "jax_split", "torch_split"),
    _equal("attention_layers", "2x6x16", "jax_renamed", "torch_split"),
    _equal("attention_layers", "2x6x16", "jax_fused", "torch_fused"),
    _equal("attention_layers", "2x6x16", "jax_split", "torch_fused"),
    _equal("attention_layers", "2x6x16", "jax_fused", "torch"),
    _equal("encoder_layer", "2x6x16"),
    _wrong("encoder_layer", "2x6x16", r"eps.*1e-0?5.*1e-0?6|eps.*1e-0?6.*1e-0?5", "epsilon"),
    _wrong("encoder_layer", "2x6x16", r"norm|residual|order", "pre_norm"),
    _equal("norms", "2x3x4x8", "jax_layer", "torch_layer"),
    _equal("norms", "2x3x4x8", "jax_group", "torch_group"),
    _wrong("norms", "2x3x4x8", r"eps.*1e-0?5.*1e-0?6|eps.*1e-0?6.*1e-0?5", "layer", "torch_layer"),
    _wrong("norms", "2x3x4x8", r"eps.*1e-0?5.*1e-0?6|eps.*1e-0?6.*1e-0?5", "group", "torch_group"),
    _equal("conv_layers", "2x4x9", "jax_1d", "torch_1d"),
    _equal("conv_layers", "2x3x6x5", "jax_2d", "torch_2d"),
    _equal("conv_layers", ":images", "jax_channels_last", "torch_2d"),
    _equal("stacked_layers", "2x6x8"),
    _equal("stacked_layers", "2x6x8", "scanned"),
    _equal("stacked_layers", "2x6x8", "remat"),
    _equal("stacked_layers", "2x6x8", "jit"),
    _wrong("stacked_layers", "2x6x8", r"eps.*(0\.001|1e-0?3)"),
    _equal("small_modules", "2x7:30", "jax_tied", "torch_tied"),
    _equal("small_modules", "2x7:30", "jax_positions", "torch_positions"),
    _equal("small_modules", "x=2x6", "jax_dropped", "torch_dropped", "--jax-options train=False"),
    _equal("small_modules", ":batch", "jax_batch", "torch_batch"),
    _equal("small_modules", "2x6", "jax_numbered", "torch_numbered"),
    _equal("small_modules", "2x6", "jax_masked", "torch_numbered"),
    _equal("small_modules", "2x6", "jax_sequence", "torch_sequence"),
    _equal("nnx_blocks", "2x5x12"),
    _equal("nnx_blocks", "2x5x12", "split"),
    _wrong("nnx_blocks", "2x5x12", r"eps.*(0\.001|1e-0?3)", "epsilon"),
    _wrong("nnx_blocks", "2x5x12", r"gelu", "gelu"),
    _equal("user_llama", "2x7x24"),
    _wrong("user_llama", "2x7x24", r"(theta|base).*(10000|1e\+?0?4).*(500000|5e\+?0?5)", "theta"),
    _wrong("user_llama", "2x7x24", r"interleav|pairs|halves|neighbou?r", "interleaved"),
    _wrong("user_llama", "2x7x24", r"rotat|rotary|position", "unrotated"),
    _wrong("user_llama", "2x7x24", r"tile|repeat|head", "tiled"),
    _wrong("user_llama", "2x7x24", r"scale|factor|sqrt|0\.5\b", "scale"),
    _wrong("user_llama", "2x7x24", r"window|mask", "window"),
    _wrong("user_llama", "2x7x24", r"causal|mask", "not_causal"),
    _wrong("user_llama", "2x7x24", r"-?3(\.0)?\b.*inf|inf.*-3|mask.*(fill|-3)", "weak_mask"),
    _wrong("user_llama", "2x7x24", r"ax(is|es)|head", "axis"),
    _wrong("user_llama", "2x7x24", r"head|transpos|order|permut", "merged"),
    _wrong("user_llama", "2x7x24", r"residual|norm|added|\bx\b", "residual"),
    _wrong("user_llama", "2x7x24", r"silu|gate|swap|branch", "other_branch"),
    _equal("transformers_models", ":text", "jax_bert", "torch_bert"),
    _equal("transformers_models", ":text", "jax_gpt2", "torch_gpt2"),
    _equal("transformers_models", ":text_to_text", "jax_t5", "torch_t5"),
    _equal("transformers_models", ":text", "jax_llama", "torch_llama"),
    _equal("transformers_models", ":images", "jax_vit", "torch_vit"),
    _equal("transformers_models", ":text_and_images", "jax_clip", "torch_clip"),
    _wrong("transformers_models", ":text", r"gelu", "gelu", "torch_bert", placed=False),
    _wrong("transformers_models", ":text", r"eps", "epsilon", "torch_bert", placed=False),
    _wrong("transformers_models", ":text", r"theta|base", "theta", "torch_llama", placed=False),
    _wrong("transformers_models", ":text", r"window", "jax_mistral", "torch_mistral", placed=False),
    *_report("resize_align_corners", "2x3x4x5", r"resi|scale|corner|interpol|grid"),
    *_report("resize_antialias", "2x3x9x8", r"antialias|smooth|resi"),
    *_report("resize_cubic", "2x7x6", r"0\.75.*0\.5|0\.5.*0\.75"),
    *_report("resize_nearest", "2x3x5", r"index|nearest|shift|gather|centre|pixel"),
    *_report("max_pool_ceil", "2x2x6x8", r"pad|window|valid|ceil"),
    *_report("max_pool_same", "2x3x8x6", r"pad|window|same"),
    *_report("group_norm_epsilon", "2x6x3x4", r"eps.*1e-0?6.*1e-0?5|eps.*1e-0?5.*1e-0?6"),
    *_report("unbiased_std", "2x7x4", r"n ?- ?1|ddof|unbiased|1\.08|0\.92|6.*7"),
    *_report("space_to_depth", "2x3x4x6", _ORDER),
    *_report("conv_transpose_padding", "2x3x5x4", r"pad"),
    *_report("rms_norm_epsilon", "3x6", r"eps.*1e-0?5"),
    *_report("gru_reset", "2x4x3", r"reset|gate|before|matri|product"),
    *_report("timestep_order", "5", r"sin|cos|order|concat"),
    *_report("timestep_shift", "5", r"3.*4|4.*3|frequenc|expon"),
    *_report("patch_order", "2x3x4x6", _ORDER),
    *_report(
        "weight_standardization", "2x3x5x4", r"eps.*(dev|std|root|sqrt)|(sum|plus|eps).*(sqrt|root)"
    ),
    *_report("hard_sigmoid", "4x6", r"0\.2|1/6|0\.166|slope|hard.?sigmoid"),
    *_report("quick_gelu", "4x6", r"gelu|1\.702"),
    *_report("kl_direction", "4x5 4x5", r"KL|swap|revers|other way|exp|target"),
    *_report("kl_batchmean", "4x5 4x5", r"\b5\b|mean|sum|factor"),
    *_report("resnet_stride", "2x4x6x8", r"strid"),
    *_report("bidirectional_padding", "3x6x3", r"length|revers|pad|order"),
    *_report("group_norm_layer_norm", "2x6x3x4", r"ax(is|es)|group|mean"),
    *_report("smooth_l1", "4x5 4x5", r"factor|0\.5|\b2\b|divi"),
    *_report("label_smoothing", ":inputs", r"smooth|0\.025|0\.02\b|0\.9\b|label"),
    *_report("cosine_epsilon", "5x3 5x3", r"0\.2.*0\.04|0\.04.*0\.2|eps|squar"),
    *_report("padding_symmetric", "2x3x7", r"pad|reflect|symmetric|border"),
    *_report("circular_axis", "2x3x5x6", r"pad|ax(is|es)|transpos"),
    *_report("leaky_slope", "9x6", r"0\.2.*0\.01|0\.01.*0\.2"),
    *_report("same_padding_layer", "2x7x6", r"shift|slice|index|first|last|start"),
    *_report("mean_pooling", ":inputs", r"mask|mean|weight"),
    *_report("positions_of_mask", ":inputs", r"position|index|shift|mask|row"),
    *_report("median", "3x6", r"median|middle|lower|mean|index"),
    *_report("local_response", "2x3x3x4", r"0\.06.*0\.3|0\.3.*0\.06|factor.*5|\b5\b"),
    *_report("hann_window", "3x8", r"window|7.*8|8.*7|periodic|symmetric"),
    *_report("flipped_convolution", "2x5x7", r"flip|revers|mirror"),
    *_report("distillation_temperature", "4x5 4x5", r"\b9\b|temperature|factor"),
    *_report("squeeze_excite", "2x6x3x4", r"relu|order|moved|activation"),
    *_report(
        "logit_scale",
        "4x5 4x6",
        r"(no|without|skip|bypass|missing).*exp|where the reference has .*\bexp\b(?! \()",
    ),
    *_report("state_space_softplus", "2x5x4", r"softplus"),
    *_report("softplus_beta", "4x3", r"softplus|\b5\b|0\.2\b"),
    *_report("focal_arguments", ":inputs", r"0\.25.*2|2.*0\.25|swap|alpha|gamma"),
    *_report("masks_added", ":inputs", r"mask|10000|20000|twice|10,000"),
]
