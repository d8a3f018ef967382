"""Checks of data that comes from outside: types with bounds for pydantic, and one sentence for what it refuses."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from railyard.errors import ConfigError

_T = TypeVar("_T")

Name = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]

MOST_SHOWN = 100
"""Most characters of a wrong value that an error repeats."""
_UNKNOWN_KEY = "extra_forbidden", "unexpected_keyword_argument"
_BRANCHES = "float", "literal"
"""Beginnings of the names that pydantic gives to the branches of a union in the place of an error."""


def from_plain(kind: type[_T], data: Any, what: str, source: str | None = None) -> _T:
    """The dataclass ``kind`` from plain data, such as ``asdict`` returns, or from ``bytes`` of JSON.

    Raises ``ConfigError`` (``config_error``) for data that is not of this kind, also for unknown keys.
    """
    adapter: TypeAdapter[_T] = _adapter(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        if isinstance(data, bytes):
            return adapter.validate_json(data, extra="forbid")
        return adapter.validate_python(data, extra="forbid")
    except ValidationError as error:
        raise config_error(error, kind, what, source=source) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def config_error(
    error: ValidationError, kind: type[Any], what: str, *, source: str | None = None, tags: int = 0
) -> ConfigError:
    """The error of a person who wrote wrong data of ``kind``: it names the first wrong key and what would work.

    ``what`` names such data for an error about an unknown or a missing key ("a workload"), ``source`` is the file.
    ``tags``: how many parts of the place of the error name a member of a tagged union and no key.
    """
    first = error.errors(include_url=False)[0]
    parts = [part for part in first["loc"][tags:] if not str(part).startswith(_BRANCHES)]
    key = ".".join(map(str, parts)) or None
    if first["type"] in _UNKNOWN_KEY:
        known = ", ".join(_keys_beside(kind, parts))
        return ConfigError(f"is not a key of {what}; the keys here are {known}", key=key, source=source)
    if first["type"] == "missing":
        return ConfigError(f"is missing; {what} needs it", key=key, source=source)
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if first["type"] != "value_error" and not isinstance(first["input"], dict):
        shown = repr(first["input"])
        message += f", not {shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + '...'}"
    return ConfigError(message, key=key, source=source)


def _keys_beside(kind: Any, parts: list[int | str]) -> list[str]:
    """The keys that the object with the last of ``parts`` may have."""
    for part in parts[:-1]:
        if isinstance(part, str):
            kind = _object_type(get_type_hints(kind)[part])
    return sorted(kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__)


def _object_type(annotation: Any) -> Any:
    """The model or dataclass in an annotation such as ``tuple[Group, ...]`` or ``Cycle | None``; None without one."""
    if isinstance(annotation, type) and (is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        return annotation
    return next((found for part in get_args(annotation) if (found := _object_type(part))), None)
