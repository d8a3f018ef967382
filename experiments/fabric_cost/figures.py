"""Figure of the fabric-cost experiment: cost and power over photonic rails, against the size of the cluster."""

from __future__ import annotations

from matplotlib.figure import Figure

from measure.figures.curves import Rows
from measure.figures.looks import BY_FORMULA, FABRICS, TEXT
from measure.figures.plot import Plot, figure_of
from measure.figures.style import entry
from measure.published import published

_LOOKS = {
    ("formula", "rail-optimized"): BY_FORMULA,
    **{
        ("whole switches", name): FABRICS[name].named(f"{FABRICS[name].name}, whole switches")
        for name in ("fat-tree", "rail-optimized")
    },
}
_ABSTRACT = (0, (1, 2))
"""Dashes of the ratios of the abstract."""


def ratios(rows: Rows) -> Figure | None:
    """Figure with a panel for cost and one for power; None without electrical fabrics.

    Horizontal lines are the ratios of the abstract.
    """
    rows = [row for row in rows if (row["count"], row["fabric"]) in _LOOKS]
    return figure_of([_plot("cost"), _plot("power")], rows)


def _plot(quantity: str) -> Plot:
    theirs = {"color": TEXT, "linewidth": 1.0, "linestyle": _ABSTRACT, "zorder": 1}
    return Plot(
        "gpus",
        f"{quantity}_ratio",
        ("GPUs", "ratio"),
        f"{quantity} over photonic rails",
        series=lambda row: (row["count"], row["fabric"]),
        looks=_LOOKS,
        joined=True,
        x_scale="log",
        y_scale="zero",
        ticks=lambda size: f"{size / 1024:g}K" if size >= 1024 else f"{size:g}",
        across_at={published(f"opus-{quantity}").value: theirs},
        entries=[entry(f"{published('opus-cost').label} (abstract)", linestyle=_ABSTRACT)],
    )
