"""A config.json read key by key; what we cannot follow is refused by its name."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transformer_spec.config import ModelConfig
from transformer_spec.fields import ConfigError, nearest

REQUIRED = object()

# The first of theirs for each of ours is the one written.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
}


def their_activation(ours: str, default: str = "") -> str:
    """Their name for an activation: the default of the config class where it means the same."""
    if ACTIVATIONS.get(default) == ours:
        return default
    return next(name for name, meaning in ACTIVATIONS.items() if meaning == ours)


@dataclass(frozen=True)
class Key:
    """A setting under their name and ours, or under several of ours that they cannot tell apart.

    `default` is what their config class takes where the key is absent, `aliases` are the other
    names it accepts.
    """

    theirs: str
    ours: str | tuple[str, ...]
    default: Any = REQUIRED
    aliases: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return self.ours if isinstance(self.ours, tuple) else (self.ours,)


def write_keys(keys: Iterable[Key], config: ModelConfig) -> dict[str, Any]:
    return {key.theirs: getattr(config, key.fields[0]) for key in keys}


class Settings:
    """The values of a config.json, or of an object within it.

    Attributes:
        architecture: the class that was saved, where the config says so.
        names: the tensors stored beside the config, where they are known.
        known: the keys that have been asked for.
        checked: the keys whose one supported value has been required.
    """

    def __init__(self, values: Any, where: str, names: Collection[str] | None = None):
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: expected an object of settings, got {values!r}")
        self._values = values
        self._where = where
        self.architecture: str | None = None
        self.names = names
        self.known: set[str] = set()
        self.checked: set[str] = set()

    def get(self, key: str, default: Any = REQUIRED, aliases: tuple[str, ...] = ()) -> Any:
        """The value of a key, whichever of its names it stands under."""
        self.known |= {key, *aliases}
        found = {name: self._values[name] for name in (key, *aliases) if name in self._values}
        if any(value != next(iter(found.values())) for value in found.values()):
            given = ", ".join(f"{name} {value!r}" for name, value in found.items())
            raise ConfigError(f"{self._where}: {given}: two names of one setting; remove one")
        if not found and default is REQUIRED:
            raise ConfigError(f"{key}: missing from the config of this {self._where}")
        return next(iter(found.values()), default)

    def number(self, key: str, default: Any = REQUIRED, aliases: tuple[str, ...] = ()) -> Any:
        """The value of a key with which we compute."""
        value = self.get(key, default, aliases)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key}: {value!r} is not usable; it must be a number")
        return value

    def require(self, key: str, supported: Any) -> None:
        """Refuse any value but the one supported; null, 0, false and empty are one."""
        self.checked.add(key)
        value = self._values.get(key, supported)
        if value != supported and (value or supported):
            raise ConfigError(
                f"{key}: {value!r} is not supported in {self._where}; it must be {supported!r}"
            )

    def activation(self, key: str, default: Any = REQUIRED) -> Any:
        name = self.get(key, default)
        if not isinstance(name, str) or name not in ACTIVATIONS:
            hint = nearest(str(name), ACTIVATIONS)
            raise ConfigError(f"{key}: no activation {name!r} is supported; {hint}")
        return ACTIVATIONS[name]

    def fields(self, keys: Iterable[Key]) -> dict[str, Any]:
        """Our fields and their values."""
        return {
            field: self.get(key.theirs, key.default, key.aliases)
            for key in keys
            for field in key.fields
        }
