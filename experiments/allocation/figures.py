"""Figures of the allocation studies: fragmentation, failed requests, chips lost to failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.allocation.experiment import INDEX, INDEX_FREED, OVERPROVISION, SERVED
from experiments.allocation.row import SYSTEMS
from measure.figures import looks, style
from measure.figures.curves import Rows
from measure.figures.looks import SPARE, TEXT, Look
from measure.figures.plot import Panel, Plot, cumulative, figure_of, mark_vertical, name_ticks
from measure.results.estimates import estimate_of, values_of
from measure.results.row import Row

_DASHES = tuple(look.dashes for look in SPARE)
_OPEN: dict[str, Any] = style.open_mark(Look("", TEXT, "D"))
"""Entry of the legend of a published value."""
_POOLED = Look("if chips of all racks could be joined", looks.BLACK, "s")
_CHIPS = (1, 2, 4, 8, 16, 32, 64, 128)


def allocation_figures(rows: Rows) -> dict[str, Figure]:
    figures = {"fragmentation": fragmentation, "protocols": protocols, "overprovision": overprovision}
    rows_of = {study: [row for row in rows if row["study"] == study] for study in figures}
    made = {f"allocation_{study}": draw(rows_of[study]) for study, draw in figures.items() if rows_of[study]}
    return {name: figure for name, figure in made.items() if figure is not None}


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
        cumulative(axes, row["per_rack"], 1.0, color=colour, linestyle=dashes, label=label)
    index = INDEX.values["contiguous"]
    mark_vertical(axes, index, f"{INDEX.label}, {INDEX_FREED:.0%} freed: up to {index:g}", "center")
    axes.set_xlim(-0.02, 1.0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Fragmentation of {len(rows[0]['per_rack'])} racks, mix “{rows[0]['mix']}”"
    x = "index I = 1 − S/T (S largest slice, T free chips)"
    style.style_axes(axes, title, x, "share of racks", grid="both", room=True)
    style.legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def protocols(rows: Rows) -> Figure | None:
    """Figure of MORPHLUX's requests by protocol: the share that fails, and slices against contiguous ones only."""

    def plot(y: str, title: str, label: str, **more: Any) -> Plot:
        return Plot(
            lambda row: f"{row['protocol']}\n{row['asked'].replace(',', ' and ')}",
            y,
            ("of whom requests are asked, and their chips", label),
            title,
            series=lambda row: row.get("of", row["system"]),
            looks=marks,
            categories=(),
            apart=0.24,
            grid="y",
            published=f"paper_{y}",
            published_look=Look("", TEXT, "D"),
            **more,
        )

    marks = {system: look.named(SYSTEMS[system]) for system, look in looks.SYSTEMS.items()} | {"pooled": _POOLED}
    served = [row for row in rows if row["system"] == "morphlux"]
    ratios = [*served, *({**row, "of": "pooled", **_as_served(row)} for row in served)]
    values = [each.high or each.median for row in ratios if (each := estimate_of(row, "served_ratio"))]
    most = max(values + [row["paper_served_ratio"] or 0.0 for row in rows])

    def share(panel: Panel) -> None:
        panel.axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        panel.axes.set_ylim(-0.05, 1.0)

    count = f"medians of {rows[0]['repeats']} clusters" + (", bars: 95 % interval" if rows[0]["repeats"] > 1 else "")
    failed = plot("failed_share", "Requests that fail", "share of the requests", extra=share, height=2.5, caption=count,
                  entries=[style.entry(f"MORPHLUX: {SERVED.label}", **_OPEN)])  # fmt: skip
    other = plot("served_ratio", "Slices served", "times contiguous ones", derive=lambda _: ratios,
                 extra=lambda panel: panel.axes.set_ylim(0, 1.1 * most))  # fmt: skip
    return figure_of([failed, other], rows)


def _as_served(row: Row) -> Row:
    """The ratio of slices if chips of all racks could be joined, in place of that of MORPHLUX's."""
    samples = {"served_ratio": values_of(row, "pooled_ratio")}
    return {"served_ratio": row["pooled_ratio"], "paper_served_ratio": None, "samples": samples}


def overprovision(rows: Rows) -> Figure | None:
    """Figure of chips out of use against failures per rack; open markers are published ratios x our MORPHLUX."""
    base = {row["failures"]: row["chips_mean"] for row in rows if row["system"] == "morphlux"}
    of_system: dict[str, list[float]] = {}
    for row in rows:
        of_system.setdefault(row["system"], []).append(row["ratio_to_morphlux"])
    systems = {
        system: look.named(f"{look.name} ({_range(of_system[system])})")
        for system, look in looks.FAILURES.items()
        if system in of_system
    }

    def theirs(row: Row) -> float | None:
        given = row["paper_ratio"] and row["system"] != "ideal" and row["failures"] in base
        return base[row["failures"]] * OVERPROVISION.values[row["system"]] if given else None

    def chips(panel: Panel) -> None:
        most = 1.5 * max(row["chips_mean"] for row in rows)
        name_ticks(panel.axes.yaxis, [tick for tick in _CHIPS if tick <= most])

    plot = Plot(
        "failures",
        "chips_mean",
        ("failed chips in a rack", "chips out of use (mean over racks)"),
        "Chips out of use after failures",
        series="system",
        looks=systems,
        joined=True,
        y_scale="log",
        ticks="{:g}".format,
        published=theirs,
        extra=chips,
        entries=[style.entry(f"open: ratio ({OVERPROVISION.label}; about) × our MORPHLUX", **_OPEN)],
        columns=2,
        height=2.5,
    )
    return figure_of(plot, rows)


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
    return f"{low}×" if low == high else f"{high}× to {low}×"
