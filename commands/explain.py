"""``railyard explain``: where measured and predicted step differ, by kind of cost and by operation."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

from experiments.experiment import Experiment
from experiments.parser import Parser, folder
from experiments.redraw import kind_of, read_folder
from experiments.report import (
    Column,
    Recorded,
    Table,
    as_rich,
    console_for_tables,
    exit_status,
    judged,
    left_out_lines,
    verdict_lines,
)
from measure.metrics.explain import Explanation, explain
from measure.metrics.point import Point, within
from measure.metrics.slots import slot_losses
from measure.metrics.step_path import KINDS, Kind
from measure.results.foreign import reading
from measure.results.manifest import left_out, plans_of
from measure.results.results import FIGURES, Results
from measure.results.row import Row
from railyard.digits import alike
from railyard.errors import PARTIAL_EXIT_STATUS, ConfigError
from railyard.timeline import Event
from railyard.verdict import why_not_faithful

FIGURE = f"{FIGURES}/explained.png"
SHOWN: Mapping[str, tuple[Kind, ...]] = {
    "compute": ("compute", "late"),
    **{kind: (kind,) for kind in KINDS if kind not in ("compute", "late")},
}
"""The columns of the tables, and the kinds of cost that each adds up."""


_MOVED = 0.01
"""Share of a predicted step above which a sentence says that paths differ."""


@dataclass(frozen=True)
class ExplainedPoint:
    """A point of a run, with all its repeats: its ``number`` in the list, its title and its explanation."""

    number: int
    title: str
    repeats: int
    found: Explanation
    slots: Mapping[str, float]
    """What slots of fixed length lose of their plan, by cause (``slot_losses``)."""

    def to_json(self) -> dict[str, Any]:
        found = self.found
        by = [
            {"operation": key[0], "name": key[1], "kind": key[2], "measured_s": found.measured.get(key, 0.0),
             "predicted_s": found.predicted.get(key, 0.0)}
            for key in dict.fromkeys((*found.measured, *found.predicted))
        ]  # fmt: skip
        return {"point": self.number, "title": self.title, "repeats": self.repeats, "steps": found.steps,
                "measured_s": found.measured_s, "predicted_s": found.predicted_s,
                "other_ranks": found.other_ranks, "slots_lose": self.slots, "parts": by}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Print where measured and predicted steps differ, and draw it; returns the exit status as ``railyard plot``."""
    parser = Parser(
        prog="railyard explain",
        description="Show where measured and predicted step differ, along the critical path of each:\n"
        "compute (lateness after it), wire (bytes), transfer (start, wake-ups and\n"
        "acknowledgements of transfers), ask (requests to the controller), dark\n"
        "(circuits), peers (other members). Differences are means over the measured\n"
        "steps of the repeats that count, so that they add up to that of the step; the\n"
        "table of a run has medians.",
    )
    parser.add_argument("results", type=folder, metavar="FOLDER", help="results folder of a run (its --out)")
    parser.add_argument("--point", type=int, metavar="N", help="one point, by its number in the table: by operation")
    parser.add_argument("--names", action="store_true", help="each named operation of the point in a line of its own")
    parser.add_argument("--wide", action="store_true", help="all columns of the table")
    parser.add_argument("--json", action="store_true", help="the numbers as JSON instead of tables")
    options = parser.read(arguments)
    results = Results.open(options.results)
    with reading(results.folder):
        kind = None if ":" in results.experiment else kind_of(results)
        recorded = read_folder(results, kind)
        points = list(_explained(results, recorded))
    return _show(results, kind, recorded, points, options)


def _show(
    results: Results,
    kind: type[Experiment[Any]] | None,
    recorded: Recorded,
    points: Sequence[ExplainedPoint],
    options: argparse.Namespace,
) -> int:
    chosen = [point for point in points if options.point in (None, point.number)]
    if not chosen:
        raise ConfigError(f"there is no point {options.point}; use 0 to {len(points) - 1}", key="point")
    if options.json:
        print(json.dumps([point.to_json() for point in chosen], indent=2))
    else:
        _print(chosen, named=options.names, wide=options.wide)
    for note in recorded.notes:
        print(f"railyard: {note}", file=sys.stderr)
    drawn = _draw(results, recorded, points)
    if not options.json:
        if kind is not None and exit_status(recorded.rows):
            for line in verdict_lines(judged(recorded.rows), kind.report().point):
                console_for_tables().print(line, highlight=False)
        print(drawn)
    return PARTIAL_EXIT_STATUS if recorded.partial is not None else exit_status(recorded.rows)


def _explained(results: Results, recorded: Recorded) -> Iterator[ExplainedPoint]:
    """The points of a run with a prediction and a complete step, in the order in which they were first measured."""
    timelines = _predictions(results.predicted())
    if recorded.predicted:
        raise ConfigError(f"{results.folder} was predicted, not measured; explain compares both", key="results")
    if not timelines:
        raise ConfigError(
            f"{results.folder} has no predicted timeline to compare with: run the experiment again with this version "
            "(rails, collective, straggler and all-to-all keep it)",
            key="results",
        )
    plans = plans_of(recorded.manifest)
    uncounted = left_out(recorded.manifest)
    points = [e for e in recorded.events if e.kind == "point" and not e.get("stopped")]
    intervals = {e["point"]: e for e in points if e["point"] not in uncounted}
    number = 0
    for first, heads, predicted in timelines:
        measured = [intervals[head["point"]] for head in heads if head["point"] in intervals]
        point = Point(first["point"], first["title"], plans[first["plan"]], {}, recorded.scale)
        point = replace(point, warmup_steps=first["warmup_steps"], stale_step=first.get("stale_step"))
        spans = [within(recorded.events, one.t, one.t if one.end is None else one.end) for one in measured]
        found = explain(point, spans, predicted)
        if found is not None:
            losses = slot_losses(point, spans, predicted)
            yield ExplainedPoint(number, first["title"], len(measured), found, losses)
            number += 1
    if not number:
        raise ConfigError(f"{results.folder} has no complete step of a point; run it again", key="results")


