"""Results that were changed, or are of another version: one sentence in place of an error of the code that reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure.results.folder import manifest_of
from measure.results.manifest import other_version
from measure.results.row import ResultRow, Row, defaults_of, kind_of
from railyard import __version__
from railyard.errors import ConfigError, shortened
from railyard.validation import from_plain
from railyard.verdict import NOT_FAITHFUL


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Within it an error of values that this version does not write becomes a ``ConfigError`` about ``folder``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        remedy = other_version(manifest_of(folder) or {}) or "use the version that wrote it, or run it again"
        what = f"{type(error).__name__}: {shortened(str(error))}"
        raise ConfigError(
            f"{folder} holds what Railyard {__version__} does not write ({what}); {remedy}", key="results"
        ) from error


def check_rows(
    rows: Sequence[Row], kinds: Sequence[type[ResultRow]], manifest: Mapping[str, Any] | None = None
) -> None:
    """Raise ``ConfigError`` for the first row that is not of its type, one of ``kinds`` (``kind_of``), with the field.

    So it does for a row that is faithful where its own checks or its verdict say that it is not. The sentence says what
    to do, by the ``manifest`` of the rows.
    """
    remedy = other_version(manifest or {}) or "restore the file, or run the experiment again"

    def wrong(number: int, field: str, sentence: str) -> ConfigError:
        return ConfigError(f"{sentence}; {remedy}", key=f"row {number}: {field}")

    for number, row in enumerate(rows):
        kind = kind_of(row, kinds)
        missing = next((name for name in (defaults_of(kind) if kind is not None else ()) if name not in row), None)
        if missing is not None:
            raise wrong(number, missing, "is missing")
        try:
            if kind is not None:
                from_plain(kind, json.dumps(row).encode(), "a row", strict=True)
        except ConfigError as error:
            raise wrong(number, error.key or "", error.message) from None
        if row.get("faithful") is True:
            failed = next((check for check in row.get("checks") or () if check.get("ok") is False), None)
            if failed is not None:
                raise wrong(number, "faithful", f"is true, but check {failed.get('name')} of the row failed")
            if str(row.get("verdict", "")).startswith(NOT_FAITHFUL):
                raise wrong(number, "faithful", f"is true, but its verdict is {NOT_FAITHFUL}")
