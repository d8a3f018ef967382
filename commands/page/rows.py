"""The rows of a results folder as a page shows them: tables with plain cells, verdicts, and the points of each row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from commands.page.view.fields import whole_of
from experiments.report import ALL_COLUMNS_WIDTH, Report, Table
from measure.metrics.checks import NOT_FAITHFUL
from measure.results.manifest import counting_points
from measure.results.row import ResultRow, Row
from measure.results.row import kind_of as kind_of_row

MOST_ROWS, MOST_CHARACTERS = 2000, 400
"""The most rows of a table, and characters of a cell; what is longer is cut, and of a table a note says so."""


_UNCLEAR = "Of several rows of this measurement it was not recorded which is not faithful."
_Repeats = Mapping[int, tuple[list[int], Mapping[str, Any]]]
"""By repeat, from 1, the points of a row and the attempt that measured them."""


@dataclass(frozen=True)
class RowPoints:
    """Which points a row was made of: those of its field ``point`` and of the same place in its other repeats."""

    of_place: Mapping[int, tuple[int, ...]]
    """For each point that counts: all that count for the same rows, in the order of repeats."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """The manifest's ``attempts``."""
    repeats: int | None = None
    """How often each point is measured; None for once, or if it is not known."""

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> RowPoints:
        """Read from the manifest's ``attempts``; without them a row is made of its own point alone."""
        of_place = {point: points for points in counting_points(manifest) for point in points}
        repeats = manifest.get("experiment", {}).get("repeats")
        return RowPoints(
            of_place, manifest.get("attempts", ()), repeats if type(repeats) is int and repeats > 1 else None
        )

    def points(self, row: Row) -> list[int]:
        """The points of a row, first the one that it shows; none for a row that names none."""
        own = row.get("point")
        if type(own) is not int:
            return []
        return list(dict.fromkeys((own, *self.of_place.get(own, ()))))

    def by_repeat(self, row: Row) -> _Repeats:
        """The points of each repeat of a row, from 1, and the attempt that measured them; empty if it has but one."""
        own, found = self.points(row), dict[int, tuple[list[int], Mapping[str, Any]]]()
        for attempt in self.attempts if self.repeats else ():
            mine = [point for point in attempt["points"] if point in own]
            if mine:
                found[attempt["repeat"] + 1] = mine, attempt
        return dict(sorted(found.items()))


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
    """The verdict on each repeat of each row that was measured, with the checks that are kept of it.

    ``what`` names the measured time, which is in seconds of the real system, as the predicted one is. ``repeat`` counts
    from 1 up to ``repeats``; both are None where a point is measured once. ``checks_of`` says which checks are missing.
    """
    together = _by_piece(rows, points)
    for row in rows[:MOST_ROWS]:
        if row.get("faithful") is None:
            continue
        name, measured, predicted = _times(row, kinds)
        title, checks = _short(report.point(row)), [_check(check) for check in row.get("checks", ())]
        what = name.removesuffix("_s").replace("_", " ")
        one = {"title": title, "what": what, "predicted_s": predicted, "repeats": points.repeats, "checks_of": None}
        repeats = points.by_repeat(row)
        if not repeats:
            own = {"faithful": _truth(row["faithful"]), "verdict": str(row.get("verdict", "")), "repeat": None}
            yield {**one, **own, "points": points.points(row), "measured_s": measured, "checks": checks}
        values = row.get("samples", {}).get(name, (measured,))
        for repeat, (mine, attempt) in repeats.items():
            yield {
                **one,
                **_judged(row, repeat, repeats, alone=len(together[_piece(attempt)]) == 1),
                "points": mine,
                "repeat": repeat,
                "measured_s": _number(values[repeat - 1]) if repeat <= len(values) else None,
            }


def _piece(attempt: Mapping[str, Any]) -> Any:
    """What tells the piece of an attempt from others; folders of other versions have only its name."""
    return attempt.get("place", attempt["piece"])


def _by_piece(rows: Sequence[Row], points: RowPoints) -> Mapping[Any, Sequence[Row]]:
    """The rows of each piece that was measured as one."""
    pieces = {point: _piece(attempt) for attempt in points.attempts for point in attempt["points"]}
    found = defaultdict[Any, list[Row]](list)
    for row in rows:
        for point in points.points(row)[:1]:
            found[pieces.get(point)].append(row)
    return found


