"""What a page shows of a results folder beside its events: points, tables, verdicts, findings, figures and drawings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

from commands.page.view.bars import looks
from commands.page.view.drawing import drawing
from experiments.acts import ACTED_ON
from experiments.experiment import Experiment
from experiments.redraw import kind_of, read_folder
from experiments.report import (
    ALL_COLUMNS_WIDTH,
    Report,
    Table,
    calibration_lines,
    judged,
    repeat_lines,
    scale_lines,
    verdict_lines,
)
from measure.results.manifest import counting_points, left_out, plans_of, scale_of
from measure.results.partial import COMPLETE, PARTIAL, STOPPED, measured_in
from measure.results.partial import partial as what_lacks
from measure.results.plain import plain
from measure.results.results import FIGURES, Results
from measure.results.row import ResultRow, Row
from measure.results.row import kind_of as kind_of_row
from railyard.errors import ConfigError
from railyard.scale import scale_in_words
from railyard.verdict import NOT_FAITHFUL

FORMAT = 1
T = TypeVar("T")
State = Literal["live", "complete", "stopped", "killed", "predicted"]


class Overview:
    """The overview of a folder without its events, made once of the files that are there.

    ``kind`` is its experiment, for code that is not part of Railyard. What the code of an experiment cannot make is
    left out, with a note, and so is all that needs code that is not here. ``ConfigError`` for rows that no run writes.
    """

    def __init__(self, results: Results, kind: type[Experiment[Any]] | None = None, *, live: bool = False) -> None:
        self.notes: list[str] = []
        self.live = live
        self._results = results
        self.kind = kind or self._try(lambda: kind_of(results), None)
        self.recorded = read_folder(results, self.kind, events=())
        self.manifest = manifest = self.recorded.manifest
        self.notes += [n for n in self.recorded.notes if n not in (self.recorded.partial, self.recorded.acted_on)]
        self._scale, self._points, self._uncounted = scale_of(manifest), RowPoints.of(manifest), left_out(manifest)
        self._titles = self._try(self._titles_of_points, dict[int, str]())
        self._payload: dict[str, Any] = plain(self._without_points())

    def payload(self, points: Sequence[Mapping[str, Any]], unreadable: int = 0) -> dict[str, Any]:
        """The overview as plain data.

        ``points`` are those that the events tell of (``RunView.points``); here they get the titles of their rows, and
        whether they count. ``unreadable`` is the number of lines that are cut short.
        """
        running = [point["number"] for point in points if point["state"] == "running"] if self.live else []
        return {
            **self._payload,
            "unreadable": unreadable,
            "points": plain([self._point(point) for point in points]),
            "progress": {**self._payload["progress"], "running": running[-1] if running else None},
        }

    def _point(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """A point with the title of its rows, if it has some, and whether any row counts it."""
        number = point["number"]
        title = self._titles.get(number) or point["title"]
        counts = point["state"] == "measured" and number not in self._uncounted
        return {**point, "title": title, "counts": counts}

    def _try(self, make: Callable[[], T], otherwise: T) -> T:
        """The value of ``make``; ``otherwise``, and a note, where the code of an experiment is not here, or fails."""
        try:
            return make()
        except ConfigError as error:
            note = str(error)
        except Exception as error:  # the code of somebody's experiment may raise anything
            note = f"A part of the overview cannot be made ({type(error).__name__}: {error})."
        if note not in self.notes:
            self.notes.append(note)
        return otherwise

    def _list(self, make: Callable[[], Iterable[T]]) -> list[T]:
        """All that ``make`` gives; nothing, and a note, where that cannot be made."""
        empty: list[T] = []
        return self._try(lambda: list(make()), empty)

    def _titles_of_points(self) -> dict[int, str]:
        return {} if self.kind is None else titles(self.recorded.rows, self.kind.report(), self._points)

    # ---- the payload -------------------------------------------------------------------------------------------------

    def _without_points(self) -> dict[str, Any]:
        manifest = self.manifest
        found = {
            "format": FORMAT,
            "name": self._results.folder.resolve().name,
            "experiment": self._results.experiment,
            "command": manifest.get("command"),
            "written": manifest["written"],
            "ended": manifest.get("ended"),
            "state": self._state(),
            "seed": manifest["seed"],
            "machine": _flat(manifest.get("machine", {})),
            "versions": _flat(manifest["versions"]),
            "scale": self._scale_in_words(),
            "progress": {
                "planned": manifest.get("planned"),
                "measured": sum(map(measured_in, self.recorded.rows)),
            },
            "figures": list(_figures(self._results.folder / FIGURES)),
            "plans": {name: _drawn(plan, self._scale) for name, plan in plans_of(manifest).items()},
            "looks": looks(),
            "tables": [],
            "verdicts": [],
            "findings": [],
            "calibrated": [],
        }
        if self.kind is not None and self.recorded.rows:
            self._add_report(found, self.kind, self.kind.report())
        found["stamps"] = self._list(self._stamps)
        found["notes"] = self.notes
        return found

    def _add_report(self, found: dict[str, Any], kind: type[Experiment[Any]], report: Report) -> None:
        """The parts of the report of the experiment: the same tables and lines as on the terminal."""
        rows, settings = self.recorded.rows, self.manifest["experiment"]
        tables = self._list(lambda: (table_payload(table, self._points) for table in report.tables(rows)))
        found["tables"] = [table for table in tables if table["rows"]]
        found["verdicts"] = self._list(lambda: verdicts(rows, report, kind.rows, self._points))
        found["verdicts"] += self._list(lambda: uncounted_verdicts(rows, self._uncounted, self._points))
        found["calibrated"] = self._list(lambda: calibration_lines(report, rows, settings))
        if not self._model_only:
            findings = self._list(lambda: map(str, report.findings(rows, settings)))
            found["findings"] = [*findings, *self._list(lambda: repeat_lines(judged(rows)))]

    def _state(self) -> State:
        ended = self.manifest.get("ended")
        if self.live:
            return "live"
        if self.manifest.get("predicted"):
            return "predicted"
        if ended == COMPLETE:
            return "complete"
        return "stopped" if (ended or "").startswith(STOPPED) else "killed"

    @property
    def _model_only(self) -> bool:
        """Whether no row was measured, although the experiment measures packets."""
        packets = self.kind is not None and self.kind.packets
        rows = self.recorded.rows
        return self.recorded.predicted or (packets and bool(rows) and all(row.get("faithful") is None for row in rows))

    def _stamps(self) -> Iterator[dict[str, str]]:
        """Stamps, to be seen before any number: not faithful, partial, or of the model alone."""
        rows = judged(self.recorded.rows)
        if self._model_only:
            yield _stamp("MODEL ONLY", "Nothing was measured: all numbers are those of the model.")
        elif any(row.get("faithful") is False for row in rows):
            report = Report(tables=lambda rows: ()) if self.kind is None else self.kind.report()
            first, *failed = [str(line).strip() for line in verdict_lines(rows, report.point)]
            yield _stamp(NOT_FAITHFUL, " ".join([first, *(f"{reason.rstrip('.')}." for reason in failed)]))
        if self.recorded.acted_on is not None:
            yield _stamp(ACTED_ON, self.recorded.acted_on)
        sentence = what_lacks(self.manifest, self.recorded.rows, under_way=self.live)
        if sentence is not None:
            yield _stamp(PARTIAL, sentence)

    def _scale_in_words(self) -> dict[str, Any]:
        words = " ".join(scale_lines(self.recorded.rows))
        if not words and (self.kind is None or self.kind.packets):
            words = f"Scaled by: {scale_in_words(self._scale)}."
        return {"rate": self._scale.rate, "time": self._scale.time, "says": words}


_drawn = lru_cache(maxsize=64)(drawing)
"""Drawings by plan, as the manifest is written again after each point."""


def _figures(folder: Path) -> Iterator[dict[str, str]]:
    """The figures of a results folder: those that are files of it, not links."""
    for path in sorted(folder.glob("*.png")):
        if path.is_file() and not path.is_symlink():
            yield {"name": path.stem, "file": path.name}


def _stamp(kind: str, says: str) -> dict[str, str]:
    """A stamp; its sentence does not say its kind again."""
    return {"kind": kind, "says": says.removeprefix(kind).lstrip(": ")}


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of the manifest with one value for each key; what is no single value is written as text."""
    simple = (str, int, float, bool, type(None))
    return {key: value if isinstance(value, simple) else str(value) for key, value in table.items()}


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPoints:
    """Which points a row was made of: those of its field ``point`` and of the same place in its other repeats."""

    of_place: Mapping[int, tuple[int, ...]]
    """For each point that counts: all that count for the same rows, in the order of repeats."""
    attempts: Sequence[Mapping[str, Any]]
    """The manifest's ``attempts``."""
    repeats: int | None
    """How often each point is measured; None for once, or if it is not known."""

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> RowPoints:
        """Read from the manifest's ``attempts``; without them a row is made of its own point alone."""
        of_place = {point: points for points in counting_points(manifest) for point in points}
        repeats = manifest["experiment"].get("repeats", 1)
        return RowPoints(of_place, manifest.get("attempts", ()), repeats if repeats > 1 else None)

    def points(self, row: Row) -> list[int]:
        """The points of a row, first the one that it shows; none for a row that names none."""
        own = row.get("point")
        if own is None:
            return []
        return list(dict.fromkeys((own, *self.of_place.get(own, ()))))

    def by_repeat(self, row: Row) -> Mapping[int, list[int]]:
        """The points of each repeat of a row, from 1; empty where a point is measured once."""
        own, found = self.points(row), dict[int, list[int]]()
        for attempt in self.attempts if self.repeats else ():
            mine = [point for point in attempt["points"] if point in own]
            if mine:
                found[attempt["repeat"] + 1] = mine
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
                "cells": [str(column.cell(row)) for column in columns],
                "faithful": row.get("faithful"),
                "points": points.points(row),
            }
            for row in table.rows
        ],
    }