def _predictions(events: Sequence[Event]) -> list[tuple[Event, list[Event], list[Event]]]:
    """For each predicted timeline the event of its first point, those of all its points, and the timeline."""
    found: dict[int, tuple[Event, list[Event], list[Event]]] = {}
    last: list[Event] = []
    for event in events:
        if event.kind == "predicted":
            last = found.setdefault(event["same_as"], (event, [], []))[2]
            found[event["same_as"]][1].append(event)
        else:
            last.append(event)
    return list(found.values())


# ---- tables and figure -----------------------------------------------------------------------------------------------


def _print(points: Sequence[ExplainedPoint], *, named: bool, wide: bool) -> None:
    console = console_for_tables(wide=wide)
    table = _overview(points) if len(points) > 1 else _by_operation(points[0], named=named)
    console.print(table.title, style="bold", highlight=False)
    console.print(as_rich(table, console.width))
    for line in left_out_lines([table], console.width):
        console.print(line, highlight=False)
    for line in _path_lines(points):
        console.print(line, highlight=False, markup=False)
    if len(points) > 1:
        print("By operation: railyard explain FOLDER --point N")


def _path_lines(points: Sequence[ExplainedPoint]) -> Iterator[str]:
    """Sentences on what slots lose, and on two paths that differ so much that one kind of cost stands for another."""
    for point in points:
        found = point.found
        if point.slots:
            causes = ", ".join(f"{cause} {share:.1%}" for cause, share in point.slots.items())
            sent = 1 - sum(point.slots.values())
            yield f"#{point.number} {point.title}: full slots sent {sent:.1%} of plan; lost: {causes}."
        if found.other_ranks and found.moved_s > _MOVED * found.predicted_s:
            moved = _ms(found.moved_s, found.predicted_s).lstrip("+")
            yield (
                f"#{point.number} {point.title}: the critical paths differ: for {found.other_ranks:.0%} of a step they "
                f"run over other ranks, and {moved} ms went from one kind of cost to another; the sum still holds."
            )


def _ms(seconds: float, step_s: float) -> str:
    """Milliseconds with as many digits as a step of ``step_s`` needs."""
    digits = 0 if step_s >= 10 else 1 if step_s >= 1 else 2 if step_s >= 0.02 else 3
    text = f"{seconds * 1e3:+.{digits}f}"
    return "0" if float(text) == 0 else text


def _cells(found: Explanation, operation: str | None = None, *, named: bool = False) -> dict[str, str]:
    """The cells of the columns of ``SHOWN``, and ``sum``."""
    by_kind = {kind: found.difference(kind, operation, named=named) for kind in KINDS}
    cells = {name: fsum(by_kind[kind] for kind in kinds) for name, kinds in SHOWN.items()}
    cells["sum"] = found.difference(None, operation, named=named)
    return {name: _ms(seconds, found.predicted_s) for name, seconds in cells.items()}


def _columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of those kinds of cost that differ in any of ``rows``, and their sum."""
    return [Column(name, name) for name in (*SHOWN, "sum") if name == "sum" or any(row[name] != "0" for row in rows)]


def _overview(points: Sequence[ExplainedPoint]) -> Table:
    rows: list[Row] = [
        {"n": point.number, "title": point.title, "steps": point.found.steps, "off": point.found.off}
        | _cells(point.found)
        for point in points
    ]
    columns = [
        Column("#", "n"),
        Column("point", "title", left=True),
        Column("steps", "steps", wide=True),
        Column("off %", lambda row: None if row["off"] is None else 100 * row["off"], "+.2f"),
        *_columns(rows),
    ]
    return Table("measured less predicted step by kind of cost, ms", columns, rows)


def _by_operation(point: ExplainedPoint, *, named: bool) -> Table:
    found = point.found
    rows: list[Row] = [
        {"title": operation} | _cells(found, operation, named=named) for operation in found.operations(named=named)
    ]
    rows.append({"title": "all"} | _cells(found))
    steps = f"mean of {found.steps} steps" if found.steps > 1 else "1 step"
    off = "" if found.off is None else f", {found.off:+.2%}"
    form = alike((found.measured_s, found.predicted_s))
    title = (
        f"{point.title}: measured {form(found.measured_s)} s ({steps}), "
        f"model {form(found.predicted_s)} s{off}\nmeasured less predicted, ms"
    )
    return Table(title, [Column("operation", "title", left=True), *_columns(rows)], rows)


def _draw(results: Results, recorded: Recorded, points: Sequence[ExplainedPoint]) -> str:
    from measure.figures.step import Bar, explained_figure  # matplotlib takes a second
    from measure.figures.style import png

    bars = [
        Bar(p.title, p.found.predicted_s, {kind: p.found.difference(kind) for kind in p.found.kinds()}) for p in points
    ]
    faithful = bool(recorded.rows) and all(row.get("faithful") for row in recorded.rows)
    note, partial = why_not_faithful(recorded.rows), recorded.partial
    image = png(explained_figure(bars), recorded.scale, faithful=faithful, note=note, partial=partial)
    try:
        return str(results.write(FIGURE, image))
    except PermissionError:
        raise ConfigError(f"{results.folder} belongs to another user; use sudo, or copy it", key="results") from None
