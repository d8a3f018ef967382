"""Two runs of one experiment beside each other, as plain data for the report and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from commands.page.report.record import facts
from experiments.experiment import Experiment
from experiments.options import in_words as setting_in_words
from experiments.redraw import kind_of, read_folder
from experiments.report import MODEL_ONLY, Column, Recorded, in_words, yes_or_no
from measure.metrics.estimate import LEAST_ORDERED, Estimate
from measure.metrics.independent import Difference
from measure.results.combine import NOT_MEASURED
from measure.results.compare import Compared, Pair, compared, main_numbers, match, other_numbers
from measure.results.foreign import reading
from measure.results.manifest import scale_of
from measure.results.results import Results
from measure.results.row import ResultRow, Row
from measure.results.row import kind_of as kind_of_row
from railyard.errors import ConfigError
from railyard.scale import scale_in_words
from railyard.verdict import NOT_FAITHFUL

LETTERS = ("A", "B")


def _column(place: int, name: str, *, left: bool = False, wide: bool = False) -> Column:
    """A column of the texts that the cells of rows have at one place."""
    return Column(name, lambda row: row["cells"][place], left=left, wide=wide)


COLUMNS = (
    _column(0, "point", left=True),
    _column(1, LETTERS[0]),
    _column(2, LETTERS[1]),
    _column(3, "B - A", wide=True),
    _column(4, "95 % interval", wide=True),
    _column(5, "B - A\n%"),
    _column(6, "95 % interval\n%"),
    _column(7, "faithful", left=True),
)
"""The columns of each table of a comparison. A reader with little room needs one of both differences."""
_UNITS = (
    *(("_wall_s", "s wall-clock"), ("_wall_ms", "ms wall-clock"), ("_per_s", "1/s"), ("_gb_s", "GB/s")),
    *(("_gbps", "Gb/s"), ("_bytes", "bytes"), ("_percent", "%"), ("_ms", "ms"), ("_ps", "ps"), ("_db", "dB")),
    *(("_usd", "USD"), ("_w", "W"), ("_s", "s")),
)
"""The end of a field's name and the unit of its values, in the order in which they are tried."""


@dataclass(frozen=True)
class Side:
    """One of the two runs: its name, the class of its experiment, and what its folder holds."""

    name: str
    kind: type[Experiment[Any]]
    recorded: Recorded

    @staticmethod
    def read(folder: Path, kind: type[Experiment[Any]] | None = None) -> Side:
        """Read a results folder without its events; ``ConfigError`` if it is none, or of an unknown experiment."""
        results = Results.open(folder)
        kind = kind or kind_of(results)
        with reading(folder):
            return Side(folder.resolve().name, kind, read_folder(results, kind, events=()))


def comparison(a: Side, b: Side) -> dict[str, Any]:
    """The comparison of two runs: what differs between them, a table for each number, and points of one run alone.

    ``tables`` whose ``main`` is true have the numbers that the experiment is run for. A row has both estimates, the
    difference ``B - A`` in the unit of the number and in percent of A, each with its 95 % interval or None, and as
    ``cells`` the texts of the columns. ``notes`` must be known before any number is believed; ``remarks`` need not.
    ``ConfigError`` for runs of two experiments.
    """
    _check_experiments((a.name, a.kind.name), (b.name, b.kind.name))
    found = match(a.recorded.rows, b.recorded.rows, a.kind.rows)
    named = partial(_named, a.kind, found.names)
    tables, equal = _tables(found.pairs, named)
    return {
        "names": _names(a, b),
        "experiment": a.kind.name,
        "same_experiment": True,
        "differs": list(_differing(a.recorded.manifest, b.recorded.manifest)),
        "tables": tables,
        "unmatched": [
            {"run": number, "title": named(row), "points": _points(row)}
            for number, rows in enumerate(found.alone)
            for row in rows
        ],
        "notes": list(_notes(a, b, found.pairs)),
        "remarks": [*(() if a.recorded.predicted or b.recorded.predicted else _about_intervals(tables)), *equal],
    }