def verdicts(
    rows: Sequence[Row], report: Report, kinds: Sequence[type[ResultRow]], points: RowPoints
) -> Iterator[dict[str, Any]]:
    """The verdict on each repeat of each row that was measured, with the checks that are kept of it.

    ``what`` names the measured time, which is in seconds of the real system, as the predicted one is. ``repeat`` counts
    from 1 up to ``repeats``; both are None where a point is measured once. ``checks_of`` says which checks are missing.
    """
    for row in rows:
        if row.get("faithful") is None:
            continue
        name, measured, predicted = _times(row, kinds)
        common = {
            "title": report.point(row),
            "what": name.removesuffix("_s").replace("_", " "),
            "predicted_s": predicted,
            "repeats": points.repeats,
        }
        repeats = points.by_repeat(row)
        if not repeats:
            checks = [_check(check) for check in row.get("checks", ())]
            own = {"faithful": row["faithful"], "verdict": row["verdict"], "checks": checks, "checks_of": None}
            yield {**common, **own, "points": points.points(row), "repeat": None, "measured_s": measured}
        values = (row.get("samples") or {}).get(name, (measured,))
        for repeat, mine in repeats.items():
            yield {
                **common,
                **_judged(row, repeat),
                "points": mine,
                "repeat": repeat,
                "measured_s": values[repeat - 1] if repeat <= len(values) else None,
            }


