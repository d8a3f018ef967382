"""Figure of step time against reconfiguration delay in all modes: measured as markers, predicted as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.rails.modes import MODES
from measure.figures.curves import Look, Rows, curves, draw, key, name_ticks, series_of
from measure.figures.style import GREY, TEXT, entry, legend, new_figure, style_axes
from measure.results.row import Row

_LOOKS = {mode: Look(mode, spec.colour, spec.marker) for mode, spec in MODES.items()}
_WIDE = 20.0
"""Ratio of longest to shortest delay from which on the axis is logarithmic."""


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
    draw(axes, drawn)
    for row in rows:
        _span(axes, row)
    _scale_x(axes, delays)
    title = f"{rows[0].get('workload', '')}: step time against reconfiguration delay"
    style_axes(axes, title, "reconfiguration delay (ms)", "step time (s)", grid="both")
    _over_electrical(axes, rows)
    looks = [look for look, _ in series.values()]
    modes = [entry(look.name, look.colour, marker=look.marker, linewidth=1.4) for look in looks]
    bar = entry("bar: all steps", marker="|", markersize=11, markeredgewidth=1.5, linestyle="")
    legend(figure, [*modes, *key(list(drawn.values()), bar)], 1, "right upper")
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
    if positive and positive[-1] / positive[0] >= _WIDE:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        axes.set_xlim(left=-0.1 * positive[0])
    name_ticks(axes.xaxis, delays)


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
