"""Dataclass fields with a line of help and checked values; slots that hold one of variants."""

import ast
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar


def one_line(message: str) -> str:
    """Values come from files: what in them would break a line or steer a terminal is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


class ConfigError(ValueError):
    """A value that cannot be used. One line: the field, the value, what it may be."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


def field(help: str, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that carries its own line of help."""
    return dataclasses.field(default=default, metadata={"help": help})


def nearest(name: str, candidates: Iterable[str]) -> str:
    """`; did you mean X?` where a candidate is close, else the list of candidates."""
    candidates = sorted(candidates)
    if close := difflib.get_close_matches(name, candidates, n=1, cutoff=0.5):
        return f"did you mean {close[0]}?"
    return f"choose from {', '.join(candidates)}"


def require(condition: bool, field_name: str, value: Any, expected: str) -> None:
    """Raise the one-line ConfigError unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{field_name}: {value!r} is not usable; it must be {expected}")


def require_rate(field_name: str, value: float) -> None:
    require(0 <= value < 1, field_name, value, "in [0, 1)")


def require_positive(field_name: str, value: float) -> None:
    require(value > 0 and math.isfinite(value), field_name, value, "a finite number above 0")


class Variant:
    """Base of the dataclasses that can fill a slot of a config, e.g. `LayerNorm(eps=1e-5)`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        return {"type": type(self).__name__} | to_dict(self)

    def __str__(self) -> str:
        return repr(self)


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def choices(annotation: Any) -> tuple[str, ...]:
    """The words a field may hold; empty where it is no choice of words."""
    literals = [t for t in members(annotation) if typing.get_origin(t) is typing.Literal]
    return tuple(word for t in literals for word in typing.get_args(t))


def variants(annotation: Any) -> dict[str, type[Variant]]:
    """The variants a slot may hold, by name; empty where the field is no slot."""
    options = members(annotation)
    return {t.__name__: t for t in options if isinstance(t, type) and issubclass(t, Variant)}


def check_type(field_name: str, value: Any, annotation: Any) -> Any:
    """`value`, as the type its annotation asks for; an int is accepted where a float is wanted."""
    options = members(annotation)
    if value is None and types.NoneType in options:
        return None
    if words := choices(annotation):
        if value not in words:
            raise ConfigError(f"{field_name}: no {value!r}; {nearest(str(value), words)}")
        return value
    if float in options and type(value) is int:
        return float(value)
    names = " or ".join(t.__name__.replace("NoneType", "none") for t in options)
    require(any(type(value) is t for t in options), field_name, value, names)
    return value


def check_types(config: Any) -> None:
    """Check, and where exact convert, every field of a frozen dataclass in place."""
    annotations = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value = check_type(f.name, getattr(config, f.name), annotations[f.name])
        object.__setattr__(config, f.name, value)


def check_names(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise ConfigError(f"{name}: no such {kind}; {nearest(name, known)}")


def variant_from_dict(field_name: str, data: Mapping[str, Any], annotation: Any) -> Variant:
    options = variants(annotation)
    arguments = dict(data)
    name = arguments.pop("type", None)
    if not isinstance(name, str) or name not in options:
        raise ConfigError(f"{field_name}: no variant {name!r}; {nearest(str(name), options)}")
    variant = options[name]
    annotations = typing.get_type_hints(variant)
    check_names(f"field of {name}", arguments, [f.name for f in dataclasses.fields(variant)])  # type: ignore[arg-type]
    for key, value in arguments.items():
        if variants(annotations[key]) and isinstance(value, Mapping):
            arguments[key] = variant_from_dict(key, value, annotations[key])
    try:
        return variant(**arguments)
    except TypeError as error:  # a required argument is missing
        raise ConfigError(f"{field_name}: {error}") from None


def parse_variant(field_name: str, text: str, annotation: Any) -> Variant:
    """`"RMSNorm"` or `"RMSNorm(eps=1e-6)"` as the variant it names; nothing is evaluated."""
    try:
        data = _called(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        hint = " or ".join(variants(annotation))
        raise ConfigError(f"{field_name}: cannot read {text!r}; write {hint}") from None
    return variant_from_dict(field_name, data, annotation)


def _called(node: ast.expr) -> dict[str, Any]:
    """`Name` or `Name(key=value, ...)` as a dictionary; a value may be such a call itself."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if call.args or not isinstance(call.func, ast.Name):
        raise ValueError("one name, arguments by keyword")
    values = {
        str(k.arg): _called(k.value)
        if isinstance(k.value, ast.Call | ast.Name)
        else ast.literal_eval(k.value)
        for k in call.keywords
    }
    return {"type": call.func.id} | values


def parse_value(field_name: str, text: str, annotation: Any) -> Any:
    """The text of a command-line flag as the value of a field."""
    options = members(annotation)
    if types.NoneType in options and text.lower() == "none":
        return None
    if variants(annotation):
        return parse_variant(field_name, text, annotation)
    if bool in options:
        require(text.lower() in ("true", "false"), field_name, text, "true or false")
        return text.lower() == "true"
    for number in (int, float):
        if number in options:
            try:
                return number(text)
            except ValueError:
                raise ConfigError(
                    f"{field_name}: {text!r} is not usable; it must be {number.__name__}"
                ) from None
    return check_type(field_name, text, annotation)


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values; a slot becomes `{"type": NAME, ...}`."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {k: v.to_dict() if isinstance(v, Variant) else v for k, v in values.items()}


def from_dict(cls: type, data: Mapping[str, Any]) -> Any:
    """The inverse of `to_dict`; unknown, missing and ill-typed fields are refused by name."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{cls.__name__}: expected an object of fields, got {data!r}")
    annotations = typing.get_type_hints(cls)
    check_names(f"field of {cls.__name__}", data, annotations)
    values = dict(data)
    for name, value in values.items():
        if variants(annotations[name]) and isinstance(value, Mapping):
            values[name] = variant_from_dict(name, value, annotations[name])
    for f in dataclasses.fields(cls):
        if f.name not in values and f.default is dataclasses.MISSING:
            raise ConfigError(f"{f.name}: missing from {cls.__name__}")
    return cls(**values)
