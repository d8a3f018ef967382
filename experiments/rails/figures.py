"""Figures of the rail experiment: step time and overhead against reconfiguration delay, and windows between phases.

Step times are measured (markers) and predicted (lines); published overheads are open markers. A window is a gap between
two phases, which can hide a reconfiguration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.rails.modes import MODES
from experiments.rails.overhead import electrical, published_overhead, published_steps
from experiments.report import off_percent
from measure.figures import panels
from measure.figures.curves import Look, Rows, curves, series_of
from measure.figures.style import DOTTED, GREY, TEXT, entry, legend, new_figure, style_axes, time_unit
from measure.results.row import Row

_LOOKS = {mode: Look(mode, spec.colour, spec.marker) for mode, spec in MODES.items()}
_DASHES = ("-", "--", "-.", ":")
_WIDE_DELAYS, _WIDE_WINDOWS = 20.0, 50.0
"""Ratios of the longest to the shortest from which on the axis is logarithmic."""


def sweep(rows: Rows) -> Figure | None:
    """Figure from the rows of a summary; None if nothing was measured.

    The line of a mode without delays is horizontal. Error bars span the measured steps.
    """
    rows = [row for row in rows if row.get("step_time_s") is not None]
    if not rows:
        return None
    figure = new_figure(9.5, 5.2)
    axes = figure.add_subplot()
    delays = sorted({row["reconfiguration_delay_ms"] for row in rows})
    series = series_of(rows, lambda row: row["mode"], _LOOKS)
    drawn = curves(series, "reconfiguration_delay_ms", "step_time_s", "predicted_step_time_s")
    drawn = {mode: one if MODES[mode].swept else one.level(delays) for mode, one in drawn.items()}
    panels.draw(axes, drawn)
    for row in rows:
        _span(axes, row)
    _scale_x(axes, delays)
    title = f"{rows[0].get('workload', '')}: step time against reconfiguration delay"
    style_axes(axes, title, "reconfiguration delay (ms)", "step time (s)", grid="both")
    _over_electrical(axes, rows)
    looks = [look for look, _ in series.values()]
    modes = [entry(look.name, look.colour, marker=look.marker, linewidth=1.4) for look in looks]
    bar = entry("bar: all steps", marker="|", markersize=11, markeredgewidth=1.5, linestyle="")
    legend(figure, [*modes, *panels.key(list(drawn.values()), bar)], 1, "right upper")
    return figure


def _span(axes: Axes, row: Row) -> None:
    """Draw the span of the measured steps of a row."""
    times = row.get("step_times_s", [])[row.get("warmup_steps", 0) :] or [row["step_time_s"]]
    low, high = min(*times, row["step_time_s"]), max(*times, row["step_time_s"])
    colour = _LOOKS[row["mode"]].colour
    axes.plot([row["reconfiguration_delay_ms"]] * 2, [low, high], color=colour, marker="_", linewidth=1.5, zorder=3)


def _scale_x(axes: Axes, delays: Sequence[float]) -> None:
    """Set the scale of the delay axis: linear, or for a wide span logarithmic with a linear part around 0."""
    positive = [d for d in delays if d > 0]
    if positive and positive[-1] / positive[0] >= _WIDE_DELAYS:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(left=-0.1 * positive[0])
    panels.name_ticks(axes.xaxis, delays)


def _over_electrical(axes: Axes, rows: Sequence[Row]) -> None:
    """Add a second axis: per cent over the electrical rail (native if there is no electrical point)."""
    base = next((r for name in ("electrical", "native") for r in rows if r["mode"] == name), None)
    if base is None:
        return
    zero: float = base["step_time_s"]
    shares = (lambda time: (time / zero - 1) * 100, lambda share: zero * (1 + share / 100))
    second = axes.secondary_yaxis("right", functions=shares)
    second.set_ylabel(f"over {base['mode']} (%)", color=TEXT)
    second.tick_params(colors=TEXT, labelsize=9)
    second.spines["right"].set_color(GREY)


def overhead(rows: Rows) -> Figure | None:
    """Figure of the overhead over packet switches against the delay, beside the published one; None without any.

    Published overheads are over the published native step of the same job, whose ports have another rate by default.
    """
    measured, model = (electrical(rows, column) for column in ("step_time_s", "predicted_step_time_s"))
    rows = [row for row in rows if MODES[row["mode"]].swept]
    if model is None or not rows:
        return None
    figure = new_figure(9.5, 5.2)
    axes = figure.add_subplot()
    series = series_of(rows, lambda row: row["mode"], _LOOKS)
    drawn = curves(
        series,
        "reconfiguration_delay_ms",
        lambda row: off_percent(row.get("step_time_s"), measured),
        lambda row: off_percent(row["predicted_step_time_s"], model),
    )
    panels.draw(axes, drawn)
    labels = [steps.label for row in rows if (steps := published_steps(row)) and published_overhead(row) is not None]
    for row in rows:
        place, share, look = row["reconfiguration_delay_ms"], published_overhead(row), _LOOKS[row["mode"]]
        if share is not None:
            axes.plot([place], [share], look.marker, color=look.colour, markersize=8, markerfacecolor="none", zorder=4)
    _scale_x(axes, sorted({row["reconfiguration_delay_ms"] for row in rows}))
    title = f"{rows[0]['workload']}: overhead of reconfigurations"
    style_axes(axes, title, "reconfiguration delay (ms)", "step time over packet switches (%)", grid="both")
    modes = [entry(look.name, look.colour, marker=look.marker, linewidth=1.4) for look, _ in series.values()]
    opened: dict[str, Any] = {"marker": "o", "linestyle": "", "markerfacecolor": "none", "markersize": 8}
    theirs = [entry(f"from {label},\nover native", **opened) for label in dict.fromkeys(labels)]
    legend(figure, [*modes, *panels.key(list(drawn.values()), *theirs)], 1, "right upper")
    return figure


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
        look = {"color": MODES[mode].colour, "linestyle": _DASHES[number % len(_DASHES)], "label": label}
        panels.cumulative(axes, windows, 1.05 * factor * longest_s, **look)
    for delay in delays_s:
        panels.mark_vertical(axes, delay * factor, f"{delay * 1e3:g} ms", "center", DOTTED)
    positive = [window for window in every_s if window > 0]
    if positive and max(positive) / min(positive) > _WIDE_WINDOWS:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, 1.05 * factor * longest_s)
    axes.set_ylim(0, 1.02)
    names = f"window ({unit}); dotted: swept delays", "share of windows"
    style_axes(axes, "Windows between two phases", *names, grid="both", room=True)
    legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure
