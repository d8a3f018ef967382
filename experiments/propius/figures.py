"""Figures of the Propius experiment, one function for each study; markers are measured, lines are the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.propius.row import real_mb
from experiments.propius.seeds import merged
from experiments.report import Drawn
from measure.figures import panels
from measure.figures.curves import Rows, curves, series_of
from measure.figures.looks import (
    AGGREGATION,
    BLACK,
    POLICIES,
    SCHEDULERS,
    SPARE,
    TEXT,
    UPDATES,
    WHITE,
    Look,
)
from measure.figures.style import (
    COLUMN,
    PAGE,
    SMALL,
    entry,
    legend,
    new_figure,
    note,
    open_mark,
    panel_inches,
    style_axes,
    wrapped,
)
from measure.metrics.estimate import Estimate, estimate
from measure.published import published
from measure.results.estimates import values_of

JCT = published("propius-jct-6000")
_FEW_CASES = 4
"""Most cases whose names fit beside each other in a column."""


def propius_figures(rows: Rows) -> Iterator[Drawn]:
    """The figures of all studies that ``rows`` hold."""
    made = {
        "jct": job_completion,
        "utilisation": utilisation,
        "throughput": throughput,
        "delays": delays,
        "tree": root_bytes,
        "trouble": updates,
        "trunk": trunk,
    }
    for study, draw in made.items():
        mine = [row for row in rows if row["study"] == study]
        if mine:
            yield Drawn(f"propius-{study}", draw(mine), [row for row in mine if row["layer"] == "packets"])


def _look(policy: str) -> Look:
    return SCHEDULERS.get(policy) or SPARE[-1].named(policy)


def _filled(look: Look) -> dict[str, Any]:
    """The look of a bar."""
    return {"facecolor": look.colour, "edgecolor": WHITE, "linewidth": 0.0, "hatch": look.hatch or None}


def _layers(rows: Rows) -> dict[str, Rows]:
    split = {layer: [row for row in rows if row["layer"] == layer] for layer in ("packets", "virtual")}
    return {layer: mine for layer, mine in split.items() if mine}


_TITLES = {"packets": "On packets", "virtual": "Virtual time, the authors' sizes"}


def job_completion(rows: Rows) -> Figure:
    """Mean job completion time against the number of clients; a panel for packets and one for virtual time."""
    layers = _layers([row for row in rows if row["jct_s"] is not None] or rows)
    figure = _figure(layers)
    drawn: list[Estimate] = []
    for axes, (layer, mine) in zip(figure.subplots(1, len(layers), squeeze=False)[0], layers.items(), strict=True):
        for policy in dict.fromkeys(row["policy"] for row in mine):
            drawn += _job_curve(axes, [row for row in mine if row["policy"] == policy], _look(policy))
        style_axes(axes, _TITLES[layer], "clients", "mean job completion time (s)", grid="y")
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({row["clients"] for row in mine}))
    policies = dict.fromkeys(row["policy"] for row in rows)
    handles = [panels.thing(_look(policy)) for policy in policies]
    if any(row.get("authors_jct_s") for row in rows):
        handles.append(entry(f"open: {JCT.label}", **open_mark(Look("", TEXT, "o"))))
    model = any(row["predicted_jct_s"] is not None for row in rows)
    legend(figure, handles, 8, panels.caption(drawn, model=model))
    return figure


def _figure(layers: Mapping[str, Rows]) -> Figure:
    """A figure with space for a panel for each layer."""
    return new_figure(COLUMN if len(layers) == 1 else PAGE, 2.2)


def _job_curve(axes: Axes, rows: Rows, look: Look) -> list[Estimate]:
    """Draw the completion times of a policy by clients, a cross for a point where jobs starved; returns them."""
    drawn: list[Estimate] = []
    points = [row for row in merged(rows) if row["jct_s"] is not None]
    points.sort(key=lambda row: row["clients"])
    model = [(row["clients"], row["predicted_jct_s"]) for row in points if row["predicted_jct_s"] is not None]
    if model:
        alone: Any = {"marker": "_", "markersize": 14} if len(model) == 1 else {"linestyle": look.dashes}
        axes.plot(*zip(*model, strict=True), color=look.colour, linewidth=1.0, zorder=2, **alone)
    for row in points:
        value = estimate([x for one in rows if one["clients"] == row["clients"] for x in values_of(one, "jct_s")])
        if value is not None:
            panels.mark(axes, row["clients"], value, look, faithful=row["starved"] is None)
            drawn.append(value)
        if row.get("authors_jct_s"):
            axes.plot(row["clients"], row["authors_jct_s"], zorder=5, **open_mark(look))
    return drawn


def _bars(axes: Axes, rows: Rows, parts: Mapping[str, float], *, name: str = "policy") -> set[int]:
    """Groups of bars by number of clients, a bar for each policy; ``parts`` are stacked columns with their opacity.

    Returns how many runs the intervals are of.
    """
    numbers: set[int] = set()
    points = merged(rows)
    names = list(dict.fromkeys(row[name] for row in points))
    groups = sorted({row["clients"] for row in points})
    width = 0.8 / len(names)
    for row in points:
        place = groups.index(row["clients"]) + (names.index(row[name]) - (len(names) - 1) / 2) * width
        bottom = 0.0
        mine = [one for one in rows if (one["clients"], one[name]) == (row["clients"], row[name])]
        for column, opacity in parts.items():
            height = row[column] or 0.0
            axes.bar(place, height, width * 0.92, bottom, alpha=opacity, **_filled(_look(row[name])))
            value = estimate([x for one in mine for x in values_of(one, column)])
            if value is not None and value.low is not None and value.high is not None:
                ends = [bottom + value.low, bottom + value.high]
                axes.plot([place] * 2, ends, color=TEXT, marker="_", markersize=5, linewidth=0.8, zorder=3)
                numbers.add(value.n)
            bottom += height
    axes.set_xticks(range(len(groups)), [f"{clients} clients" for clients in groups])
    return numbers


def _bar_figure(rows: Rows, parts: Mapping[str, float], title: str, y: str) -> Figure:
    layers = _layers(rows)
    figure = _figure(layers)
    numbers: set[int] = set()
    for axes, (layer, mine) in zip(figure.subplots(1, len(layers), squeeze=False)[0], layers.items(), strict=True):
        numbers |= _bars(axes, mine, parts)
        style_axes(axes, f"{title}: {_TITLES[layer].lower()}", "", y, grid="y")
    policies = dict.fromkeys(row["policy"] for row in rows)
    n = " to ".join(str(each) for each in sorted({min(numbers), max(numbers)})) if numbers else ""
    caption = f"whiskers: 95 % interval (n = {n})" if n else ""
    legend(figure, [Patch(**_filled(_look(policy)), label=policy) for policy in policies], 8, caption)
    return figure


def utilisation(rows: Rows) -> Figure:
    """Busy share of the clients with work, by policy."""
    return _bar_figure(rows, {"utilisation": 1.0}, "Utilisation", "busy time / length of the run")


def throughput(rows: Rows) -> Figure:
    """Clients bound to a job per second; the lower, darker part of each bar is of completed rounds."""
    split = [{**row, "rest_per_s": (row["bindings_per_s"] or 0) - (row["useful_per_s"] or 0)} for row in rows]
    return _bar_figure(split, {"useful_per_s": 1.0, "rest_per_s": 0.4}, "Throughput", "clients bound per second")


def delays(rows: Rows) -> Figure:
    """Scheduling delay (below) and response time (above, lighter) of a round, by policy."""
    parts = {"scheduling_delay_s": 1.0, "response_time_s": 0.4}
    return _bar_figure(rows, parts, "Scheduling, then response", "mean time of a round (s)")


def root_bytes(rows: Rows) -> Figure:
    """Bytes that the root sent and received in one round, for star and tree, with the law as a line."""
    figure = new_figure()
    axes = figure.add_subplot()
    names = [f"{row['topology']},\n{row['mode']}" for row in rows]
    for place, row in enumerate(rows):
        look = AGGREGATION["star" if row["topology"] == "star" else row["mode"]]
        for shift, column in ((-0.2, "root_bytes"), (0.2, "root_received_bytes")):
            value = real_mb(column)(row) or 0.0
            axes.bar(place + shift, value, 0.38, alpha=1.0 if shift < 0 else 0.5, **_filled(look))
            note(axes, f"{value:.1f}", (place + shift, value), (0, 2), ha="center")
        law = real_mb("predicted_root_bytes")(row)
        if law is not None:
            axes.plot([place - 0.42, place + 0.02], [law, law], color=BLACK, linewidth=1.2)
    axes.set_xticks(range(len(names)), names)
    clients = rows[0]["clients"]
    axes.margins(y=0.12)
    style_axes(axes, f"Root link, one round of {clients} clients", "", "data (MB)", grid="y")
    handles = [
        Patch(color=TEXT, label="sent by the root"),
        Patch(color=TEXT, label="received by the root", alpha=0.5),
        entry("law of the bytes sent", BLACK),
    ]
    legend(figure, handles)
    return figure


def updates(rows: Rows) -> Figure:
    """What became of acknowledged updates, case by case: lost, twice or late, for both modes."""
    figure = new_figure(COLUMN if len(rows) <= _FEW_CASES else PAGE)
    axes = figure.add_subplot()
    room = panel_inches(axes) / len(rows) * 0.95
    names = [f"{wrapped(row['case'], room, SMALL)}\n{row['mode']}" for row in rows]
    for place, row in enumerate(rows):
        bottom = 0.0
        for column, look in UPDATES.items():
            axes.bar(place, row[column] or 0, 0.6, bottom, **_filled(look))
            bottom += row[column] or 0
        note(axes, f"of {row['updates_acknowledged']}", (place, bottom), (0, 3), ha="center")
    axes.set_xticks(range(len(names)), names)
    style_axes(axes, "Acknowledged updates", "", "updates", grid="y")
    axes.set_ylim(0, 1.15 * max(1, *(sum(row[column] or 0 for column in UPDATES) for row in rows)))
    legend(figure, [Patch(**_filled(look), label=look.name) for look in UPDATES.values()])
    return figure


def trunk(rows: Rows) -> Figure:
    """Time of a round against the reconfiguration delay of an optical trunk, beside an electrical one."""
    figure = new_figure(height=2.4)
    axes = figure.add_subplot()
    delays = [row["delay_ms"] for row in rows if row["delay_ms"] is not None] or [0.0]
    series = series_of(rows, lambda row: row["policy"], POLICIES)
    drawn = curves(series, lambda row: row["delay_ms"] or 0.0, "time_s", "predicted_time_s")
    drawn = {kind: curve.level([0.0, *delays]) if kind == "electrical" else curve for kind, curve in drawn.items()}
    panels.draw(axes, drawn)
    style_axes(axes, "One round over the trunk", "reconfiguration delay (ms)", "time of a round (s)", grid="both")
    axes.set_ylim(bottom=0)
    panels.key(figure, drawn.values())
    return figure
