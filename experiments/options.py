"""Options of the command line, made from the fields of an experiment's settings.

Key ``steps`` is ``--steps``; a unit at the end of a key is left out of the option and shown with its value
(``delay_ms``: ``--delay MS``). A key of a section has the section's name before it (``job.compute_s``:
``--job-compute``), unless the field has an ``Option``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from experiments.settings import Option, is_list, parts
from railyard.errors import ConfigError

_UNITS = {"_ms": "MS", "_s": "S", "_ps": "PS", "_db": "DB"}


@dataclass(frozen=True)
class FieldOption:
    """The option of one field: ``path`` are the keys that lead to it, ``names`` the words of the option."""

    path: tuple[str, ...]
    names: tuple[str, ...]
    metavar: str
    text: str
    default: Any
    kind: Literal["value", "list", "flag", "const"]
    const: Any = None

    @property
    def key(self) -> str:
        """The dotted key of the field in an experiment file."""
        return ".".join(self.path)

    @property
    def help(self) -> str:
        """The help text, with the default, and the key unless the option has the same name."""
        default = in_words(self.default) if self.kind in ("value", "list") else ""
        notes = [f"key {self.key}"] if self.names[0] != f"--{self.key}".replace("_", "-") else []
        notes += [f"default {default}"] if default else []
        return self.text + (f" ({', '.join(notes)})" if notes else "")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the option to ``parser``; a value that is not given is None."""
        add: dict[str, Any] = {"dest": self.key, "default": None, "help": self.help.replace("%", "%%")}
        if self.kind == "flag":
            parser.add_argument(*self.names, action=argparse.BooleanOptionalAction, **add)
        elif self.kind == "const":
            parser.add_argument(*self.names, action="store_true", **add)
        else:
            parser.add_argument(*self.names, metavar=self.metavar, **add)

    def value(self, given: Any) -> Any:
        if self.kind == "list" and isinstance(given, str):
            words = [word.strip() for word in given.split(",")] if given.strip() else []
            if "" in words:
                written = ",".join(filter(None, words))
                raise ConfigError(f"has an empty entry; write {written or 'its entries'}", key=self.names[0])
            return words
        return self.const if self.kind == "const" else given


def in_words(value: Any) -> str:
    """A value of a setting as a person would type it; empty for None and for a section."""
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(in_words, value))
    if isinstance(value, float) and 0 < value < 0.1 and abs(1 / value - round(1 / value)) < 1e-9:
        return f"1/{1 / value:.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_options(
    model: type[BaseModel], before: tuple[str, ...] = (), defaults: BaseModel | None = None
) -> Iterator[FieldOption]:
    """The options of all fields of ``model`` and its sections, in order; ``defaults`` replaces those of the model."""
    for name, field in model.model_fields.items():
        default = getattr(defaults, name) if defaults else field.get_default(call_default_factory=True)
        declared = [each for each in field.metadata if isinstance(each, Option)]
        section = next((kind for kind in parts(field.annotation) if _is_section(kind)), None)
        if section is not None:
            yield from field_options(section, (*before, name), default)
        else:
            declared = declared or [Option()]
        for option in declared:
            yield _field_option(field, default, (*before, name), option)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _field_option(field: FieldInfo, default: Any, path: tuple[str, ...], option: Option) -> FieldOption:
    stem = "-".join(path).replace("_", "-")
    metavar = "N" if field.annotation is int else stem.rpartition("-")[2].upper()
    for unit, shown in _UNITS.items():
        if path[-1].endswith(unit):
            stem, metavar = stem.removesuffix(unit.replace("_", "-")), shown
    choices = _choices(field.annotation)
    names = (option.name or f"--{stem}",)
    text = field.description or ""
    if choices:
        text = f"{text}: {', '.join(choices)}" if text else ", ".join(choices)
        metavar = "NAME"
    if option.const is not ...:
        return FieldOption(path, names, "", text, None, "const", option.const)
    listed = is_list(field.annotation)
    metavar = option.metavar or metavar + (",..." if listed else "")
    kind: Literal["value", "list", "flag"] = (
        "list" if listed else "flag" if bool in parts(field.annotation) else "value"
    )
    return FieldOption(path, names, metavar, text, default, kind)


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words of a Literal, or of the elements of a list of a Literal; empty for other types."""
    part, *others = parts(annotation)
    inner = get_args(part)[0] if get_origin(part) is tuple else part
    return tuple(map(str, get_args(inner))) if get_origin(inner) is Literal and not others else ()


def settings_values(options: argparse.Namespace, model: type[BaseModel]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the options that were given, nested as in an experiment file, and the option of each dotted key."""
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    for option in field_options(model):
        given = getattr(options, option.key, None)
        if given is None:
            continue
        place = values
        for part in option.path[:-1]:
            place = place.setdefault(part, {})
        place[option.path[-1]] = option.value(given)
        named[option.key] = option.names[0]
    return values, named


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` with the keys of ``above``, section by section."""
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found
