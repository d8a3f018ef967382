"""Figure of jobs over time by the servers, and so the ports of every rail, that they held."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from measure.figures.looks import SPARE, TEXT
from measure.figures.style import PAGE, SMALL, legend, new_figure, style_axes
from measure.results.row import Row
from railyard.digits import numbers_in


def jobs_over_time(rows: Sequence[Row]) -> Figure | None:
    """Bars from start to end of each job on its servers, and outlines of the model; None without a job that ended."""
    rows = [row for row in rows if row["end_s"] is not None]
    if not rows:
        return None
    servers = 1 + max(max(numbers_in(row["servers"])) for row in rows)
    figure = new_figure(PAGE, min(6.0, 0.9 + 0.16 * servers))
    axes = figure.subplots()
    handles = []
    for row, look in zip(rows, cycle(SPARE), strict=False):
        for server in numbers_in(row["servers"]):
            axes.barh(
                server, row["end_s"] - row["start_s"], left=row["start_s"], height=0.8, color=look.colour, alpha=0.7
            )
            model_s = row["predicted_end_s"] - row["predicted_start_s"]
            axes.barh(
                server, model_s, left=row["predicted_start_s"], height=0.8, fill=False, edgecolor=TEXT, linewidth=0.6
            )
        axes.text(
            row["start_s"], min(numbers_in(row["servers"])), f" {row['job']}", va="center", fontsize=SMALL, color=TEXT
        )
        handles.append(Patch(color=look.colour, alpha=0.7, label=f"{row['job']}: {row['workload']}"))
    axes.set_ylim(servers - 0.5, -0.5)
    axes.set_yticks(range(0, servers, max(1, servers // 8)))
    style_axes(axes, "Servers, with their ports on every rail, that each job held", "time (s)", "server", grid="x")
    shown = [*handles[:8], Patch(fill=False, edgecolor=TEXT, linewidth=0.6, label="model")]
    legend(figure, shown, 4)
    return figure
