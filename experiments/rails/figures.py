"""Figures of the rail experiment: step time and overhead against reconfiguration delay, and windows between phases.

Step times are measured (markers with intervals) and predicted (lines); published overheads are open markers. A window
is a gap between two phases, which can hide a reconfiguration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from experiments.rails.overhead import electrical_row, published_overhead, published_steps
from experiments.rails.settings import MODES
from experiments.report import off_percent
from measure.figures import looks, plot
from measure.figures.curves import Rows
from measure.figures.looks import DIMENSIONS, DOTTED, GREY, TEXT, Look
from measure.figures.plot import Panel, Plot, figure_of
from measure.figures.style import MEDIUM, SMALL, entry, legend, new_figure, open_mark, style_axes, time_unit
from measure.metrics.estimate import estimate, ratios
from measure.metrics.point import within
from measure.metrics.steps import Steps
from measure.metrics.windows import Transition, read_phases, windows_between
from measure.results.estimates import values_of
from measure.results.row import Row
from railyard.scale import Scale
from railyard.timeline import Event

_WIDE_WINDOWS = 50.0
"""Ratio of the longest to the shortest window from which on the axis is logarithmic."""
_BY_DELAY = partial(
    Plot,
    "reconfiguration_delay_ms",
    series="mode",
    looks=looks.MODES,
    levels=lambda mode: not MODES[mode].swept,
    x_scale="delays",
    ticks="{:g}".format,
    height=2.4,
)


def sweep(rows: Rows) -> Figure | None:
    """Figure from the rows of a summary, of a prediction the lines alone; None if there is neither.

    The line of a mode without delays is horizontal.
    """
    step_time = _BY_DELAY(
        "step_time_s",
        ("reconfiguration delay (ms)", "step time (s)"),
        lambda rows: f"{rows[0].get('workload', '')}: step time",
        "predicted_step_time_s",
        extra=_over_electrical,
    )
    shown = [row for row in rows if (row.get("step_time_s"), row.get("predicted_step_time_s")) != (None, None)]
    return figure_of(step_time, shown)


def _over_electrical(panel: Panel) -> None:
    """Add a second axis: per cent over the electrical rail (native if there is no electrical point)."""
    base = electrical_row(panel.rows)
    if base is None:
        return
    measured = base.get("step_time_s")
    zero: float = base["predicted_step_time_s"] if measured is None else measured
    shares = (lambda time: (time / zero - 1) * 100, lambda share: zero * (1 + share / 100))
    second = panel.axes.secondary_yaxis("right", functions=shares)
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
    if base is None:
        return None
    labels = [steps.label for row in rows if (steps := published_steps(row)) and published_overhead(row) is not None]
    opened = open_mark(Look("", TEXT, "o"))
    over = _BY_DELAY(
        lambda row: _over(row, base),
        ("reconfiguration delay (ms)", "step time over packet switches (%)"),
        lambda rows: f"{rows[0]['workload']}: overhead of reconfigurations",
        lambda row: off_percent(row["predicted_step_time_s"], base["predicted_step_time_s"]),
        published=published_overhead,
        entries=[entry(f"open: derived by us from {each}; over delay 0", **opened) for each in dict.fromkeys(labels)],
    )
    return figure_of(over, rows)


def _over(row: Row, base: Row) -> list[float | None]:
    """By how many percent the step of a row is longer than that of ``base``, in each repeat."""
    key = "step_time_s"
    return [ratio and (ratio - 1) * 100 for ratio in ratios(values_of(row, key), values_of(base, key))]


@dataclass(frozen=True)
class PooledWindows:
    """Windows in real seconds by transition, of ``repeats`` measurements of one mode."""

    mode: str
    repeats: int
    seconds: Mapping[Transition, Sequence[float]]


def pooled_windows(
    rows: Sequence[Row], events: Sequence[Event], scale: Scale, left_out: Collection[int] = ()
) -> PooledWindows | None:
    """The windows of the first mode that has any, at its shortest delay; None without events of windows.

    The first modes have no reconfigurations, so that their windows are those of the job alone. ``left_out`` are the
    numbers of points that do not count (``measure.results.manifest.left_out``).
    """
    points = [e for e in events if e.source == "run" and e.kind == "point" and e.end is not None]
    points = [e for e in points if e["point"] not in left_out]
    for mode in MODES:
        measured = [row for row in rows if row["mode"] == mode and row.get("step_time_s") is not None]
        row = min(measured, key=lambda row: float(row["reconfiguration_delay_ms"]), default=None)
        if row is None:
            continue
        found = _of_row(row, points, events, scale)
        if found is not None:
            return found
    return None


def _of_row(row: Row, points: Sequence[Event], events: Sequence[Event], scale: Scale) -> PooledWindows | None:
    seconds: dict[Transition, list[float]] = defaultdict(list)
    repeats = 0
    for e in points:
        if e.end is not None and _is_of(e, row, scale):
            inside = within(events, e.t, e.end)
            measured = Steps.read(inside).complete[row["warmup_steps"] :]
            found = windows_between(read_phases(inside), measured)
            repeats += bool(found)
            for transition, window in found:
                seconds[transition].append(scale.real_s(window))
    return PooledWindows(row["mode"], repeats, seconds) if seconds else None


def _is_of(point: Event, row: Row, scale: Scale) -> bool:
    delay_ms = scale.real_s(point["delay_s"]) * 1e3
    return bool(point["mode"] == row["mode"] and abs(delay_ms - row["reconfiguration_delay_ms"]) < 1e-3)


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
        plot.cumulative(axes, [window * factor for window in seconds], 1.05 * factor * longest_s, **look)
    for delay in delays_s:
        plot.mark_vertical(axes, delay * factor, f"{delay * 1e3:g}", "center", DOTTED)
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