def check_comparable(folders: Sequence[Path], kind: type[Experiment[Any]] | None = None) -> None:
    """``ConfigError`` for two results folders that are one, or of two experiments; reads their manifests and no row.

    ``kind`` is the experiment of both, for code that is not part of Railyard.
    """
    a, b = folders
    if a.resolve() == b.resolve():
        raise ConfigError(f"{a} is compared with itself; name two different folders", key="results")
    if kind is None:
        _check_experiments(*((folder.resolve().name, Results.open(folder).experiment) for folder in (a, b)))


def _check_experiments(a: tuple[str, str], b: tuple[str, str]) -> None:
    """``ConfigError`` for runs of two experiments; each is the name of a run and that of its experiment."""
    if a[1] != b[1]:
        raise ConfigError(
            f"{a[0]} is of {a[1]} and {b[0]} of {b[1]}; only runs of one experiment are compared", key="results"
        )


def _names(a: Side, b: Side) -> list[str]:
    return [a.name, b.name] if a.name != b.name else [f"{a.name} (A)", f"{b.name} (B)"]


# ---- what differs between the runs -----------------------------------------------------------------------------------


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    found = [{(fact.group, fact.key): fact.value for fact in facts(each)} for each in (a, b)]
    for group, key in dict.fromkeys((*found[0], *found[1])):
        values = [each.get((group, key)) or "-" for each in found]
        if values[0] != values[1]:
            yield {"group": group, "key": key, "values": values}


# ---- tables ----------------------------------------------------------------------------------------------------------


