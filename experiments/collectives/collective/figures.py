"""Figure of collective time against buffer size: measured (markers), model (lines) and lower bound (dotted)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from measure.figures import panels
from measure.figures.curves import Curve, Rows, curves, panel_rows, series_of
from measure.figures.looks import ALGORITHMS, DOTTED, SHAPES, SPARE, Look
from measure.figures.style import entry, style_axes, time_unit
from measure.results.row import Row
from railyard.size import size_in_words


def time_against_size(rows: Rows) -> Figure | None:
    """Figure with a line per algorithm and fabric; None for rows of another experiment, or of one size only."""
    rows = [r for r in rows if r["experiment"] == "collective" and r["time_s"]]
    bound = entry("lower bound: wire time, no latency", linestyle=DOTTED)
    return panels.figure_of(panel_rows(rows, "bytes", ()), _panel, bound)


def _panel(axes: Axes, rows: Rows) -> Iterable[Curve]:
    factor, unit = time_unit(max(row["after_arrival_s"] for row in rows))
    series = series_of(rows, _line, _looks(rows))
    drawn = curves(series, "bytes", "after_arrival_s", "predicted_after_arrival_s", factor)
    panels.draw(axes, drawn)
    for bound in curves(series, "bytes", "bound_s", None, factor).values():
        panels.line(axes, bound.measured, color=bound.look.colour, linewidth=0.8, linestyle=DOTTED)
    panels.logarithmic(axes)
    panels.name_ticks(axes.xaxis, (row["bytes"] for row in rows), size_in_words)
    first = rows[0]
    title = f"{first['collective'].replace('_', '-')} over {first['n']} ranks, {first['port_gbps']:g} Gb/s ports"
    style_axes(axes, title, "buffer", f"time ({unit})", grid="both")
    return drawn.values()


def _line(row: Row) -> tuple[str, str]:
    """The line of a row: its algorithm, and its fabric with the reconfiguration delay."""
    delay = row["reconfiguration_delay_ms"]
    return row["algorithm"], row["fabric"] + (f" {delay:g} ms" if delay else "")


def _looks(rows: Rows) -> dict[tuple[str, str], Look]:
    """The look of each line: colour of its algorithm, and markers of their own for further fabrics."""
    names = sorted({_line(row) for row in rows})
    spare = iter(SPARE)
    found: dict[tuple[str, str], Look] = {}
    for algorithm in dict.fromkeys(name for name, _ in names):
        look = ALGORITHMS.get(algorithm) or next(spare, SPARE[-1])
        fabrics = [fabric for name, fabric in names if name == algorithm]
        for marker, fabric in zip((look.marker, *SHAPES), fabrics, strict=False):
            found[algorithm, fabric] = replace(look, name=f"{look.name or algorithm}, {fabric}", marker=marker)
    return found
