"""A family: one kind of config.json and one layout of tensors, to ModelConfig and back."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from transformer_hub.families.layout import Layout
from transformer_hub.families.settings import Settings
from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError

# What any config.json may hold and no family can follow.
COMMON = {"quantization_config": None, "per_layer_config": None, "pruned_heads": None}


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is known of one family.

    Attributes:
        name: ours for it.
        model_type: theirs.
        architectures: the classes whose checkpoints are read.
        slots: field -> the variants it may hold; all else is found out by reading back.
        read: settings -> config.
        write: config -> what their config class needs, beside `architectures` and `model_type`.
        layout: config -> where each parameter is.
        architecture: config -> the class that opens what is written.
        marks: keys that tell it from another family of the same model_type.
        stem: what its classes, and those of no other family, begin the names of tensors with.
    """

    name: str
    model_type: str
    architectures: tuple[str, ...]
    slots: Mapping[str, tuple[type, ...]]
    read: Callable[[Settings], ModelConfig]
    write: Callable[[ModelConfig], dict[str, Any]]
    layout: Callable[[ModelConfig], Layout]
    architecture: Callable[[ModelConfig], str]
    marks: tuple[str, ...] = ()
    stem: str | None = None

    def claims(self, tensor: str) -> bool:
        """Whether a tensor of this name belongs to this family and no other."""
        return self.stem is not None and tensor.startswith(self.stem)

    def read_config(
        self, hf: Mapping[str, Any], names: Collection[str] | None = None
    ) -> ModelConfig:
        """The model a config.json describes.

        Args:
            hf: the content of config.json.
            names: the tensors stored beside it. They tell what a config leaves open: which heads a
                BERT has, whether the head of a T5 is tied.

        Raises:
            ConfigError: a setting is missing, or has a value under which the model would compute
                what ours does not. It is named.
        """
        return self.read(self._settings(hf, names))

    def write_config(self, config: ModelConfig, extra: Mapping[str, Any]) -> dict[str, Any]:
        """A config.json from which transformers builds this very model.

        Args:
            config: the model.
            extra: settings to carry along, such as token ids. Those that the config decides, under
                any of their names, are left out.

        Raises:
            ConfigError: the family has no way to say what some field holds. It is named.
        """
        for field, variants in self.slots.items():
            if not isinstance(getattr(config, field), variants):
                self._refuse(config, {field: " or ".join(v.__name__ for v in variants)})
        written = {"architectures": [self.architecture(config)], "model_type": self.model_type}
        written |= self.write(config)
        settings = self._settings(written, self.layout(config).their_shapes())
        self.read(settings)
        kept = {key: value for key, value in extra.items() if key not in settings.known}
        merged = kept | written
        self._check_same(config, self.read_config(merged, settings.names))
        return merged

    def _settings(self, hf: Mapping[str, Any], names: Collection[str] | None) -> Settings:
        settings = Settings(hf, self.name, names)
        saved = saved_classes(hf)
        for architecture in saved:
            if architecture not in self.architectures:
                known = ", ".join(self.architectures)
                raise ConfigError(f"architectures: {architecture!r} is not supported; only {known}")
        settings.architecture = saved[0] if saved else None
        for key, supported in COMMON.items():
            settings.require(key, supported)
        return settings

    def _check_same(self, config: ModelConfig, back: ModelConfig) -> None:
        wanted, got = _explicit(config), _explicit(back)
        names = [field.name for field in fields(ModelConfig)]
        wrong = [name for name in names if getattr(wanted, name) != getattr(got, name)]
        if wrong:
            self._refuse(config, {name: str(getattr(back, name)) for name in wrong})

    def _refuse(self, config: ModelConfig, expected: Mapping[str, str]) -> None:
        faults = "; ".join(
            f"{name}: {getattr(config, name)} cannot be written as {self.name}; it must be {right}"
            for name, right in expected.items()
        )
        raise ConfigError(faults)


def saved_classes(hf: Mapping[str, Any]) -> list[str]:
    """The classes a config.json says it was saved from, usually one."""
    saved = hf.get("architectures") or []
    if not (isinstance(saved, list) and all(isinstance(name, str) for name in saved)):
        raise ConfigError(f"architectures: {saved!r} is not usable; it must be a list of names")
    return saved


def _explicit(config: ModelConfig) -> ModelConfig:
    """The same model, with the fields that may be left to others filled in."""
    return replace(
        config,
        num_kv_heads=config.kv_heads,
        head_dim=config.head_size,
        attention_scale=config.score_scale,
    )
