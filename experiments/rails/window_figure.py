"""Figure of the windows (gaps between two phases), which can hide a reconfiguration."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.rails.modes import MODES
from measure.figures.style import LIGHT, TEXT, new_figure, style_axes, time_unit
from measure.results.row import Row

_WIDE = 50.0
_STYLES = ("-", "--", "-.", ":")


def window_cdf(rows: Sequence[Row]) -> Figure | None:
    """Figure of the cumulative distribution of windows in each mode, at the shortest delay; None without windows.

    Vertical lines are the swept delays: a window to the right of a line can hide the whole delay.
    """
    first: dict[str, Row] = {}
    for row in sorted(rows, key=lambda r: r["reconfiguration_delay_ms"]):
        if row.get("windows_s"):
            first.setdefault(row["mode"], row)
    if not first:
        return None
    delays = sorted({r["reconfiguration_delay_ms"] / 1e3 for r in rows if r["reconfiguration_delay_ms"] > 0})
    longest = max(max(row["windows_s"]) for row in first.values())
    factor, unit = time_unit(max([longest, *delays]))
    figure = new_figure(8.5, 4.6)
    axes = figure.add_subplot()
    right = 1.05 * factor * max([longest, *delays])
    for number, mode in enumerate(m for m in MODES if m in first):
        ordered = sorted(w * factor for w in first[mode]["windows_s"])
        share = [(i + 1) / len(ordered) for i in range(len(ordered))]
        label = f"{mode} ({len(ordered)} windows, median {ordered[(len(ordered) - 1) // 2]:.3g} {unit})"
        axes.step(
            [ordered[0], *ordered, right],
            [0.0, *share, 1.0],
            where="post",
            color=MODES[mode].colour,
            linestyle=_STYLES[number % len(_STYLES)],
            linewidth=1.8,
            label=label,
        )
    for delay in delays:
        axes.axvline(delay * factor, color=TEXT, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.text(delay * factor, 1.025, f"{delay * 1e3:g} ms", fontsize=8, color=TEXT, ha="center", va="bottom")
    positive = [w * factor for row in first.values() for w in row["windows_s"] if w > 0]
    if positive and max(positive) / min(positive) > _WIDE:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, right)
    axes.set_ylim(0, 1.02)
    axes.grid(color=LIGHT, linewidth=0.7)
    style_axes(axes, "Windows between two phases", f"window ({unit}); dotted: swept delays", "share of windows")
    axes.set_title(axes.get_title(loc="left"), loc="left", pad=18, fontsize=11, color=TEXT, fontweight="bold")
    figure.legend(loc="outside upper left", frameon=False, fontsize=8.5, ncols=2)
    return figure
