"""Checks of data that comes from outside: types with bounds for pydantic, and one sentence for what it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from railyard.errors import MOST_SHOWN, ConfigError, nearest, shortened

_T = TypeVar("_T")

Name = Annotated[str, Field(min_length=1, max_length=4096)]
Whole = Annotated[int, Field(ge=0, le=2**53)]
"""A number or a count; the bound is that of whole numbers in JSON (RFC 8259, section 6)."""
Seconds = Annotated[float, Field(ge=0, le=1e6)]
"""A duration up to 11 days: a delay of 10 minutes at the slowest scale is shorter."""

_UNKNOWN_KEY = "extra_forbidden", "unexpected_keyword_argument"
_BRANCHES = ("float", "literal", "tuple", "int", "str", "constrained", "function", "nullable", "list", "dict")
"""Beginnings of the names that pydantic gives to the branches of a union in the place of an error."""
_BOUNDS = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text"}


def matching(pattern: str, words: str) -> AfterValidator:
    """For an annotation of text: it must match all of ``pattern``, or is refused: it must be ``words``."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {words}, not {shown(value)}")
        return value

    return AfterValidator(check)


class Section(BaseModel):
    """A mapping of a file that a person writes; unknown keys are refused and values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse yes and no (true and false) where a number or text is meant: pydantic takes them for 1 and 0."""
        annotation: Any = cls.model_fields[info.field_name or ""].annotation
        if not _takes_truth(annotation) and _has_truth(value):
            raise ValueError("must not be true or false (in YAML also yes, no, on and off)")
        return value


def shown(value: Any) -> str:
    """A wrong value for an error: of a long one, the beginning."""
    if isinstance(value, int) and abs(value) >= 10**MOST_SHOWN:  # of some, Python makes no text
        return f"one of more than {MOST_SHOWN} digits"
    return shortened(repr(value[: 2 * MOST_SHOWN] if isinstance(value, (str, bytes)) else value))


def _has_truth(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_truth, value))
    return isinstance(value, bool) or (isinstance(value, dict) and any(map(_has_truth, value.values())))


@cache
def _takes_truth(annotation: Any) -> bool:
    """Whether a truth value may be in a value of this type; a section, a dataclass or ``Any`` decides for itself."""
    if annotation in (bool, Any) or _object_type(annotation) is not None:
        return True
    return any(part is True or part is False or _takes_truth(part) for part in get_args(annotation))


def from_plain(kind: type[_T], data: Any, what: str, source: str | None = None, *, strict: bool | None = None) -> _T:
    """The dataclass ``kind`` from plain data, such as ``asdict`` returns, or from ``bytes`` of JSON.

    ``strict``: nothing is converted, such as text to a number.
    Raises ``ConfigError`` (``config_error``) for data that is not of this kind, also for unknown keys.
    """
    adapter: TypeAdapter[_T] = adapter_of(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        if isinstance(data, bytes):
            return adapter.validate_json(data, extra="forbid", strict=strict)
        return adapter.validate_python(data, extra="forbid", strict=strict)
    except ValidationError as error:
        raise config_error(error, kind, what, source=source) from None


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """The checker of values of a type; made once, for which pydantic may import more of itself."""
    return TypeAdapter(kind)


def config_error(
    error: ValidationError,
    kind: type[Any],
    what: str,
    *,
    source: str | None = None,
    tags: int = 0,
    names: Mapping[str, str] | None = None,
) -> ConfigError:
    """The error of a person who wrote wrong data of ``kind``: it names the first wrong key and what would work.

    ``what`` names such data for an error about a missing key ("a workload"), ``source`` is the file. ``tags``: how many
    parts of the place of the error name a member of a tagged union and no key. ``names`` gives the name of a key
    (dotted) to show in its place, such as that of an option; numbers of the parts of a list are then left out.
    """
    first = error.errors(include_url=False)[0]
    place = [part for part in first["loc"][tags:] if isinstance(part, int) or not _is_branch(part)]
    if names is not None:  # a list of an option is written with commas, so its parts have no numbers for a person
        place = [part for part in place if isinstance(part, str)]
    parts = [part for part in place if isinstance(part, str)]
    key = (names or {}).get(".".join(parts)) or shortened(".".join(map(str, place))) or None
    kind_of_error, given = str(first["type"]), first["input"]
    said = "" if isinstance(given, (dict, list, tuple)) else f", not {shown(given)}"
    if kind_of_error in _UNKNOWN_KEY:
        known = _keys_beside(kind, parts)
        near = nearest(parts[-1], known) or f"; the keys here are {', '.join(known)}"
        return ConfigError(f"there is no such key{near}", key=key, source=source)
    if kind_of_error == "missing" and isinstance(first["loc"][-1], int):
        return ConfigError("must have more entries", key=key, source=source)
    if kind_of_error == "missing":
        return ConfigError(f"is missing; {what} needs it", key=key, source=source)
    return ConfigError(_sentence(first, said), key=key, source=source)


def _is_branch(part: str) -> bool:
    """Whether a part of the place of an error names a branch of a union: ``float``, ``literal['auto']``."""
    return part in _BRANCHES or (part.partition("[")[0] in _BRANCHES and part.endswith("]"))


def _sentence(first: Any, said: str) -> str:
    kind, bounds = str(first["type"]), first.get("ctx", {})
    if kind == "literal_error":
        choices = str(bounds["expected"]).replace("'", "").replace(" or ", ", ")
        given = first["input"] if isinstance(first["input"], str) else ""
        return f"must be one of {choices}{said}{nearest(given, choices.split(', '))}"
    if kind in _BOUNDS:
        return f"must be {_BOUNDS[kind]} {next(iter(bounds.values())):g}{said}"
    if kind == "int_parsing_size":
        return f"{shown(first['input'])} is too large"
    if kind.partition("_")[0] in _KINDS and kind.endswith(("_parsing", "_type", "_from_float")):
        return f"must be {_KINDS[kind.partition('_')[0]]}{said}"
    if kind == "finite_number":
        return f"must be a finite number{said}"
    if kind == "too_short":
        return "must name at least one"
    if kind == "too_long":
        return f"must have at most {bounds['max_length']} entries"
    if kind in ("string_too_short", "string_too_long"):
        bound, number = next((key, value) for key, value in bounds.items() if key.endswith("_length"))
        least = "at least" if bound == "min_length" else "at most"
        return f"must have {least} {number} character{'s' if number != 1 else ''}{said}"
    if kind in ("tuple_type", "list_type"):
        return f"must be a list such as [a, b]{said}"
    if kind in ("model_type", "dataclass_type", "dict_type"):
        return f"must be a mapping of keys{said}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:] + (said if kind != "value_error" else "")


def _keys_beside(kind: Any, parts: list[str]) -> list[str]:
    """The keys that the object with the last of ``parts`` may have."""
    for part in parts[:-1]:
        kind = _object_type(get_type_hints(kind)[part]) if part in get_type_hints(kind) else kind  # else of a mapping
    return sorted(kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__)


def _object_type(annotation: Any) -> Any:
    """The model or dataclass in an annotation such as ``tuple[Group, ...]`` or ``Cycle | None``; None without one."""
    if isinstance(annotation, type) and (is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        return annotation
    return next((found for part in get_args(annotation) if (found := _object_type(part))), None)
