"""Figures of the allocation studies: fragmentation, failed requests, regained bandwidth, chips lost to failures.

Each figure takes the rows of a summary (``experiment`` = ``allocation``, by ``study``) and is None without rows of its
study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from experiments.allocation.failures import OVERPROVISION
from experiments.allocation.row import SYSTEMS
from experiments.allocation.studies import FAILED, FAILED_AT, INDEX, INDEX_FREED, PORTS, SERVED
from measure.figures import looks, panels, style
from measure.figures.curves import Rows, curves, series_of
from measure.figures.looks import SPARE, TEXT, WHITE, Look
from measure.results.estimates import estimate_of

_DASHES = tuple(look.dashes for look in SPARE)
_OPEN: dict[str, Any] = style.open_mark(Look("", TEXT, "D"))
"""Entry of the legend of a published value."""
_POOLED = Look("if chips of all racks could be joined", looks.BLACK, "s")
_MARK = 0.12
"""Height of a published mark with the number beside it, in shares."""
_MOST_MIXES = 5
"""Most mixes whose names fit into a column."""
_CHIPS = (1, 2, 4, 8, 16, 32, 64, 128)


def allocation_figures(rows: Rows) -> dict[str, Figure]:
    """The figures of all studies in ``rows``, by name."""

    def study(name: str) -> Rows:
        return [row for row in rows if row["experiment"] == "allocation" and row["study"] == name]

    asked = [row for row in study("mixes") if row["requests"]] or [row for row in study("requests") if row["requests"]]
    made = {
        "allocation_fragmentation": (fragmentation, study("fragmentation")),
        "allocation_requests": (failed_requests, asked),
        "allocation_protocols": (protocols, study("protocols")),
        "allocation_ports": (ports, study("ports")),
        "allocation_bandwidth": (bandwidth, study("bandwidth")),
        "allocation_overprovision": (overprovision, study("overprovision")),
    }
    return {name: figure(mine) for name, (figure, mine) in made.items() if mine}


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
    title = f"Fragmentation of {len(rows[0]['per_rack'])} racks, mix “{rows[0]['mix']}”"
    _dress(axes, title, "index I = 1 − S/T (S largest slice, T free chips)")
    style.legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def failed_requests(rows: Rows) -> Figure:
    """Figure of bars: the share of large requests that fail although enough chips are free, for each mix."""
    mixes = series_of(rows, lambda row: (row["mix"], row["freed"]))
    figure = style.new_figure(style.COLUMN if len(mixes) <= _MOST_MIXES else style.PAGE)
    axes = figure.add_subplot()
    names = []
    for place, ((mix, freed), (_, here)) in enumerate(mixes.items()):
        for row in here:
            x = place + (-0.2 if row["system"] == "contiguous" else 0.2)
            share = row["failed_share"]
            look = looks.SYSTEMS[row["system"]]
            axes.bar(x, share, 0.36, color=look.colour, edgecolor=WHITE, linewidth=0.0, hatch=look.hatch)
            given = row["paper_failed_share"]
            above = (share, 1) if not given or abs(given - share) > _MARK else (max(given, share), 5)
            style.note(axes, f"{share:.0%}", (x, above[0]), (0, above[1]), ha="center", va="bottom")
            if given:  # a mark of none would lie on the axis
                axes.plot(x, given, **_OPEN | {"markerfacecolor": WHITE})
        names.append(f"{mix}\n{freed:.0%} freed\n{here[0]['requests']}\nrequests")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.08)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Requests for {rows[0]['chips']} chips in racks with as many free"
    style.style_axes(axes, title, "mix of the slices that fill the racks", "share that fails")
    bars = [_patch(look, SYSTEMS[system]) for system, look in looks.SYSTEMS.items()]
    style.legend(figure, [*bars, style.entry(f"{FAILED.label}, its mix {FAILED_AT[0]}", **_OPEN)])
    return figure


def _patch(look: Look, name: str) -> Patch:
    return Patch(facecolor=look.colour, edgecolor=WHITE, linewidth=0.0, hatch=look.hatch, label=name)


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


def ports(rows: Rows) -> Figure:
    """Figure of the share of ports that the slices of each rack can use, racks in ascending order, by rule."""
    figure = style.new_figure()
    axes = figure.add_subplot()
    for row in (row for row in rows if row["mix"] == rows[0]["mix"]):
        rule, used = looks.RULES[row["rule"]], sorted(row["per_rack"])
        label = f"fixed ports, {rule.name}"
        axes.step(range(len(used)), used, where="post", color=rule.colour, linestyle=rule.dashes, label=label)
    steered = looks.SYSTEMS["morphlux"].colour
    axes.axhline(1.0, color=steered, linestyle=looks.DASHED, label=f"MORPHLUX: steered ({PORTS.label})")
    axes.axhline(PORTS.value, color=TEXT, linestyle=looks.DOTTED, label=f"least with fixed ports ({PORTS.label})")
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Ports that slices can use, mix “{rows[0]['mix']}”"
    style.style_axes(axes, title, "racks, in ascending order", "share of a rack's ports", grid="y")
    style.legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def bandwidth(rows: Rows) -> Figure:
    """Figure of the distribution over racks of the share of egress that steering regains, by rule and by mix."""
    figure = style.new_figure(style.PAGE, 2.4)
    left, right = figure.subplots(1, 2, sharey=True)
    first = rows[0]
    for row in (row for row in rows if row["mix"] == first["mix"]):
        rule, counted = looks.RULES[row["rule"]], row["fibres_counted"]
        words = rule.name + (", with fibres" if counted else "")
        panels.cumulative(left, row["per_rack"], 1.0, color=rule.colour, linestyle=_DASHES[counted], label=words)
    rings = [row for row in rows if row["rule"] == "ring" and not row["fibres_counted"]]
    for row, look in zip(rings, SPARE, strict=False):
        lines = {"color": look.colour, "linestyle": look.dashes}
        panels.cumulative(right, row["per_rack"], 1.0, label=row["mix"], **lines)
    for axes, title in ((left, f"Mix “{first['mix']}”, {first['racks']} full racks"), (right, "By mix, closed rings")):
        axes.set_xlim(-0.02, 0.75)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        _dress(axes, title, "gain (of a chip's egress, mean over a rack)")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97), fontsize=style.SMALL, frameon=False, handlelength=2.2)
    right.set_ylabel("")
    return figure


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


def _dress(axes: Axes, title: str, x: str) -> None:
    """Style a panel of cumulative distributions over racks."""
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.style_axes(axes, title, x, "share of racks", grid="both", room=True)
