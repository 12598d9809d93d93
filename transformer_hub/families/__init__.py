"""Every family: its config.json and its tensors, to ours and back.

A family is one file here that ends in `FAMILY = Family(...)`, or `llama_like(...)` for a descendant
of LLaMA, and one entry in MODULES.
"""

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from transformer_hub.families.family import Family, saved_classes
from transformer_hub.families.layout import Layout
from transformer_spec.fields import ConfigError, nearest

__all__ = ["FAMILIES", "Family", "Layout", "find"]

MODULES = (
    "gpt2",
    "bert",
    "t5",
    "llama",
    "mistral",
    "mixtral",
    "qwen3",
    "gemma2",
    "glm",
    "glm4",
    "chatglm",
    "chatglm2",
    "bloom",
)
FAMILIES: dict[str, Family] = {name: import_module(f"{__name__}.{name}").FAMILY for name in MODULES}


def find(hf: Mapping[str, Any], names: Collection[str] = ()) -> Family:
    """The family of a config.json: by `model_type`, then by the keys that set families apart.

    Where there is no `model_type`, as in old configs, the class that was saved decides; where that
    is absent too, as in the oldest, what the tensors' `names` begin with.

    Raises:
        ConfigError: there is no such family, or no telling which.
    """
    kind, saved = hf.get("model_type"), saved_classes(hf)
    if kind is None:
        found = [f for f in FAMILIES.values() if set(f.architectures) & set(saved)]
        if not saved:
            found = [f for f in FAMILIES.values() if any(map(f.claims, names))]
        known, given = {name for f in FAMILIES.values() for name in f.architectures}, saved
    else:
        found = [f for f in FAMILIES.values() if f.model_type == kind]
        known, given = {f.model_type for f in FAMILIES.values()}, kind
    if not found:
        field = "model_type" if kind is not None else "model_type and architectures"
        raise ConfigError(f"{field}: {given!r} is not supported; {nearest(str(given), known)}")
    if len(found) > 1:
        found = [family for family in found if any(mark in hf for mark in family.marks)]
    if len(found) != 1:
        marks = ", or ".join(" and ".join(f.marks) for f in FAMILIES.values() if f.marks)
        raise ConfigError(f"model_type: {kind!r} is one of several; the config must have {marks}")
    return found[0]
