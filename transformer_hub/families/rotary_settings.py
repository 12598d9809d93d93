"""The settings of rotary positions, in the form of transformers 4 and in that of 5.

Releases before 5 read `rope_theta`, `rope_scaling` and `partial_rotary_factor`; from 5 on all three
are in `rope_parameters`. Both forms are written, and either release takes them for the same: one
that finds only the form it does not know falls back to its default theta and says nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

from transformer_hub.families.settings import Settings
from transformer_spec.config import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    Rotary,
    YarnScaling,
)
from transformer_spec.fields import ConfigError
from transformer_spec.rotary import Scaling

_COEFFICIENTS = ("mscale", "mscale_all_dim")
_EVERYWHERE = ("rope_type", "rope_theta", "partial_rotary_factor")
# `finetuned` is a remark of YaRN's authors in the configs of their models.
_OF_TYPE = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        *_COEFFICIENTS,
        "truncate",
        "finetuned",
    ),
}


def read_rotary(
    settings: Settings,
    theta: float = 10000.0,
    partial: float | None = None,
    interleaved: bool = False,
) -> Rotary:
    """The rotary positions of a config.

    Args:
        settings: the config.
        theta: the default of its class.
        partial: the default share of a head that is rotated; none: the class rotates whole heads.
        interleaved: how the class pairs dimensions.
    """
    given = _merged(settings.get("rope_scaling", None), settings.get("rope_parameters", None))
    _check_known(given)
    length = settings.get("max_position_embeddings", None)

    def agreed(key: str, default: Any) -> Any:
        """A setting that stands beside the object, in it, or in both."""
        value = _agreed(key, settings.get(key, None), given.get(key))
        return default if value is None else value

    share = agreed("partial_rotary_factor", 1.0 if partial is None else partial)
    if partial is None and share != 1:
        raise ConfigError(
            f"partial_rotary_factor: {share!r} is not supported in this model_type; it must be 1"
        )
    return Rotary(
        theta=agreed("rope_theta", theta),
        fraction=share,
        interleaved=interleaved,
        scaling=_read_scaling(
            Settings(given, "rope_parameters"), agreed("original_max_position_embeddings", length)
        ),
    )


def write_rotary(rotary: Rotary, partial: bool = False) -> dict[str, Any]:
    """Both forms; `partial`: the class rotates a part of each head."""
    share = {"partial_rotary_factor": rotary.fraction} if partial else {}
    scaling = _write_scaling(rotary.scaling)
    return share | {
        "rope_theta": rotary.theta,
        "rope_scaling": scaling,
        "rope_parameters": (scaling or {"rope_type": "default"})
        | {"rope_theta": rotary.theta}
        | share,
    }


def _merged(*forms: Any) -> dict[str, Any]:
    """One dictionary of those given; where several say something, they must agree."""
    merged: dict[str, Any] = {}
    for form in forms:
        if not isinstance(form, Mapping | None):
            raise ConfigError(f"rope_parameters: {form!r} is not usable; it must be an object")
        for key, value in (form or {}).items():
            key = "rope_type" if key == "type" else key
            merged[key] = _agreed(key, merged.get(key), value)
    return merged


def _agreed(key: str, *values: Any) -> Any:
    given = [value for value in values if value is not None]
    if any(value != given[0] for value in given):
        raise ConfigError(f"{key}: given as {given[0]!r} and as {given[1]!r}; it must be one")
    return given[0] if given else None


def _check_known(given: Mapping[str, Any]) -> None:
    kind = given.get("rope_type") or "default"
    if not isinstance(kind, str) or kind not in _OF_TYPE:
        raise ConfigError(
            f"rope_type: {kind!r} is not supported; it must be one of {', '.join(_OF_TYPE)}"
        )
    for key in given:
        if key not in _EVERYWHERE + _OF_TYPE[kind]:
            raise ConfigError(f"rope_parameters: {key} is not supported for rope_type {kind!r}")


def _read_scaling(given: Settings, original: Any) -> Scaling:
    match given.get("rope_type", None):
        case "linear":
            return LinearScaling(factor=given.number("factor"))
        case "llama3":
            return Llama3Scaling(
                factor=given.number("factor"),
                low_freq_factor=given.number("low_freq_factor"),
                high_freq_factor=given.number("high_freq_factor"),
                original_max_seq_len=original,
            )
        case "yarn":
            given.require("truncate", True)
            factor = given.number("factor")
            return YarnScaling(
                factor=factor,
                original_max_seq_len=original,
                beta_fast=given.get("beta_fast", None) or 32.0,
                beta_slow=given.get("beta_slow", None) or 1.0,
                attention_factor=_attention_factor(given, factor),
            )
    return NoScaling()


def _attention_factor(given: Settings, factor: float) -> float | None:
    """The factor itself, or DeepSeek's two coefficients as the one they come to."""
    explicit, *scales = (given.get(key, None) for key in ("attention_factor", *_COEFFICIENTS))
    if explicit is not None or not all(scales):
        return explicit
    above, below = (0.1 * given.number(key) * math.log(factor) + 1 for key in _COEFFICIENTS)
    return above / below


def _write_scaling(scaling: Scaling) -> dict[str, Any] | None:
    match scaling:
        case NoScaling():
            return None
        case LinearScaling(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_seq_len,
            }
        case YarnScaling():
            given = scaling.attention_factor
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_seq_len,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
            } | ({} if given is None else {"attention_factor": given})
