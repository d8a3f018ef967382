"""Figure of the windows (gaps between two phases), which can hide a reconfiguration."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.rails.modes import MODES
from measure.figures.curves import Rows, cumulative, mark_vertical
from measure.figures.style import DOTTED, legend, new_figure, style_axes, time_unit
from measure.results.row import Row

_WIDE = 50.0
_STYLES = ("-", "--", "-.", ":")


def window_cdf(rows: Rows) -> Figure | None:
    """Figure of the cumulative distribution of windows in each mode, at the shortest delay; None without windows.

    Vertical lines are the swept delays: a window to the right of a line can hide the whole delay.
    """
    first: dict[str, Row] = {}
    for row in sorted(rows, key=lambda r: r["reconfiguration_delay_ms"]):
        if row.get("windows_s"):
            first.setdefault(row["mode"], row)
    if not first:
        return None
    delays_s = sorted({r["reconfiguration_delay_ms"] / 1e3 for r in rows if r["reconfiguration_delay_ms"] > 0})
    every_s = [window for row in first.values() for window in row["windows_s"]]
    longest_s = max(every_s + delays_s)
    factor, unit = time_unit(longest_s)
    figure = new_figure(8.5, 4.6)
    axes = figure.add_subplot()
    for number, mode in enumerate(m for m in MODES if m in first):
        windows = sorted(window * factor for window in first[mode]["windows_s"])
        label = f"{mode} ({len(windows)} windows, median {windows[(len(windows) - 1) // 2]:.3g} {unit})"
        look = {"color": MODES[mode].colour, "linestyle": _STYLES[number % len(_STYLES)], "label": label}
        cumulative(axes, windows, 1.05 * factor * longest_s, **look)
    for delay in delays_s:
        mark_vertical(axes, delay * factor, f"{delay * 1e3:g} ms", "center", DOTTED)
    positive = [window for window in every_s if window > 0]
    if positive and max(positive) / min(positive) > _WIDE:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.05 * factor * longest_s)
    axes.set_ylim(0, 1.02)
    names = f"window ({unit}); dotted: swept delays", "share of windows"
    style_axes(axes, "Windows between two phases", *names, grid="both", room=True)
    legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure
