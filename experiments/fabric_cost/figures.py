"""Figure of the fabric-cost experiment: cost and power over photonic rails, against the size of the cluster."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from measure.figures import panels
from measure.figures.curves import Rows, curves, series_of
from measure.figures.looks import BY_FORMULA, FABRICS, TEXT
from measure.figures.style import PAGE, entry, legend, new_figure, style_axes
from measure.published import published

_LOOKS = {
    ("formula", "rail-optimized"): BY_FORMULA,
    **{
        ("whole switches", name): FABRICS[name].named(f"{FABRICS[name].name}, whole switches")
        for name in ("fat-tree", "rail-optimized")
    },
}
_PANELS = (("cost_ratio", "cost", "opus-cost"), ("power_ratio", "power", "opus-power"))


def ratios(rows: Rows) -> Figure | None:
    """Figure with a panel for cost and one for power; None without electrical fabrics.

    Horizontal lines are the ratios of the abstract.
    """
    rows = [row for row in rows if (row["count"], row["fabric"]) in _LOOKS]
    if not rows:
        return None
    figure = new_figure(PAGE, 2.3)
    series = series_of(rows, lambda row: (row["count"], row["fabric"]), _LOOKS)
    sizes = sorted({row["gpus"] for row in rows})
    for axes, (column, name, key) in zip(figure.subplots(1, 2), _PANELS, strict=True):
        for curve in curves(series, "gpus", column).values():
            look = curve.look
            shape: dict[str, Any] = {"marker": look.marker, "markersize": look.size, "linestyle": look.dashes}
            panels.line(axes, curve.points, color=look.colour, linewidth=1.0, **shape)
        axes.axhline(published(key).value, color=TEXT, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
        axes.set_xscale("log")
        panels.name_ticks(axes.xaxis, sizes, lambda size: f"{size / 1024:g}K" if size >= 1024 else f"{size:g}")
        axes.set_ylim(bottom=0)
        style_axes(axes, f"{name} over photonic rails", "GPUs", "ratio", grid="both")
    looks = [panels.thing(look) for look, _ in series.values()]
    theirs = entry(f"{published('opus-cost').label} (abstract)", linestyle=(0, (1, 2)))
    legend(figure, [*looks, theirs])
    return figure
