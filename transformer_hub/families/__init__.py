"""Every family: its config.json and its tensors, to ours and back."""

from collections.abc import Collection, Mapping
from typing import Any

from transformer_hub.families.bert import BERT
from transformer_hub.families.bloom import BLOOM
from transformer_hub.families.chatglm import CHATGLM
from transformer_hub.families.chatglm2 import CHATGLM2
from transformer_hub.families.family import Family, saved_classes
from transformer_hub.families.glm import GLM, GLM4
from transformer_hub.families.gpt2 import GPT2
from transformer_hub.families.layout import Layout
from transformer_hub.families.llama import LLAMA, MISTRAL
from transformer_hub.families.mixtral import MIXTRAL
from transformer_hub.families.t5 import T5
from transformer_spec.fields import ConfigError, nearest

__all__ = ["FAMILIES", "Family", "Layout", "find"]

FAMILIES = {
    family.name: family
    for family in (GPT2, BERT, T5, LLAMA, MISTRAL, MIXTRAL, GLM, GLM4, CHATGLM, CHATGLM2, BLOOM)
}


def find(hf: Mapping[str, Any], names: Collection[str] = ()) -> Family:
    """The family of a config.json: by `model_type`, then by the keys that set families apart.

    Where there is no `model_type`, as in old configs, the class that was saved decides; where that
    is not told either, as in the oldest, what the tensors' `names` begin with.

    Raises:
        ConfigError: there is no such family, or no telling which.
    """
    kind, saved = hf.get("model_type"), saved_classes(hf)
    if kind is None:
        found = [f for f in FAMILIES.values() if set(f.architectures) & set(saved)]
        if not saved:
            found = [f for f in FAMILIES.values() if any(map(f.is_own, names))]
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
