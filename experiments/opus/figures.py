"""Figures of the opus experiment: windows of jobs, and steps against the axis of each study; all are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from experiments.report import Drawn
from measure.figures import looks
from measure.figures.curves import Rows
from measure.figures.looks import DIMENSIONS, GREY, TEXT, Look
from measure.figures.plot import Plot, cumulative, figure_of
from measure.figures.style import PAGE, entry, legend, new_figure, open_mark, style_axes, time_unit
from measure.published import published
from measure.results.row import Row

PORTS = published("ocs-ports")
_MODES: Mapping[str, Look] = {**looks.MODES} | {
    f"{mode}, whole rail": replace(looks.MODES[mode], name=f"{mode}, whole rail", dashes=(0, (1, 1)), marker="s")
    for mode in ("on-demand", "provisioned")
}


def _plot(x: str, y: str | Callable[[Row], Any], names: tuple[str, str], **more: Any) -> Plot:
    given: dict[str, Any] = {"series": "mode", "looks": _MODES, "joined": True, "same": ("job",), "height": 2.4}
    return Plot(x, y, names, **given | {"title": lambda rows: str(rows[0]["job"])} | more)


def _authors() -> Any:
    label = published("opus-llama-growth-on-demand").label
    return [entry(f"open: {label}", **open_mark(Look("", TEXT, "o")))]


_PLOTS: Mapping[str, Plot] = {
    "delay": _plot(
        "delay_ms",
        "exposed_s",
        ("reconfiguration delay (ms)", "growth of a step (s)"),
        x_scale="delays",
        published="authors",
        entries=lambda rows: _authors() if any(row["authors"] is not None for row in rows) else (),
    ),
    "bandwidth": _plot(
        "port_gbps", "step_s", ("rate of a port (Gb/s)", "step (s)"), x_scale="log2", ticks="{:g}".format
    ),
    "experts": _plot(
        "ep", "step_s", ("degree of expert parallelism", "step (s)"), same=("job", "placement"), x_scale="log2",
        ticks="{:g}".format, title=lambda rows: f"{rows[0]['job']}, experts {rows[0]['placement']}",
    ),
    "recovery": _plot("recovery_s", "exposed_s", ("link recovery (s)", "growth of a step (s)"), ticks="{:g}".format),
}  # fmt: skip


def drawn(rows: Rows) -> Iterator[Drawn]:
    own = {study: [row for row in rows if row["study"] == study] for study in dict.fromkeys(r["study"] for r in rows)}
    for study, plot in _PLOTS.items():
        if study in own:
            shown = own[study]
            if plot.x_scale == "delays":
                jobs = {row["job"] for row in shown if row["delay_ms"] > 0}
                shown = [row for row in shown if row["job"] in jobs and row["mode"] in ("on-demand", "provisioned")]
            yield Drawn(study, figure_of(plot, shown), shown)
    if "cost" in own:
        plots = [
            _plot("gpus", quantity, ("GPUs", f"{words} over photonic rails"), title="", same=(), x_scale="log2",
                  y_scale="zero", ticks="{:g}".format, series=lambda row: "", looks={"": Look(words, GREY, "o")})
            for quantity, words in (("cost_ratio", "cost"), ("power_ratio", "power"))
        ]  # fmt: skip
        shown = [row for row in own["cost"] if row["mode"] == "electrical"]
        yield Drawn("cost", figure_of(plots, shown), shown)
    if "scale" in own:
        electrical = {row["job"]: row["step_s"] for row in own["scale"] if row["mode"] == "electrical"}
        shown = [row for row in own["scale"] if row["mode"] != "electrical"]
        plot = _plot(
            "gpus",
            lambda row: (row["step_s"] / electrical[row["job"]] - 1) * 100,
            ("GPUs", "step over packet switches (%)"),
            title="the same batch on more GPUs",
            same=(),
            x_scale="log2",
            y_scale="zero",
            ticks=lambda gpus: f"{gpus / 1024:g}K",
        )
        yield Drawn("scale", figure_of(plot, shown), shown)
    if "technologies" in own:
        over = {row["job"]: row["step_s"] for row in own["technologies"] if not row["technology"]}
        shown = [row for row in own["technologies"] if row["technology"] and row["step_s"] < 2 * over[row["job"]]]
        plot = _plot(
            "technology",
            lambda row: (row["step_s"] / over[row["job"]] - 1) * 100,
            ("", "step over packet switches (%)"),
            categories=[name for name in PORTS.values if any(row["technology"] == name for row in shown)],
            y_scale="zero",
            caption="computed; switches that double a step or more are in the table only",
        )
        yield Drawn("technologies", figure_of(plot, shown), shown)
    if "windows" in own:
        yield Drawn("windows", windows(own["windows"]), own["windows"])


def windows(rows: Rows) -> Figure | None:
    """Figure of the cumulative distribution of windows: a panel for each transition, a line for each job."""
    kinds = [kind for kind in dict.fromkeys(row["transition"] for row in rows) if _longest(rows, kind) > 0]
    if not kinds:
        return None
    figure = new_figure(PAGE, 2.6)
    for place, kind in enumerate(kinds):
        axes = figure.add_subplot(1, len(kinds), place + 1)
        longest_s = _longest(rows, kind)
        factor, unit = time_unit(longest_s)
        for row, look in zip([r for r in rows if r["transition"] == kind], looks.SPARE * 2, strict=False):
            values = [window * factor for window in row["windows_s"]]
            cumulative(axes, values, 1.05 * factor * longest_s, color=look.colour, label=row["job"])
        if min(min(row["windows_s"]) for row in rows if row["transition"] == kind) > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_ylim(0, 1.02)
        before, after = (DIMENSIONS[name].name if name in DIMENSIONS else name for name in kind.split(" to "))
        style_axes(axes, f"{before} → {after}", f"window ({unit})", "share of windows", grid="both", room=True)
    legend(figure, figure.axes[0].get_legend_handles_labels()[0], 3, "jobs; windows of one step")
    return figure


def _longest(rows: Rows, transition: str) -> float:
    return max(max(row["windows_s"], default=0.0) for row in rows if row["transition"] == transition)
