"""Figures of the allocation studies: fragmentation, failed requests, regained bandwidth, chips lost to failures.

Each figure takes the rows of a summary (``experiment`` = ``allocation``, by ``study``) and is None without rows of its
study.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from experiments.allocation.row import SYSTEMS
from measure.figures.style import BLACK, BLUE, GREEN, LIGHT, ORANGE, SKY, TEXT, VERMILION, new_figure, style_axes
from measure.results.row import Row

_COLOUR_OF = {"contiguous": VERMILION, "morphlux": BLUE}
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1)), (0, (3, 1, 1, 1)))
_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY, BLACK)
_RULES = {"ring": (BLUE, "closed rings"), "link": (ORANGE, "all links")}
_FAILURES = {
    "migration": ("TPU migration: whole rack", VERMILION, "s"),
    "block": ("slice moves to another block", ORANGE, "v"),
    "kubernetes": ("Kubernetes: whole server", GREEN, "D"),
    "morphlux": ("MORPHLUX: spare chip", BLUE, "o"),
    "ideal": ("ideal switch", BLACK, "x"),
}


def allocation_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """The figures of all studies in ``rows``, by name."""
    rows = [row for row in rows if row["experiment"] == "allocation"]
    made = {
        "allocation_fragmentation": fragmentation(rows),
        "allocation_requests": failed_requests(rows),
        "allocation_bandwidth": bandwidth(rows),
        "allocation_overprovision": overprovision(rows),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def fragmentation(rows: Sequence[Row]) -> Figure | None:
    """Figure of the distribution of the fragmentation index over racks, a line for each system and freed share."""
    mine = [row for row in rows if row["study"] == "fragmentation"]
    if not mine:
        return None
    figure = new_figure(8.5, 4.6)
    axes = figure.add_subplot()
    shares = list(dict.fromkeys(row["freed"] for row in mine))
    for row in mine:
        name, colour = SYSTEMS[row["system"]], _COLOUR_OF[row["system"]]
        label = f"{name}, {row['freed']:.0%} freed (median {row['index_median']:.2f}, most {row['index_max']:.2f})"
        _cdf(axes, row["per_rack"], 1.0, colour, _DASHES[shares.index(row["freed"]) % len(_DASHES)], label)
    paper = max(row["paper_index_max"] for row in mine)
    _upright(axes, paper, f"paper: up to {paper:g}")
    axes.set_xlim(-0.02, 1.0)
    title = f"Fragmentation of {len(mine[0]['per_rack'])} racks, mix “{mine[0]['mix']}”"
    _dress(axes, title, "index I = 1 − S/T (S largest slice, T free chips)", "share of racks")
    figure.legend(loc="outside upper left", frameon=False, fontsize=8.5, ncols=2)
    return figure


def failed_requests(rows: Sequence[Row]) -> Figure | None:
    """Figure of bars: the share of large requests that fail although enough chips are free, for each mix."""
    mine = [row for row in rows if row["study"] == "mixes" and row["requests"]]
    mine = mine or [row for row in rows if row["study"] == "requests" and row["requests"]]
    if not mine:
        return None
    figure = new_figure(8.5, 4.6)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys((row["mix"], row["freed"]) for row in mine))
    names = []
    for place, group in enumerate(groups):
        here = {row["system"]: row for row in mine if (row["mix"], row["freed"]) == group}
        for side, (system, colour) in zip((-0.2, 0.2), _COLOUR_OF.items(), strict=True):
            share = here[system]["failed_share"]
            axes.bar(place + side, share, 0.36, color=colour)
            axes.text(place + side, share + 0.015, f"{share:.0%}", ha="center", va="bottom", fontsize=9, color=TEXT)
        names.append(f"{group[0]}\n{group[1]:.0%} freed\n{here['contiguous']['requests']} requests")
    paper = max(row["paper_failed_share"] for row in mine)
    axes.axhline(paper, color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xticks(range(len(groups)), names)
    axes.set_ylim(0, 1.08)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Requests for {mine[0]['chips']} chips in racks with as many free"
    style_axes(axes, title, "mix of the slices that fill the racks", "share that fails")
    bars = [Line2D([], [], color=colour, linewidth=7, label=SYSTEMS[system]) for system, colour in _COLOUR_OF.items()]
    paper_line = Line2D([], [], color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)))
    paper_line.set_label(f"paper, contiguous only: about {paper:.0%} (MORPHLUX: none)")
    figure.legend(handles=[*bars, paper_line], loc="outside upper left", frameon=False, fontsize=9, ncols=3)
    return figure


def bandwidth(rows: Sequence[Row]) -> Figure | None:
    """Figure of the distribution over racks of the share of egress that steering regains, by rule and by mix."""
    mine = [row for row in rows if row["study"] == "bandwidth"]
    if not mine:
        return None
    figure = new_figure(10.5, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    first = mine[0]
    for row in (row for row in mine if row["mix"] == first["mix"]):
        colour, words = _RULES[row["rule"]]
        counted = row["fibres_counted"]
        _cdf(left, row["per_rack"], 100.0, colour, _DASHES[counted], words + (", with fibres" if counted else ""))
    for row, colour in zip(
        (r for r in mine if r["rule"] == "ring" and not r["fibres_counted"]), _COLOURS, strict=False
    ):
        _cdf(right, row["per_rack"], 100.0, colour, "-", row["mix"])
    gain = "gain (% of a chip's egress, mean over a rack)"
    for axes, title in ((left, f"Mix “{first['mix']}”, {first['racks']} full racks"), (right, "By mix, closed rings")):
        _paper_gain(axes, first)
        axes.set_xlim(-2, 75)
        _dress(axes, title, gain, "share of racks" if axes is left else "")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97), fontsize=8, frameon=False, handlelength=1.5)
    return figure


def _paper_gain(axes: Axes, row: Row) -> None:
    half, most = 100 * row["paper_gain_median"], 100 * row["paper_gain_max"]
    _upright(axes, most, f"paper: at most {most:.0f}%")
    axes.plot(half, 0.5, marker="o", markersize=9, markerfacecolor="none", color=TEXT, zorder=5)
    axes.annotate(
        f"paper: half of the\nracks above {half:.0f}%",
        (half, 0.5),
        xytext=(-8, -10),
        textcoords="offset points",
        fontsize=8.5,
        color=TEXT,
        ha="right",
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )


def overprovision(rows: Sequence[Row]) -> Figure | None:
    """Figure of chips out of use against failures per rack; open markers are the paper's ratios x our MORPHLUX."""
    mine = [row for row in rows if row["study"] == "overprovision"]
    if not mine:
        return None
    figure = new_figure(8.5, 4.8)
    axes = figure.add_subplot()
    base = {row["failures"]: row["chips_mean"] for row in mine if row["system"] == "morphlux"}
    for system, (name, colour, marker) in _FAILURES.items():
        here = sorted((row for row in mine if row["system"] == system), key=lambda row: row["failures"])
        failures = [row["failures"] for row in here]
        line = (0, (2, 2)) if system == "ideal" else "-"
        chips = [row["chips_mean"] for row in here]
        label = f"{name} ({_range([row['ratio_to_morphlux'] for row in here])})"
        axes.plot(failures, chips, color=colour, marker=marker, markersize=6, linestyle=line, label=label)
        if here[0]["paper_ratio"] and system not in ("morphlux", "ideal"):
            paper = [base[count] * row["paper_ratio"] for count, row in zip(failures, here, strict=True)]
            axes.plot(failures, paper, color=colour, marker=marker, markersize=10, markerfacecolor="none", linestyle="")
    axes.set_yscale("log")
    ticks = [tick for tick in (1, 2, 4, 8, 16, 32, 64, 128) if tick <= 1.5 * max(row["chips_mean"] for row in mine)]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xticks(sorted(base))
    axes.grid(color=LIGHT, linewidth=0.7)
    style_axes(axes, "Chips out of use after failures", "failed chips in a rack", "chips out of use (mean over racks)")
    handles, _ = axes.get_legend_handles_labels()
    open_marker = Line2D([], [], color=TEXT, marker="o", markerfacecolor="none", markersize=8, linestyle="")
    open_marker.set_label("open: paper's ratio (about 10 and 3) × our MORPHLUX")
    figure.legend(handles=[*handles, open_marker], loc="outside upper left", frameon=False, fontsize=8.5, ncols=2)
    return figure


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
    return f"{low}×" if low == high else f"{high}× to {low}×"


def _cdf(axes: Axes, values: Sequence[float], factor: float, colour: str, dashes: Any, label: str) -> None:
    """Draw a cumulative distribution from 0 to 1, continued at 1 to the right edge."""
    ordered = sorted(factor * value for value in values)
    share = [(place + 1) / len(ordered) for place in range(len(ordered))]
    xs, ys = [ordered[0], *ordered, factor], [0.0, *share, 1.0]
    axes.step(xs, ys, where="post", color=colour, linestyle=dashes, linewidth=1.8, label=label)


def _upright(axes: Axes, x: float, text: str) -> None:
    axes.axvline(x, color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        text,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8.5,
        color=TEXT,
        ha="center",
        va="bottom",
    )


def _dress(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(color=LIGHT, linewidth=0.7)
    style_axes(axes, title, x, y)
    axes.set_title(title, loc="left", pad=17, fontsize=11, color=TEXT, fontweight="bold")
