"""Results of another version, or that were changed: one sentence in place of an error of the code that reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_origin

from measure.metrics.checks import NOT_FAITHFUL
from measure.results.row import ResultRow, Row, kind_of, types_of
from railyard import __version__
from railyard.errors import ConfigError
from railyard.validation import shown

_AGAIN = "restore the file, or run the experiment again"


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Within it an error of values that this version does not write becomes a ``ConfigError`` about ``folder``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(
            f"{folder} holds what Railyard {__version__} does not write ({type(error).__name__}: {error}); "
            "use the version that wrote it, or run it again",
            key="results",
        ) from error


def check_rows(rows: Sequence[Row], kinds: Sequence[type[ResultRow]]) -> None:
    """Raise ``ConfigError`` for the first field of a row that is not of its type, and for a number that is not finite.

    The type of a row is one of ``kinds`` (``kind_of``). Any field may be empty, as in rows of another version.
    """
    for number, row in enumerate(rows):
        for place, of_row in _numbers(row):
            if not isfinite(of_row):
                raise _wrong(number, place, f"must be a finite number, not {shown(of_row)}; {_AGAIN}")
        kind = kind_of(row, kinds)
        for each in () if kind is None else fields(kind):
            value, wanted = row.get(each.name), _wanted(types_of(kind, each.name))  # type: ignore[arg-type]
            if value is not None and wanted and type(value) not in wanted:
                words = " or ".join(dict.fromkeys(wanted.values()))
                raise _wrong(number, each.name, f"must be {words}, not {shown(value)}; {_AGAIN}")


def _wanted(types: Sequence[Any]) -> dict[type, str]:
    """The types that a field of these may have in JSON, each in words; none where its content is not looked at."""
    wanted: dict[type, str] = {}
    for each in types:
        if each in (int, float):  # a median of whole numbers may be none
            wanted |= {int: "a number", float: "a number"}
        elif each is bool:
            wanted[bool] = "true or false"
        elif each is str or get_origin(each) is Literal:
            wanted[str] = "text"
        elif each is not type(None):
            return {}
    return wanted


def _numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """The floating-point numbers in a row, each with its place (``samples.step_time_s.0``)."""
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, (Mapping, list)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _numbers(item, f"{place}.{key}" if place else str(key))


def check_verdicts(rows: Sequence[Row]) -> None:
    """Raise ``ConfigError`` for a row that is faithful where its own checks or its verdict say that it is not."""
    for number, row in enumerate(rows):
        if row.get("faithful") is not True:
            continue
        failed = next((check for check in row.get("checks") or () if check.get("ok") is False), None)
        if failed is not None:
            raise _wrong(number, "faithful", f"is true, but check {failed.get('name')} of the row failed; {_AGAIN}")
        if str(row.get("verdict", "")).startswith(NOT_FAITHFUL):
            raise _wrong(number, "faithful", f"is true, but its verdict is {NOT_FAITHFUL}; {_AGAIN}")


def _wrong(number: int, field: str, sentence: str) -> ConfigError:
    return ConfigError(sentence, key=f"row {number}: {field}")