def _judged(row: Row, repeat: int, repeats: _Repeats, *, alone: bool) -> dict[str, Any]:
    """The verdict on one repeat of a row, and its checks (``measure.results.combine``).

    An attempt has one verdict on all rows of its piece: it is that of a row only if the row is ``alone``.
    """
    checks, attempt = row.get("checks", ()), repeats[repeat][1]
    numbered = any(check.get("repeat") for check in checks)
    full = _full(row, repeats)
    mine = [check for check in checks if check.get("repeat") == (repeat if numbered or repeat != full else None)]
    failed = [str(check["says"]) for check in mine if not check["ok"]]
    faithful: bool | None = not failed
    verdict = f"{NOT_FAITHFUL}: {'; '.join(failed)}" if failed else "faithful"
    if _once(row) and repeat == full:
        faithful, verdict = _truth(row["faithful"]), str(row.get("verdict", ""))
    elif not numbered and not mine:
        faithful, verdict = _truth(attempt["faithful"]), str(attempt.get("verdict", ""))
        if not alone and not faithful:
            faithful, verdict = (True, "faithful") if row["faithful"] else (None, _UNCLEAR)
    if full is None:
        of = "It was not recorded of which repeat the checks are."
    else:
        more = f"; of repeat {repeat} those that failed" if failed else ""
        of = f"The checks in full are kept for repeat {full} only{more}."
    return {
        "faithful": faithful,
        "verdict": verdict,
        "checks": [_check(check) for check in mine],
        "checks_of": None if repeat == full else of,
    }


def _once(row: Row) -> bool:
    """Whether a row is that of one measurement, whose verdict and checks it has."""
    return not row.get("samples") and row.get("repeats", 1) == 1


def _full(row: Row, repeats: _Repeats) -> int | None:
    """The repeat of which a row has all checks; None if that cannot be told.

    Rows of other versions have the checks of one repeat without its number: of the shown one, or of the one whose
    reasons are the verdict.
    """
    for check in sorted(row.get("checks", ()), key=lambda check: not check["ok"]):
        if check.get("repeat"):
            return whole_of(check["repeat"])
    if row["faithful"] or _once(row):
        return next((repeat for repeat, (points, _) in repeats.items() if row.get("point") in points), None)
    why = str(row.get("verdict", "")).partition(" repeats: ")[2]
    same = [repeat for repeat, (_, one) in repeats.items() if one.get("verdict") == f"{NOT_FAITHFUL}: {why}"]
    return same[0] if same else None


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": str(check["name"]),
        "says": str(check["says"]),
        "ok": bool(check["ok"]),
        "judged": check.get("judged") is not False,
    }


def uncounted_verdicts(rows: Sequence[Row], uncounted: Set[int], points: RowPoints) -> Iterator[dict[str, Any]]:
    """The verdicts on attempts that no row counts, from the manifest.

    Of the last attempt of a repeat, rows have checks all the same, with the number of the repeat.
    """
    together = _by_piece(rows, points)
    last = {(_piece(attempt), attempt["repeat"]): attempt for attempt in points.attempts}
    for attempt in points.attempts:
        mine = [point for point in attempt["points"] if point in uncounted]
        if not mine:
            continue
        number, piece = attempt["repeat"] + 1, _piece(attempt)
        own = together[piece] if points.repeats and last[piece, attempt["repeat"]] is attempt else ()
        found = [_check(check) for row in own for check in row.get("checks", ()) if check.get("repeat") == number]
        checks = [check for place, check in enumerate(found) if check not in found[:place]]
        only = "Only the checks that failed are" if checks else "No checks in full are"
        yield {
            "title": _short(f"{attempt['piece']}, attempt {attempt['attempt']}, which does not count"),
            "faithful": _truth(attempt["faithful"]),
            "verdict": str(attempt.get("verdict", "")),
            "points": mine,
            "what": "",
            "measured_s": None,
            "predicted_s": None,
            "repeat": number if points.repeats else None,
            "repeats": points.repeats,
            "checks": checks,
            "checks_of": None
            if any(check["ok"] for check in checks)
            else f"{only} kept of a measurement that does not count.",
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
    """The first main number of a row that is a time: its field, its value and the model's; None where there is none."""
    kind = kind_of_row(row, kinds)
    for name in getattr(kind, "main", ()):
        if name.endswith("_s") and _number(row.get(name)) is not None:
            return name, _number(row[name]), _number(row.get(f"predicted_{name}"))
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
