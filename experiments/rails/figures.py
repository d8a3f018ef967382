"""Figures of the rail experiment: step time and overhead against reconfiguration delay, and windows between phases.

Step times are measured (markers with intervals) and predicted (lines); published overheads are open markers. A window
is a gap between two phases, which can hide a reconfiguration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from experiments.rails.overhead import electrical_row, published_overhead, published_steps
from experiments.rails.settings import MODES
from experiments.rails.windows import PooledWindows
from experiments.report import off_percent
from measure.figures import looks, panels
from measure.figures.curves import Rows, curves, series_of
from measure.figures.looks import DIMENSIONS, DOTTED, GREY, TEXT, Look
from measure.figures.style import MEDIUM, SMALL, entry, legend, new_figure, open_mark, style_axes, time_unit
from measure.metrics.estimate import estimate, ratios
from measure.metrics.windows import Transition
from measure.results.estimates import values_of
from measure.results.row import Row

_WIDE_DELAYS, _WIDE_WINDOWS = 20.0, 50.0
"""Ratios of the longest to the shortest from which on the axis is logarithmic."""


def sweep(rows: Rows) -> Figure | None:
    """Figure from the rows of a summary; None if nothing was measured.

    The line of a mode without delays is horizontal.
    """
    rows = [row for row in rows if row.get("step_time_s") is not None]
    if not rows:
        return None
    figure = new_figure(height=2.4)
    axes = figure.add_subplot()
    delays = sorted({row["reconfiguration_delay_ms"] for row in rows})
    series = series_of(rows, lambda row: row["mode"], looks.MODES)
    drawn = curves(series, "reconfiguration_delay_ms", "step_time_s", "predicted_step_time_s")
    drawn = {mode: one if MODES[mode].swept else one.level(delays) for mode, one in drawn.items()}
    panels.draw(axes, drawn)
    _scale_x(axes, delays)
    style_axes(
        axes, f"{rows[0].get('workload', '')}: step time", "reconfiguration delay (ms)", "step time (s)", grid="both"
    )
    _over_electrical(axes, rows)
    panels.key(figure, drawn.values())
    return figure


def _scale_x(axes: Axes, delays: Sequence[float]) -> None:
    """Set the scale of the delay axis: linear, or for a wide span logarithmic with a linear part around 0."""
    positive = [d for d in delays if d > 0]
    if positive and positive[-1] / positive[0] >= _WIDE_DELAYS:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(left=-0.1 * positive[0])
    panels.name_ticks(axes.xaxis, delays)


def _over_electrical(axes: Axes, rows: Sequence[Row]) -> None:
    """Add a second axis: per cent over the electrical rail (native if there is no electrical point)."""
    base = electrical_row(rows)
    if base is None:
        return
    zero: float = base["step_time_s"]
    shares = (lambda time: (time / zero - 1) * 100, lambda share: zero * (1 + share / 100))
    second = axes.secondary_yaxis("right", functions=shares)
    second.set_ylabel(f"over {base['mode']} (%)", color=TEXT, fontsize=MEDIUM, labelpad=2)
    second.tick_params(colors=TEXT, labelsize=SMALL, length=2, pad=2)
    second.spines["right"].set_color(GREY)


def overhead(rows: Rows) -> Figure | None:
    """Figure of the overhead over packet switches against the delay, beside the published one; None without any.

    Measured overheads are paired within a repeat. Published ones are those of the published steps of the same job over
    the one without a delay (``published_overhead``); its ports have another rate by default.
    """
    base = electrical_row(rows)
    rows = [row for row in rows if MODES[row["mode"]].swept]
    if base is None or not rows:
        return None
    figure = new_figure(height=2.4)
    axes = figure.add_subplot()
    series = series_of(rows, lambda row: row["mode"], looks.MODES)
    drawn = curves(
        series,
        "reconfiguration_delay_ms",
        lambda row: _over(row, base),
        lambda row: off_percent(row["predicted_step_time_s"], base["predicted_step_time_s"]),
    )
    panels.draw(axes, drawn)
    labels = [steps.label for row in rows if (steps := published_steps(row)) and published_overhead(row) is not None]
    for row in rows:
        share = published_overhead(row)
        if share is not None:
            axes.plot([row["reconfiguration_delay_ms"]], [share], zorder=4, **open_mark(looks.MODES[row["mode"]]))
    _scale_x(axes, sorted({row["reconfiguration_delay_ms"] for row in rows}))
    title = f"{rows[0]['workload']}: overhead of reconfigurations"
    style_axes(axes, title, "reconfiguration delay (ms)", "step time over packet switches (%)", grid="both")
    opened = open_mark(Look("", TEXT, "o"))
    theirs = [entry(f"open: derived by us from {label}; over delay 0", **opened) for label in dict.fromkeys(labels)]
    panels.key(figure, drawn.values(), *theirs)
    return figure


def _over(row: Row, base: Row) -> list[float | None]:
    """By how many percent the step of a row is longer than that of ``base``, in each repeat."""
    key = "step_time_s"
    return [ratio and (ratio - 1) * 100 for ratio in ratios(values_of(row, key), values_of(base, key))]


def window_cdf(rows: Rows, pooled: PooledWindows | None) -> Figure | None:
    """Figure of the cumulative distribution of windows, a line for each transition between two phases; None without.

    The colour is that of the phase after the window, the line that of the phase before it. Vertical lines are the swept
    delays: a window to the right of a line can hide the whole delay.
    """
    if pooled is None:
        return None
    delays_s = sorted({r["reconfiguration_delay_ms"] / 1e3 for r in rows if r["reconfiguration_delay_ms"] > 0})
    every_s = [window for found in pooled.seconds.values() for window in found]
    longest_s = max(every_s + delays_s)
    factor, unit = time_unit(longest_s)
    figure = new_figure(height=2.4)
    axes = figure.add_subplot()
    for transition, seconds in sorted(pooled.seconds.items()):
        median = estimate(seconds)
        assert median is not None
        said = f"{_in_words(transition)} ({len(seconds)}, median {median.median * factor:.3g} {unit})"
        look = {"label": said, **_transition_look(transition)}
        panels.cumulative(axes, [window * factor for window in seconds], 1.05 * factor * longest_s, **look)
    for delay in delays_s:
        panels.mark_vertical(axes, delay * factor, f"{delay * 1e3:g}", "center", DOTTED)
    positive = [window for window in every_s if window > 0]
    if positive and max(positive) / min(positive) > _WIDE_WINDOWS:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axes.set_xlim(0, 1.05 * factor * longest_s)
    axes.set_ylim(0, 1.02)
    dotted = "; dotted: swept delays (ms)" if delays_s else ""
    style_axes(axes, f"Windows between two phases, {pooled.mode}", f"window ({unit}){dotted}", "share of windows",
               grid="both", room=True)  # fmt: skip
    said = f"phases before → after (windows of all ranks; n = {pooled.repeats})"
    legend(figure, axes.get_legend_handles_labels()[0], 2, said)
    return figure


def _in_words(transition: Transition) -> str:
    return " → ".join(DIMENSIONS[each].name if each in DIMENSIONS else each for each in transition)


def _transition_look(transition: Transition) -> Mapping[str, Any]:
    before, after = (DIMENSIONS.get(each, DIMENSIONS["world"]) for each in transition)
    return {"color": after.colour, "linestyle": before.dashes}
