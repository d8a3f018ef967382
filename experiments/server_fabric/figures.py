"""Figure of the server-fabric experiment: fixed against steered ports by slice shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.racks.recovery_figures import published_mark
from experiments.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, SHAPES, gain, ratio_kind
from measure.figures.style import BLACK, BLUE, GREEN, GREY, LIGHT, TEXT, new_figure, style_axes

Rows = Sequence[Mapping[str, Any]]
_COLOURS = {ELECTRICAL: GREY, PHOTONIC: BLUE}
_TITLES = {"iperf3": "iperf3", "all-reduce": "all-reduce, busbw", "epoch": "epoch"}


def shapes(rows: Rows) -> Figure | None:
    """Figure of electrical and photonic bars for each measurement and slice shape; None without values.

    A diamond marks the measured electrical value times the published ratio.
    """
    rows = [row for row in rows if row.get("measure") and row.get("value")]
    measures = [measure for measure in MEASURES if any(row["measure"] == measure for row in rows)]
    if not measures:
        return None
    counts = [max(3, len({row["shape"] for row in rows if row["measure"] == measure})) for measure in measures]
    figure = new_figure(1.2 + 1.3 * sum(counts), 4.6)
    panels = figure.subplots(1, len(measures), squeeze=False, width_ratios=counts)[0]
    for panel, measure in zip(panels, measures, strict=True):
        _panel(panel, [row for row in rows if row["measure"] == measure], measure)
    handles: list[Patch | Line2D] = [Patch(facecolor=colour, label=name) for name, colour in _COLOURS.items()]
    handles.append(Line2D([], [], color=BLACK, linewidth=1.6, label="model"))
    handles.append(published_mark("our electrical x MORPHLUX's ratio"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, rows: Rows, measure: str) -> None:
    known = list(dict.fromkeys(row["shape"] for row in rows))
    ordered = [s for s in SHAPES if s in known] + [s for s in known if s not in SHAPES]
    tallest = max(max(row["value"], row.get("predicted") or 0.0) for row in rows)
    texts: dict[int, str] = {}
    for place, shape in enumerate(ordered):
        of_fabric = {row["fabric"]: row for row in rows if row["shape"] == shape}
        for fabric, offset in ((ELECTRICAL, -0.2), (PHOTONIC, 0.2)):
            if fabric in of_fabric:
                _bar(axes, of_fabric[fabric], place + offset)
        ours, first = gain(rows, measure, shape), next(iter(of_fabric.values()))
        published = first.get("published_ratio")
        if ELECTRICAL in of_fabric and published:
            base = of_fabric[ELECTRICAL]["value"]
            there = base / published if measure == "epoch" else base * published
            axes.plot(place + 0.2, there, marker="D", markersize=7, color="white", markeredgecolor=BLACK, zorder=5)
            tallest = max(tallest, there)
        texts[place] = (f"{ours:.2f}x" if ours else "-") + (
            f"\nMORPHLUX {published:.2f}x\n({ratio_kind(first)})" if published else ""
        )
    for place, text in texts.items():
        axes.text(place, tallest * 1.06, text, ha="center", va="bottom", fontsize=9, color=TEXT)
    axes.set_xticks(range(len(ordered)), [shape.replace(", ", "\n") for shape in ordered])
    axes.set_ylim(0, tallest * 1.36)
    axes.grid(axis="y", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    style_axes(axes, _TITLES.get(measure, measure), "slice", rows[0]["unit"])


def _bar(axes: Axes, row: Mapping[str, Any], x: float) -> None:
    colour = _COLOURS.get(row["fabric"], GREEN)
    faithful = row.get("faithful", True)
    axes.bar(
        x, row["value"], 0.36, color=colour if faithful else "white", edgecolor=colour, linewidth=1.2, zorder=2,
        hatch=None if faithful else "//",
    )  # fmt: skip
    if row.get("predicted"):
        axes.plot((x - 0.2, x + 0.2), (row["predicted"],) * 2, color=BLACK, linewidth=1.6, zorder=4)
