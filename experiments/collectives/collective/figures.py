"""Figure of collective time against buffer size: measured (markers), model (lines) and lower bound (dotted)."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from measure.figures.curves import Rows
from measure.figures.looks import ALGORITHMS, DOTTED, SHAPES, SPARE, Look
from measure.figures.plot import Plot, PlotLine, figure_of
from measure.figures.style import entry
from measure.results.row import Row
from railyard.size import size_in_words


def time_against_size(rows: Rows) -> Figure | None:
    """Figure with a line per algorithm and fabric; None for rows of another experiment, or of one size only."""
    return figure_of(_PLOT, [r for r in rows if r["experiment"] == "collective" and r["time_s"]])


def _line(row: Row) -> tuple[str, str]:
    """The line of a row: its algorithm, and its fabric or circuits with the reconfiguration delay."""
    delay = row["reconfiguration_delay_ms"]
    return row["algorithm"], (row.get("circuits") or row["fabric"]) + (f" {delay:g} ms" if delay else "")


def _looks(rows: Rows) -> dict[tuple[str, str], Look]:
    """The look of each line: colour of its algorithm, and markers of their own for further fabrics."""
    names = sorted({_line(row) for row in rows})
    spare = iter(SPARE)
    looks: dict[tuple[str, str], Look] = {}
    for algorithm in dict.fromkeys(name for name, _ in names):
        look = ALGORITHMS.get(algorithm) or next(spare, SPARE[-1])
        fabrics = [fabric for name, fabric in names if name == algorithm]
        for marker, fabric in zip((look.marker, *SHAPES), fabrics, strict=False):
            looks[algorithm, fabric] = replace(look, name=f"{look.name or algorithm}, {fabric}", marker=marker)
    return looks


def _title(rows: Rows) -> str:
    first = rows[0]
    return f"{first['collective'].replace('_', '-')} over {first['n']} ranks, {first['port_gbps']:g} Gb/s ports"


_PLOT = Plot(
    "bytes",
    "after_arrival_s",
    ("buffer", "time ({unit})"),
    _title,
    "predicted_after_arrival_s",
    series=_line,
    looks=_looks,
    least=2,
    timed="y",
    x_scale="log",
    y_scale="log",
    ticks=size_in_words,
    lines=[PlotLine("bound_s", {"linewidth": 0.8, "linestyle": DOTTED})],
    entries=[entry("lower bound: wire time, no latency", linestyle=DOTTED)],
)
