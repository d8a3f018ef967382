"""Figure of step time against reconfiguration delay in all modes: measured as markers, predicted as lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.rails.modes import MODES, Mode
from measure.figures.style import BLACK, GREY, LIGHT, TEXT, new_figure, style_axes
from measure.results.row import Row

_WIDE = 20.0
"""Ratio of longest to shortest delay from which on the axis is logarithmic."""


def sweep(rows: Sequence[Row]) -> Figure | None:
    """Figure from the rows of a summary; None if nothing was measured.

    The line of a mode without delays is horizontal. Error bars span the measured steps.
    """
    rows = [r for r in rows if r.get("step_time_s") is not None]
    if not rows:
        return None
    figure = new_figure(9.5, 5.2)
    axes = figure.add_subplot()
    delays = sorted({r["reconfiguration_delay_ms"] for r in rows})
    handles = []
    for mode in [m for m in MODES if any(r["mode"] == m for r in rows)]:
        here = sorted((r for r in rows if r["mode"] == mode), key=lambda r: r["reconfiguration_delay_ms"])
        _markers(axes, mode, here)
        _line(axes, mode, here, delays)
        handles.append(_handle(mode))
    _scale_x(axes, delays)
    axes.grid(color=LIGHT, linewidth=0.7)
    workload = rows[0].get("workload", "")
    style_axes(
        axes, f"{workload}: step time against reconfiguration delay", "reconfiguration delay (ms)", "step time (s)"
    )
    axes.spines["right"].set_visible(False)
    _over_electrical(axes, rows)
    handles.append(Line2D([], [], color=TEXT, marker="o", linestyle="", label="measured (bar: all steps)"))
    if any(r.get("predicted_step_time_s") is not None for r in rows):
        handles.append(Line2D([], [], color=TEXT, label="model"))
    if not all(r["faithful"] for r in rows):
        handles.append(Line2D([], [], color=BLACK, marker="x", markersize=10, linestyle="", label="point not faithful"))
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _handle(mode: Mode) -> Line2D:
    return Line2D([], [], color=MODES[mode].colour, marker=MODES[mode].marker, linewidth=1.4, label=mode)


def _markers(axes: Axes, mode: Mode, rows: Sequence[Row]) -> None:
    """Draw medians with the span of the measured steps, and a cross over points that are not faithful."""
    for row in rows:
        times = row.get("step_times_s", [])[row.get("warmup_steps", 0) :] or [row["step_time_s"]]
        below, above = row["step_time_s"] - min(times), max(times) - row["step_time_s"]
        axes.errorbar(
            [row["reconfiguration_delay_ms"]],
            [row["step_time_s"]],
            yerr=[[max(below, 0)], [max(above, 0)]],
            color=MODES[mode].colour,
            marker=MODES[mode].marker,
            markersize=7,
            capsize=3,
            linestyle="",
            zorder=3,
        )
        if not row["faithful"]:
            axes.plot(
                row["reconfiguration_delay_ms"],
                row["step_time_s"],
                marker="x",
                markersize=13,
                color=BLACK,
                zorder=4,
            )


def _line(axes: Axes, mode: Mode, rows: Sequence[Row], delays: Sequence[float]) -> None:
    points: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if row.get("predicted_step_time_s") is not None:
            points[row["reconfiguration_delay_ms"]].append(row["predicted_step_time_s"])
    if not points:
        return
    line = sorted((delay, sum(times) / len(times)) for delay, times in points.items())
    if len(line) == 1 and not MODES[mode].swept:
        line = [(delays[0], line[0][1]), (delays[-1], line[0][1])]
    axes.plot(*zip(*line, strict=True), color=MODES[mode].colour, linewidth=1.4, zorder=2)


def _scale_x(axes: Axes, delays: Sequence[float]) -> None:
    """Set the scale of the delay axis: linear, or for a wide span logarithmic with a linear part around 0."""
    positive = [d for d in delays if d > 0]
    if positive and positive[-1] / positive[0] >= _WIDE:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(left=-0.1 * positive[0])
    axes.set_xticks(delays, [f"{d:g}" for d in delays])
    axes.minorticks_off()


def _over_electrical(axes: Axes, rows: Sequence[Row]) -> None:
    """Add a second axis: per cent over the electrical rail (native if there is no electrical point)."""
    base = next((r for name in ("electrical", "native") for r in rows if r["mode"] == name), None)
    if base is None:
        return
    zero: float = base["step_time_s"]

    def share(times: Any) -> Any:
        """Per cent over the baseline for step times."""
        return (times / zero - 1) * 100

    def times(shares: Any) -> Any:
        """Step times for per cent over the baseline."""
        return zero * (1 + shares / 100)

    second = axes.secondary_yaxis("right", functions=(share, times))
    second.set_ylabel(f"over {base['mode']} (%)", color=TEXT)
    second.tick_params(colors=TEXT, labelsize=9)
    second.spines["right"].set_color(GREY)