def _tables(pairs: Sequence[Pair], named: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables, main numbers first, and a sentence about other numbers in which the runs do not differ."""
    tables, equal = list[dict[str, Any]](), list[str]()
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        mine = [pair for pair in pairs if pair.kind is kind]
        main = main_numbers(kind)
        for name in (*main, *other_numbers(kind, [pair.a for pair in mine])):
            rows = [
                _row(named(pair.a), named(pair.b), name, pair, found)
                for pair in mine
                if (found := compared(pair, name)) is not None
            ]
            measured = name in main and not name.startswith(NOT_MEASURED)
            if rows and (measured or any(row["difference"] for row in rows)):
                tables.append(_table(name, rows, main=name in main or not main))
            elif rows:
                equal.append(_in_words(name))
    tables.sort(key=lambda table: not table["main"])
    return tables, [f"Equal in all points of both: {', '.join(dict.fromkeys(equal))}."] if equal else []


def _table(name: str, rows: Sequence[Mapping[str, Any]], *, main: bool) -> dict[str, Any]:
    unit = rows[0]["unit"] if len({row["unit"] for row in rows}) == 1 else ""
    title = f"{_in_words(name)}, {unit}" if unit else _in_words(name)
    return {
        "title": title,
        "name": name,
        "main": main,
        "columns": [
            {"name": " ".join(column.name.split()), "left": column.left, "wide": column.wide} for column in COLUMNS
        ],
        "rows": list(rows),
    }


def _row(title_a: str, title_b: str, name: str, pair: Pair, found: Compared) -> dict[str, Any]:
    title = title_a if title_a == title_b else f"{title_a} | {title_b}"
    faithful = [pair.a.get("faithful"), pair.b.get("faithful")]
    percent = found.relative and found.relative.times(100)
    cells = [title, _value(found.a), _value(found.b), f"{found.difference.value:+.3g}", _interval(found.difference)]
    cells += ["-", "-"] if percent is None else [f"{percent.value:+.2f}", _interval(percent, "+.2f")]
    return {
        "title": title,
        "unit": str(pair.a.get("unit") or "") if name == "value" else unit_of(name),
        "a": _estimate(found.a),
        "b": _estimate(found.b),
        "difference": found.difference.value,
        "percent": percent and percent.value,
        "interval": _bounds(found.difference),
        "percent_interval": percent and _bounds(percent),
        "faithful": faithful,
        "computed": any(row.get("computed") for row in (pair.a, pair.b)),
        "points": [_points(pair.a), _points(pair.b)],
        "cells": [*cells, _faithful(faithful)],
    }


def _named(kind: type[Experiment[Any]], names: Mapping[type[ResultRow], Sequence[str]], row: Row) -> str:
    """The name of a row's point: as in the verdict, or by the fields that tell the rows apart."""
    said = kind.report().point(row)
    if said:
        return said
    of = kind_of_row(row, kind.rows)
    fields = names.get(of, ()) if of is not None else ()
    return ", ".join(f"{_in_words(name)} {setting_in_words(row[name])}" for name in fields if row.get(name) is not None)


def _points(row: Row) -> list[int]:
    point = row.get("point")
    return [point] if isinstance(point, int) else []


def unit_of(name: str) -> str:
    """The unit of the values of a field, by its name; "" for a number without one."""
    return next((unit for end, unit in _UNITS if name.endswith(end)), "")


def _in_words(name: str) -> str:
    """The name of a field in words, without its unit."""
    end = next((end for end, _ in _UNITS if name.endswith(end)), "")
    plain = name.removesuffix(end).removeprefix("predicted_").replace("_", " ")
    return f"{plain} of the model" if name.startswith("predicted_") else plain


def _estimate(found: Estimate) -> dict[str, Any]:
    return {"value": found.median, "low": found.low, "high": found.high, "n": found.n}


def _bounds(found: Difference) -> list[float] | None:
    return None if found.low is None or found.high is None else [found.low, found.high]


def _value(found: Estimate) -> str:
    return in_words(found, ".4g")


def _interval(found: Difference, form: str = "+.3g") -> str:
    bounds = _bounds(found)
    return "-" if bounds is None else " to ".join(format(end, form) for end in bounds)


def _faithful(found: Sequence[bool | None]) -> str:
    bad = [letter for letter, each in zip(LETTERS, found, strict=True) if each is False]
    return f"{', '.join(bad)}: NO" if bad else str(yes_or_no(None if None in found else True))


# ---- notes -----------------------------------------------------------------------------------------------------------


def _notes(a: Side, b: Side, pairs: Sequence[Pair]) -> Iterator[str]:
    """Sentences that must be known before any number is believed."""
    for letter, side in zip(LETTERS, (a, b), strict=True):
        rows = side.recorded.rows
        bad = sum(row.get("faithful") is False for row in rows)
        if bad:
            yield f"{letter} is {NOT_FAITHFUL} in {bad} of {len(rows)} rows; do not trust their numbers."
        if side.recorded.predicted:
            yield f"{letter} is {MODEL_ONLY}."
        yield from (f"{letter}: {note}" for note in side.recorded.notes)
    scales = [scale_of(side.recorded.manifest) for side in (a, b)]
    if scales[0] != scales[1]:
        said = [f"{letter} by {scale_in_words(each)}" for letter, each in zip(LETTERS, scales, strict=True)]
        yield (
            f"The runs are scaled differently: {', '.join(said)}. Numbers are those of the real system, but what the "
            "emulator itself adds to them is not the same in both."
        )
    if not pairs:
        yield "No point of one run is in the other."


def _about_intervals(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How the intervals of measured numbers were made, which one decides, and where there are none."""
    least = [
        min(row["a"]["n"], row["b"]["n"])
        for table in tables
        for row in table["rows"]
        if not table["name"].startswith(NOT_MEASURED) and not row["computed"]
    ]
    if any(n < 2 for n in least):
        yield "No interval where a run measured a point once: how much it varies is not known (--repeats)."
    if any(n >= 2 for n in least):
        yield "Intervals: 95 %, of independent runs. A, B and B - A are medians and their difference."
        if any(n >= LEAST_ORDERED for n in least):
            yield f"With {LEAST_ORDERED} or more repeats in both, the interval is Price and Bonett's of medians."
        if any(2 <= n < LEAST_ORDERED for n in least):
            yield (
                f"Where a run has fewer than {LEAST_ORDERED} repeats, the interval is Welch's t: around the difference "
                "of the means, which is not exactly B - A, and for normal values."
            )
        yield "Where the intervals of a difference do not hold 0, the page shows it bold and its dot filled."
