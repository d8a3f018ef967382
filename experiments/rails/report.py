"""Report of a rail run: table and verdict on the terminal; figures and trace drawn from the results folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from experiments.rails.sweep_figure import sweep
from experiments.rails.window_figure import window_cdf
from measure.figures.gantt import gantt
from measure.figures.link_throughput import link_throughput
from measure.figures.style import png, scale_in_words
from measure.metrics.fidelity import NOT_FAITHFUL
from measure.metrics.point import Point, within
from measure.results.manifest import groups_of, plans_of, scale_of
from measure.results.results import FIGURES, TRACE, Results
from measure.results.row import Row
from measure.results.trace import trace_json
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS
from railyard.scale import Scale
from railyard.timeline import Event


def exit_status(rows: Iterable[Row]) -> int:
    """0 if every point is faithful, else ``NOT_FAITHFUL_EXIT_STATUS``; a run without points is not faithful."""
    rows = list(rows)
    return 0 if rows and all(row["faithful"] for row in rows) else NOT_FAITHFUL_EXIT_STATUS


# ---- the table -----------------------------------------------------------------------------------------------------


def report(rows: Sequence[Row], scale: Scale) -> RenderableType:
    """The report of a run for ``rich.console.Console.print``: table, verdict and scale."""
    title = f"{rows[0]['workload']}, {rows[0]['steps']} steps a point, seed {rows[0]['seed']}" if rows else "no point"
    verdict = verdict_lines(rows, _point_name)
    table = plain_table(_COLUMNS, (_cells(row, rows) for row in rows))
    return Group(Text(title, style="bold"), table, *verdict, Text(f"Scale: {_scale(scale)}.", "dim"))


def print_report(rows: Sequence[Row], scale: Scale, console: Console | None = None) -> None:
    """Print the report of a run; the table keeps its full width if the output is not a terminal."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=150, no_color=True)
    console.print(report(rows, scale))


Column = tuple[str, Literal["left", "right"]]
"""Name and justification of a column."""
_COLUMNS: tuple[Column, ...] = (
    ("mode", "left"),
    ("delay\nms", "right"),
    ("step\ns", "right"),
    ("model\ns", "right"),
    ("off\n%", "right"),
    ("over elec.\n%", "right"),
    ("reconf.\n/ step", "right"),
    ("exposed\ns / step", "right"),
    ("hidden\ns / step", "right"),
    ("window\nms", "right"),
    ("lost\npackets", "right"),
    ("sent\nagain", "right"),
    ("faithful", "left"),
)


def plain_table(columns: Iterable[Column], lines: Iterable[Iterable[str | Text]]) -> Table:
    """A table without frames, with columns that never wrap."""
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    for name, side in columns:
        table.add_column(name, justify=side, no_wrap=True)
    for cells in lines:
        table.add_row(*cells)
    return table


def _point_name(row: Row) -> str:
    return f"{row['mode']} {row['reconfiguration_delay_ms']:g} ms"


def _cells(row: Row, rows: Sequence[Row]) -> list[str | Text]:
    step, model = row["step_time_s"], row["predicted_step_time_s"]
    base = next((r["step_time_s"] for name in ("electrical", "native") for r in rows if r["mode"] == name), None)
    window = row["window_median_s"]
    verdict = Text("yes", "green") if row["faithful"] else Text(NOT_FAITHFUL, "bold red")
    return [
        row["mode"],
        f"{row['reconfiguration_delay_ms']:g}",
        _number(step, ".4f"),
        _number(model, ".4f"),
        _number(_percent(step, model), "+.1f"),
        _number(_percent(step, base), "+.1f"),
        f"{row['reconfigurations_per_step']:.3g}",
        _number(row["exposed_stall_s"], ".4f"),
        _number(row["hidden_stall_s"], ".4f"),
        _number(None if window is None else window * 1e3, ".3g"),
        str(row["packets_lost"]),
        str(row["retransmissions"]),
        verdict,
    ]


