"""Figures of the server-fabric experiment: fixed against steered ports by slice shape, and a recovery's timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.failover.figures import PART_COLOURS, paper_mark
from experiments.racks.row import PAPER_TIMELINE
from experiments.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, SHAPES, gain
from measure.figures.style import BLACK, BLUE, GREEN, GREY, LIGHT, TEXT, new_figure, style_axes

Rows = Sequence[Mapping[str, Any]]
_COLOURS = {ELECTRICAL: GREY, PHOTONIC: BLUE}
_TITLES = {"iperf3": "iperf3", "all-reduce": "all-reduce, busbw", "epoch": "epoch"}
_PAPER_PARTS: Mapping[str, str] = dict(
    zip(("rewire", "library", "data", "load", "first step"), (name for name, _ in PAPER_TIMELINE), strict=True)
)
"""Part of a recovery -> the point of the paper's timeline that ends the part."""


def shapes(rows: Rows) -> Figure | None:
    """Figure of electrical and photonic bars for each measurement and slice shape; None without values.

    A diamond marks the measured electrical value times the paper's ratio.
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
    handles.append(paper_mark("our electrical x the paper's ratio"))
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
        ours, paper = gain(rows, measure, shape), next(iter(of_fabric.values())).get("paper_ratio")
        if ELECTRICAL in of_fabric and paper:
            base = of_fabric[ELECTRICAL]["value"]
            there = base / paper if measure == "epoch" else base * paper
            axes.plot(place + 0.2, there, marker="D", markersize=7, color="white", markeredgecolor=BLACK, zorder=5)
            tallest = max(tallest, there)
        texts[place] = (f"{ours:.2f}x" if ours else "-") + (f"\npaper {paper:.2f}x" if paper else "")
    for place, text in texts.items():
        axes.text(place, tallest * 1.06, text, ha="center", va="bottom", fontsize=9, color=TEXT)
    axes.set_xticks(range(len(ordered)), [shape.replace(", ", "\n") for shape in ordered])
    axes.set_ylim(0, tallest * 1.28)
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


def recovery_timeline(row: Mapping[str, Any]) -> Figure | None:
    """Figure of one recovery: its parts as bars on successive lines, with the paper's part below each bar.

    None for a row without a recovery.
    """
    parts = [(name, seconds) for name, seconds in row.get("breakdown") or ()]
    if not parts:
        return None
    paper = _paper_spans()
    names = _order([name for name, _ in parts], list(paper))
    given = {stage["name"] for stage in row.get("stages") or () if stage["given"]}
    figure = new_figure(10.0, 1.5 + 0.42 * len(names))
    axes = figure.add_subplot()
    longest = max(sum(seconds for _, seconds in parts), *(end for _, end in paper.values()))
    reached = 0.0
    for place, name in enumerate(names):
        seconds = dict(parts).get(name)
        if seconds is not None:
            axes.barh(place - 0.17, seconds, 0.32, left=reached, color=PART_COLOURS.get(name, GREEN), zorder=3)
            reached += seconds
            said = f"{reached:.2f} s  (+{seconds:.3g} s{', given' if name in given else ''})"
            _beside(axes, reached, place - 0.17, said, longest, bold=True)
        if name in paper:
            start, end = paper[name]
            white: Any = {"facecolor": "white", "edgecolor": TEXT, "hatch": "////", "linewidth": 0.8}
            axes.barh(place + 0.2, end - start, 0.26, left=start, **white)
            _beside(axes, end, place + 0.2, f"paper {end:g} s: {_PAPER_PARTS[name]}", longest)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.45)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    style_axes(axes, f"Recovery, {row['fabric']}: kill of chip {row['rank']}", "s after the fault", "")
    axes.tick_params(axis="y", length=0)
    return figure


def _order(ours: list[str], papers: list[str]) -> list[str]:
    """Our parts in their order, with the parts that only the paper has before ``start`` and ``first step``."""
    tail = [name for name in ours if name in ("start", "first step")]
    head = [name for name in ours if name not in tail]
    return [*head, *(name for name in papers if name not in ours), *tail]


def _beside(axes: Axes, x: float, y: float, text: str, longest: float, *, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axes.text(x + 0.008 * longest, y, text, va="center", fontsize=8.5, color=TEXT, fontweight=weight, zorder=4)


def _paper_spans() -> dict[str, tuple[float, float]]:
    """(start, end) in seconds of the paper's parts, by the names of ours."""
    ends = [seconds for _, seconds in PAPER_TIMELINE]
    starts = [0.0, *ends[:-1]]
    return dict(zip(_PAPER_PARTS, zip(starts, ends, strict=True), strict=True))
