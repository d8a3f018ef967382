"""Figure of collective time against buffer size: measured (markers), model (lines) and lower bound (dotted)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from measure.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TEXT,
    VERMILION,
    new_figure,
    style_axes,
)
from measure.results.row import Row
from railyard.size import in_words

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_MARKERS = "osD^vPX*"


def time_against_size(rows: Sequence[Row]) -> Figure | None:
    """Figure with a line per algorithm and fabric; None for rows of another experiment, or of one size only."""
    rows = [r for r in rows if r["experiment"] == "collective" and r["time_s"]]
    if len({r["bytes"] for r in rows}) < 2:
        return None
    figure = new_figure(9.0, 5.2)
    axes = figure.add_subplot()
    handles = []
    for number, kind in enumerate(dict.fromkeys(_line_name(r) for r in rows)):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        mine = sorted((r for r in rows if _line_name(r) == kind), key=lambda r: r["bytes"])
        sizes = [r["bytes"] for r in mine]
        axes.plot(sizes, [r["predicted_after_arrival_s"] for r in mine], color=colour, linewidth=1.4)
        axes.plot(sizes, [r["bound_s"] for r in mine], color=colour, linewidth=1.0, linestyle=":")
        for row in mine:
            face = colour if row["faithful"] else "white"
            axes.plot(row["bytes"], row["after_arrival_s"], color=colour, marker=marker, markerfacecolor=face)
        handles.append(Line2D([], [], color=colour, marker=marker, label=kind))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({r["bytes"] for r in rows})
    axes.set_xticks(sizes, [in_words(size) for size in sizes], rotation=30 if len(sizes) > 8 else 0)
    axes.minorticks_off()
    axes.grid(color=LIGHT, linewidth=0.7)
    first = rows[0]
    title = f"{first['collective'].replace('_', '-')} over {first['n']} ranks, {first['port_gbps']:g} Gb/s ports"
    style_axes(axes, title, "buffer (bytes)", "time (s)")
    handles += [
        Line2D([], [], color=TEXT, marker="o", linestyle="", label="measured"),
        Line2D([], [], color=TEXT, label="model"),
        Line2D([], [], color=TEXT, linestyle=":", label="lower bound: wire time, no latency"),
    ]
    if not all(r["faithful"] for r in rows):
        handles.append(
            Line2D([], [], color=TEXT, marker="o", markerfacecolor="white", linestyle="", label="not faithful")
        )
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _line_name(row: Row) -> str:
    """The legend of a row's line: algorithm, fabric and reconfiguration delay."""
    delay = row["reconfiguration_delay_ms"]
    return f"{row['algorithm']}, {row['fabric']}" + (f" {delay:g} ms" if delay else "")
