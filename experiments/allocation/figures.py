"""Figures of the allocation studies: fragmentation, failed requests, chips lost to failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.allocation.experiment import INDEX, INDEX_FREED, OVERPROVISION, SERVED
from experiments.allocation.row import SYSTEMS
from measure.figures import looks, panels, style
from measure.figures.curves import Rows, curves, series_of
from measure.figures.looks import SPARE, TEXT, Look
from measure.results.estimates import estimate_of

_DASHES = tuple(look.dashes for look in SPARE)
_OPEN: dict[str, Any] = style.open_mark(Look("", TEXT, "D"))
"""Entry of the legend of a published value."""
_POOLED = Look("if chips of all racks could be joined", looks.BLACK, "s")
_CHIPS = (1, 2, 4, 8, 16, 32, 64, 128)


def allocation_figures(rows: Rows) -> dict[str, Figure]:
    """The figures of all studies in the rows of a summary, by name."""
    figures = {"fragmentation": fragmentation, "protocols": protocols, "overprovision": overprovision}
    rows_of = {study: [row for row in rows if row["study"] == study] for study in figures}
    return {f"allocation_{study}": figure(rows_of[study]) for study, figure in figures.items() if rows_of[study]}


def fragmentation(rows: Rows) -> Figure:
    """Figure of the distribution of the fragmentation index over racks, a line for each system and freed share."""
    figure = style.new_figure()
    axes = figure.add_subplot()
    shares = list(dict.fromkeys(row["freed"] for row in rows))
    for row in rows:
        label = f"{SYSTEMS[row['system']]}, {row['freed']:.0%} freed"
        label += f" (median {row['index_median']:.2f}, most {row['index_max']:.2f})"
        colour = looks.SYSTEMS[row["system"]].colour
        dashes = _DASHES[shares.index(row["freed"]) % len(_DASHES)]
        panels.cumulative(axes, row["per_rack"], 1.0, color=colour, linestyle=dashes, label=label)
    index = INDEX.values["contiguous"]
    panels.mark_vertical(axes, index, f"{INDEX.label}, {INDEX_FREED:.0%} freed: up to {index:g}", "center")
    axes.set_xlim(-0.02, 1.0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Fragmentation of {len(rows[0]['per_rack'])} racks, mix “{rows[0]['mix']}”"
    x = "index I = 1 − S/T (S largest slice, T free chips)"
    style.style_axes(axes, title, x, "share of racks", grid="both", room=True)
    style.legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def protocols(rows: Rows) -> Figure:
    """Figure of MORPHLUX's requests by protocol: the share that fails, and slices against contiguous ones only."""
    figure = style.new_figure(style.PAGE, 2.5)
    left, right = figure.subplots(1, 2)
    groups = series_of(rows, lambda row: (row["protocol"], row["asked"]))
    names = [f"{protocol}\n{asked.replace(',', ' and ')}" for protocol, asked in groups]
    for place, (_, here) in enumerate(groups.values()):
        for row in here:
            x = place + (-0.12 if row["system"] == "contiguous" else 0.12)
            _estimate(left, x, row, "failed_share", looks.SYSTEMS[row["system"]])
            if row["paper_failed_share"] is not None:
                left.plot(x, row["paper_failed_share"], **_OPEN)
            if row["system"] == "morphlux":
                _estimate(right, place - 0.12, row, "served_ratio", looks.SYSTEMS["morphlux"])
                _estimate(right, place + 0.12, row, "pooled_ratio", _POOLED)
                right.plot(place - 0.12, row["paper_served_ratio"], **_OPEN)
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    left.set_ylim(-0.05, 1.0)
    ratios = [each for row in rows for key in ("served_ratio", "pooled_ratio") if (each := estimate_of(row, key))]
    most = max([each.high or each.median for each in ratios] + [row["paper_served_ratio"] or 0.0 for row in rows])
    right.set_ylim(0, 1.1 * most)
    for axes, title, y in (
        (left, "Requests that fail", "share of the requests"),
        (right, "Slices served", "times contiguous ones"),
    ):
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        style.style_axes(axes, title, "of whom requests are asked, and their chips", y, grid="y")
    marks = [look.named(SYSTEMS[system]) for system, look in looks.SYSTEMS.items()]
    handles = [style.entry(each.name, each.colour, marker=each.marker, linestyle="") for each in (*marks, _POOLED)]
    count = f"medians of {rows[0]['repeats']} clusters" + (", bars: 95 % interval" if rows[0]["repeats"] > 1 else "")
    style.legend(figure, [*handles, style.entry(f"MORPHLUX: {SERVED.label}", **_OPEN)], caption=count)
    return figure


def _estimate(axes: Axes, x: float, row: Mapping[str, Any], key: str, look: Look) -> None:
    """A marker at the median of field ``key`` with its 95 % interval; nothing without a value."""
    found = estimate_of(row, key)
    if found is not None:
        panels.mark(axes, x, found, look)


def overprovision(rows: Rows) -> Figure:
    """Figure of chips out of use against failures per rack; open markers are published ratios x our MORPHLUX."""
    figure = style.new_figure(height=2.5)
    axes = figure.add_subplot()
    base = {row["failures"]: row["chips_mean"] for row in rows if row["system"] == "morphlux"}
    series = series_of(rows, lambda row: row["system"], looks.FAILURES)
    ours = curves(series, "failures", "chips_mean")
    handles = []
    for system, (look, here) in series.items():
        shape = {"color": look.colour, "marker": look.marker}
        panels.line(axes, ours[system].measured, markersize=4.5, linewidth=1.0, linestyle=look.dashes, **shape)
        ratios = _range([row["ratio_to_morphlux"] for row in here])
        handles.append(style.entry(f"{look.name} ({ratios})", linestyle=look.dashes, **shape))
        if here[0]["paper_ratio"] and system != "ideal":
            given = [(failures, chips * OVERPROVISION.values[system]) for failures, chips in base.items()]
            panels.line(axes, given, **style.open_mark(look))
    axes.set_yscale("log")
    panels.name_ticks(axes.yaxis, [tick for tick in _CHIPS if tick <= 1.5 * max(row["chips_mean"] for row in rows)])
    panels.name_ticks(axes.xaxis, base)
    title = "Chips out of use after failures"
    style.style_axes(axes, title, "failed chips in a rack", "chips out of use (mean over racks)", grid="both")
    words = f"open: ratio ({OVERPROVISION.label}; about) × our MORPHLUX"
    handles.append(style.entry(words, **_OPEN))
    style.legend(figure, handles, 2)
    return figure


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
    return f"{low}×" if low == high else f"{high}× to {low}×"
