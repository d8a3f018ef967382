"""The rows of a results folder as a page shows them: tables with plain cells, verdicts, and the points of each row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from experiments.report import ALL_COLUMNS_WIDTH, Report, Table
from measure.results.manifest import counting_points
from measure.results.row import ResultRow, Row
from measure.results.row import kind_of as kind_of_row

MOST_ROWS, MOST_CHARACTERS = 2000, 400
"""The most rows of a table, and characters of a cell; what is longer is cut, and of a table a note says so."""


@dataclass(frozen=True)
class RowPoints:
    """Which points a row was made of: those of its field ``point`` and of the same place in its other repeats."""

    of_place: Mapping[int, tuple[int, ...]]
    """For each point that counts: all that count for the same rows, in the order of repeats."""

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> RowPoints:
        """Read from the manifest's ``attempts``; without them a row is made of its own point alone."""
        return RowPoints({point: points for points in counting_points(manifest) for point in points})

    def points(self, row: Row) -> list[int]:
        """The points of a row, first the one that it shows; none for a row that names none."""
        own = row.get("point")
        if type(own) is not int:
            return []
        return list(dict.fromkeys((own, *self.of_place.get(own, ()))))


def table_payload(table: Table, points: RowPoints) -> dict[str, Any]:
    """A table with the columns that are not empty; ``wide`` columns may be left out where there is no room."""
    columns = table.shown(ALL_COLUMNS_WIDTH * 10)
    return {
        "title": table.title,
        "columns": [
            {"name": _in_one_line(column.name), "left": column.left, "wide": column.wide} for column in columns
        ],
        "rows": [
            {
                "cells": [_short(str(column.cell(row))) for column in columns],
                "faithful": _truth(row.get("faithful")),
                "points": points.points(row),
            }
            for row in table.rows[:MOST_ROWS]
        ],
    }


def verdicts(
    rows: Sequence[Row], report: Report, kinds: Sequence[type[ResultRow]], points: RowPoints
) -> Iterator[dict[str, Any]]:
    """The verdict on each row that was measured, with all its checks.

    ``what`` names the measured time, which is in seconds of the real system, as the predicted one is.
    """
    for row in rows[:MOST_ROWS]:
        if row.get("faithful") is None:
            continue
        what, measured, predicted = _times(row, kinds)
        yield {
            "title": _short(report.point(row)),
            "faithful": _truth(row["faithful"]),
            "verdict": str(row.get("verdict", "")),
            "points": points.points(row),
            "what": what,
            "measured_s": measured,
            "predicted_s": predicted,
            "checks": [
                {
                    "name": str(c["name"]),
                    "says": str(c["says"]),
                    "ok": bool(c["ok"]),
                    "judged": c.get("judged") is not False,
                }
                for c in row.get("checks", ())
            ],
        }


def uncounted_verdicts(manifest: Mapping[str, Any], uncounted: Set[int]) -> Iterator[dict[str, Any]]:
    """The verdicts on attempts that no row counts, from the manifest, which has no checks of them."""
    for attempt in manifest.get("attempts", ()):
        points = [point for point in attempt["points"] if point in uncounted]
        if points:
            yield {
                "title": _short(f"{attempt['piece']}, attempt {attempt['attempt']}, which does not count"),
                "faithful": _truth(attempt["faithful"]),
                "verdict": str(attempt.get("verdict", "")),
                "points": points,
                "what": "",
                "measured_s": None,
                "predicted_s": None,
                "checks": [],
            }


def titles(rows: Sequence[Row], report: Report, points: RowPoints) -> dict[int, str]:
    """The name of each point by the rows that were made of it, as in the verdict; several names are joined."""
    found: dict[int, dict[str, None]] = {}
    for row in rows:
        for point in points.points(row):
            found.setdefault(point, {})[report.point(row)] = None
    return {point: _short(joined([name for name in names if name])) for point, names in found.items()}


def joined(names: Sequence[str]) -> str:
    """Several names as one: first the parts between commas that all begin or end with, then what differs."""
    parts = [name.split(", ") for name in names]
    before = _common(parts)
    after = _common([part[before:][::-1] for part in parts])
    common = [*parts[0][:before], *parts[0][len(parts[0]) - after :]] if names else []
    differing = [", ".join(part[before : len(part) - after]) for part in parts]
    if not common or not all(differing):
        return "; ".join(names)
    return f"{', '.join(common)}: {'; '.join(differing)}"


def _common(names: Sequence[Sequence[str]]) -> int:
    """The number of parts with which all names begin."""
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False)))


def _times(row: Row, kinds: Sequence[type[ResultRow]]) -> tuple[str, float | None, float | None]:
    """The first main number of a row that is a time: its name, its value and the model's; None where there is none."""
    kind = kind_of_row(row, kinds)
    for name in getattr(kind, "main", ()):
        if name.endswith("_s") and _number(row.get(name)) is not None:
            what = name.removesuffix("_s").replace("_", " ")
            return what, _number(row[name]), _number(row.get(f"predicted_{name}"))
    return "", None, None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _in_one_line(name: str) -> str:
    """The name of a column without line breaks, and without the hyphen of a word that was broken."""
    return " ".join(name.replace("-\n", "").split())


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