def _percent(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else (value / base - 1) * 100


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def verdict_lines(rows: Sequence[Row], place: Callable[[Row], str]) -> list[Text]:
    """Lines of the verdict: one if all points are faithful, else one for each failed check, with its first point.

    ``place`` names the point of a row.
    """
    if not rows:
        return [Text(f"{NOT_FAITHFUL}: no point was measured.", "bold red")]
    if all(row["faithful"] for row in rows):
        worst = min(
            (c["value"] for r in rows for c in r["checks"] if c["name"] == "link rate" and c["value"]), default=0
        )
        return [
            Text(f"Faithful: every point keeps every limit; links reached {worst:.1%} of line rate or more.", "green")
        ]
    failed: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for check in row["checks"]:
            if not check["ok"]:
                failed.setdefault(check["name"], []).append((place(row), check["says"]))
    count = sum(not row["faithful"] for row in rows)
    lines = [Text(f"{NOT_FAITHFUL}: {count} of {len(rows)} points; do not trust their numbers.", "bold red")]
    for found in failed.values():
        others = f" (and {len(found) - 1} more points)" if len(found) > 1 else ""
        lines.append(Text(f"  {found[0][0]}: {found[0][1]}{others}", "red"))
    return lines


def _scale(scale: Scale) -> str:
    return f"{scale_in_words(scale)}; all numbers are those of the real system"


# ---- figures and trace ---------------------------------------------------------------------------------------------


def redraw(folder: Path) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``ConfigError`` if ``folder`` is not a results folder.
    """
    results = Results.open(folder)
    manifest, events, rows = results.manifest(), results.events(), results.rows()
    scale = scale_of(manifest)
    written = [results.write(TRACE, trace_json(events, scale))]
    faithful = bool(rows) and all(row["faithful"] for row in rows)
    for name, figure in (("step-time", sweep(rows, manifest.get("predictions") or ())), ("windows", window_cdf(rows))):
        if figure is not None:
            written.append(results.write(f"{FIGURES}/{name}.png", png(figure, scale, faithful=faithful)))
    of_number = {row["point"]: row for row in rows}
    for point, inside in measured_points(manifest, events, rows):
        row = of_number.get(point.number)
        good = row is not None and row["faithful"]
        for name, figure in (("gantt", gantt(point, inside)), ("links", link_throughput(point, inside))):
            if figure is not None:
                path = f"{FIGURES}/{name}-{point.name}.png"
                written.append(results.write(path, png(figure, scale, faithful=good, note=_note(row))))
    results.hand_over()
    return written


def _note(row: Row | None) -> str:
    if row is None:
        return "This point was not finished."
    failed = [c["says"] for c in row["checks"] if not c["ok"]]
    return "" if not failed else f"{NOT_FAITHFUL}: {failed[0]}."


def measured_points(
    manifest: dict[str, Any], events: Sequence[Event], rows: Sequence[Row]
) -> list[tuple[Point, list[Event]]]:
    """The points with figures of their own, with their events: in every mode the point with the longest delay."""
    scale, plans, groups = scale_of(manifest), plans_of(manifest), groups_of(manifest)
    predicted = {row["point"]: row["predicted_step_time_s"] for row in rows}
    chosen: dict[str, Event] = {}
    for e in events:
        if e.source == "run" and e.kind == "point" and e.end is not None and e["fabric"] in plans:
            best = chosen.get(e["mode"])
            if best is None or e["delay_s"] >= best["delay_s"]:
                chosen[e["mode"]] = e
    found = []
    for e in chosen.values():
        point = Point(
            number=e["point"],
            mode=e["mode"],
            plan=plans[e["fabric"]],
            groups=groups,
            scale=scale,
            reconfiguration_delay_s=round(scale.real_s(e["delay_s"]), 9),
            link_recovery_s=round(scale.real_s(e.get("link_recovery_s", 0.0)), 9),
            predicted_step_time_s=predicted.get(e["point"]),
        )
        assert e.end is not None
        found.append((point, within(events, e.t, e.end)))
    return found