def _judged(row: Row, repeat: int) -> dict[str, Any]:
    """The verdict on one repeat of a row, and its checks (``measure.results.combine``).

    Checks have no number in the row of one measurement, which has them all. Else all are kept of one repeat, and of the
    others those that failed.
    """
    checks = row.get("checks", ())
    mine = [check for check in checks if check.get("repeat") in (repeat, None)]
    failed = [check["says"] for check in mine if not check["ok"]]
    full = next((check["repeat"] for check in sorted(checks, key=lambda check: not check["ok"])), None)
    more = f"; of repeat {repeat} those that failed" if failed else ""
    return {
        "faithful": not failed,
        "verdict": f"{NOT_FAITHFUL}: {'; '.join(failed)}" if failed else "faithful",
        "checks": [_check(check) for check in mine],
        "checks_of": None if full in (repeat, None) else f"The checks in full are kept for repeat {full} only{more}.",
    }


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    return {key: check[key] for key in ("name", "says", "ok", "judged")}


def uncounted_verdicts(rows: Sequence[Row], uncounted: Set[int], points: RowPoints) -> Iterator[dict[str, Any]]:
    """The verdicts on attempts that no row counts, from the manifest.

    Of the last attempt of a repeat, rows have checks all the same, with the number of the repeat.
    """
    place_of = {point: attempt["place"] for attempt in points.attempts for point in attempt["points"]}
    together = defaultdict[int, list[Row]](list)
    for row in rows:
        if row.get("point") in place_of:
            together[place_of[row["point"]]].append(row)
    last = {(attempt["place"], attempt["repeat"]): attempt for attempt in points.attempts}
    for attempt in points.attempts:
        mine = [point for point in attempt["points"] if point in uncounted]
        if not mine:
            continue
        number, place = attempt["repeat"] + 1, attempt["place"]
        own = together[place] if points.repeats and last[place, attempt["repeat"]] is attempt else ()
        kept = [_check(check) for row in own for check in row.get("checks", ()) if check.get("repeat") == number]
        checks = [check for n, check in enumerate(kept) if check not in kept[:n]]
        only = "Only the checks that failed are" if checks else "No checks in full are"
        yield {
            "title": f"{attempt['piece']}, attempt {attempt['attempt']}, which does not count",
            "faithful": attempt["faithful"],
            "verdict": attempt["verdict"],
            "points": mine,
            "what": "",
            "measured_s": None,
            "predicted_s": None,
            "repeat": number if points.repeats else None,
            "repeats": points.repeats,
            "checks": checks,
            "checks_of": f"{only} kept of a measurement that does not count.",
        }


def titles(rows: Sequence[Row], report: Report, points: RowPoints) -> dict[int, str]:
    """The name of each point by the rows that were made of it, as in the verdict; several names are joined."""
    found: dict[int, dict[str, None]] = {}
    for row in rows:
        for point in points.points(row):
            found.setdefault(point, {})[report.point(row)] = None
    return {point: joined([name for name in names if name]) for point, names in found.items()}


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


def _in_one_line(name: str) -> str:
    """The name of a column without line breaks, and without the hyphen of a word that was broken."""
    return " ".join(name.replace("-\n", "").split())
