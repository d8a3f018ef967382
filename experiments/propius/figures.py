"""Figures of the Propius experiment, one function for each study; markers are measured, lines are the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.propius.row import real_mb
from experiments.propius.seeds import interval, merged
from experiments.report import Drawn
from measure.figures import style
from measure.figures.curves import Rows
from measure.figures.style import entry, legend, new_figure, note, style_axes
from measure.published import published
from measure.results.row import Row

JCT = published("propius-jct-6000")
_COLOURS = {
    "static": style.ORANGE,
    "random": style.VERMILION,
    "random-client": style.PURPLE,
    "fifo": style.SKY,
    "srsf": style.GREEN,
    "irs": style.BLUE,
}
_MARKERS = dict(zip(_COLOURS, "svPD^o", strict=True))
_MODES = {"star": style.GREY, "authors": style.ORANGE, "fixed": style.BLUE}
_TRUNKS = {"electrical": style.BLACK, "rotor": style.PURPLE, "demand": style.GREEN, "phase": style.BLUE}


def propius_figures(rows: Rows) -> Iterator[Drawn]:
    """The figures of all studies that ``rows`` hold."""
    made = {
        "jct": job_completion,
        "utilisation": utilisation,
        "throughput": throughput,
        "delays": delays,
        "tree": root_bytes,
        "micro": operations,
        "control": check_ins,
        "trouble": updates,
        "trunk": trunk,
    }
    for study, draw in made.items():
        mine = [row for row in rows if row["study"] == study]
        if mine:
            yield Drawn(f"propius-{study}", draw(mine), [row for row in mine if row["layer"] == "packets"])


def _colour(policy: str) -> str:
    return _COLOURS.get(policy, style.BLACK)


def _layers(rows: Rows) -> dict[str, Rows]:
    split = {layer: [row for row in rows if row["layer"] == layer] for layer in ("packets", "virtual")}
    return {layer: mine for layer, mine in split.items() if mine}


_TITLES = {"packets": "On packets", "virtual": "Virtual time, the authors' sizes"}


def job_completion(rows: Rows) -> Figure:
    """Mean job completion time against the number of clients; a panel for packets and one for virtual time."""
    layers = _layers(rows)
    figure = new_figure(1.4 + 5.2 * len(layers), 4.6)
    for axes, (layer, mine) in zip(figure.subplots(1, len(layers), squeeze=False)[0], layers.items(), strict=True):
        for policy in dict.fromkeys(row["policy"] for row in mine):
            _job_curve(axes, [row for row in mine if row["policy"] == policy], policy)
        style_axes(axes, _TITLES[layer], "clients", "mean job completion time (s)", grid="y")
        axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({row["clients"] for row in mine}))
    policies = dict.fromkeys(row["policy"] for row in rows)
    handles = [entry(policy, _colour(policy), marker=_MARKERS.get(policy, "x"), linestyle="") for policy in policies]
    handles.append(entry("model"))
    if any(row["authors_jct_s"] for row in rows):
        handles.append(entry(JCT.label, marker="_", markersize=14, linestyle=""))
    legend(figure, handles, 8)
    return figure


def _job_curve(axes: Axes, rows: Rows, policy: str) -> None:
    colour = _colour(policy)
    points = [row for row in merged(rows) if row["jct_s"] is not None]
    points.sort(key=lambda row: row["clients"])
    model = [(row["clients"], row["predicted_jct_s"]) for row in points if row["predicted_jct_s"] is not None]
    if model:
        marker = "_" if len(model) == 1 else ""
        axes.plot(*zip(*model, strict=True), color=colour, linewidth=1.4, zorder=2, marker=marker, markersize=18)
    for row in points:
        values = [one["jct_s"] for one in rows if one["clients"] == row["clients"] and one["jct_s"] is not None]
        low, high = (getattr(interval(values), end) for end in ("low", "high"))
        complete = row["starved"] is None
        axes.plot([row["clients"]] * 2, [low, high], color=colour, linewidth=1, zorder=3)
        face = colour if complete else "white"
        axes.plot(row["clients"], row["jct_s"], _MARKERS.get(policy, "x"), color=colour, markerfacecolor=face, zorder=4)
        if row["authors_jct_s"]:
            axes.plot(row["clients"], row["authors_jct_s"], "_", color=colour, markersize=16, zorder=5)


def _bars(axes: Axes, rows: Rows, parts: Mapping[str, float], *, name: str = "policy") -> None:
    """Groups of bars by number of clients, a bar for each policy; ``parts`` are stacked columns with their opacity."""
    points = merged(rows)
    names = list(dict.fromkeys(row[name] for row in points))
    groups = sorted({row["clients"] for row in points})
    width = 0.8 / len(names)
    for row in points:
        place = groups.index(row["clients"]) + (names.index(row[name]) - (len(names) - 1) / 2) * width
        bottom = 0.0
        for column, opacity in parts.items():
            height = row[column] or 0.0
            axes.bar(place, height, width * 0.92, bottom, color=_colour(row[name]), alpha=opacity)
            bottom += height
    axes.set_xticks(range(len(groups)), [f"{clients} clients" for clients in groups])


def _bar_figure(rows: Rows, parts: Mapping[str, float], title: str, y: str) -> Figure:
    layers = _layers(rows)
    figure = new_figure(1.4 + 5.2 * len(layers), 4.4)
    for axes, (layer, mine) in zip(figure.subplots(1, len(layers), squeeze=False)[0], layers.items(), strict=True):
        _bars(axes, mine, parts)
        style_axes(axes, f"{title}: {_TITLES[layer].lower()}", "", y, grid="y")
    policies = dict.fromkeys(row["policy"] for row in rows)
    handles = [entry(policy, _colour(policy), linewidth=7) for policy in policies]
    legend(figure, handles, 8)
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
    figure = new_figure(8.4, 4.4)
    axes = figure.add_subplot()
    names = [f"{row['topology']}, {row['mode']}" for row in rows]
    for place, row in enumerate(rows):
        colour = _MODES["star" if row["topology"] == "star" else row["mode"]]
        for shift, column in ((-0.2, "root_bytes"), (0.2, "root_received_bytes")):
            value = real_mb(column)(row) or 0.0
            axes.bar(place + shift, value, 0.38, color=colour, alpha=1.0 if shift < 0 else 0.5)
            note(axes, f"{value:.1f}", (place + shift, value), (0, 2), ha="center")
        law = real_mb("predicted_root_bytes")(row)
        if law is not None:
            axes.plot([place - 0.42, place + 0.02], [law, law], color=style.BLACK, linewidth=1.5)
    axes.set_xticks(range(len(names)), names)
    clients = rows[0]["clients"]
    style_axes(axes, f"Root link, one round of {clients} clients", "", "MB", grid="y")
    handles = [
        entry("sent by the root", linewidth=7),
        entry("received by the root", linewidth=7, alpha=0.5),
        entry("law of the bytes sent"),
    ]
    legend(figure, handles)
    return figure


def operations(rows: Rows) -> Figure:
    """Measured over computed time of GET and PUSH against the delay of the link."""
    figure = new_figure(8.4, 4.4)
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys((row["operation"], row["server"]) for row in rows))
    colours = dict(zip(kinds, (style.BLUE, style.SKY, style.GREEN, style.ORANGE, *_COLOURS.values()), strict=False))
    for kind in kinds:
        mine = [row for row in rows if (row["operation"], row["server"]) == kind and row["time_s"]]
        points = sorted((row["delay_ms"], row["time_s"] / row["predicted_time_s"]) for row in mine)
        marker = "o" if kind[1] == "leaf" else "s"
        axes.plot(*zip(*points, strict=True), f"{marker}-", color=colours[kind], label=f"{kind[0]}, {kind[1]}")
    axes.axhline(1.0, color=style.GREY, linewidth=1)
    style_axes(axes, "GET and PUSH", "one-way delay (ms)", "measured / formula", grid="y")
    axes.legend(frameon=False, fontsize=9)
    return figure


def check_ins(rows: Rows) -> Figure:
    """Latency of a check-in against the rate of check-ins, a line for each number of client managers."""
    figure = new_figure(8.4, 4.4)
    axes = figure.add_subplot()
    counts = sorted({row["managers"] for row in rows})
    for count, colour in zip(counts, (style.BLUE, style.GREEN, style.VERMILION, style.ORANGE), strict=False):
        mine = sorted((row for row in rows if row["managers"] == count), key=lambda row: row["concurrency"])
        for column, dashes in (("p50_wall_ms", "-"), ("p99_wall_ms", style.DASHED)):
            points = [(row["checkins_per_s"], row[column]) for row in mine]
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, linestyle=dashes, markersize=4)
    handles = [
        entry(f"{count} client managers" if count > 1 else "1 client manager", colour)
        for count, colour in zip(counts, (style.BLUE, style.GREEN, style.VERMILION, style.ORANGE), strict=False)
    ]
    handles += [entry("median"), entry("99th percentile", linestyle=style.DASHED)]
    legend(figure, handles, 6)
    axes.set_yscale("log")
    style_axes(axes, "Check-ins over sockets", "check-ins per second", "time of a check-in (ms, wall clock)", grid="y")
    return figure


def updates(rows: Rows) -> Figure:
    """What became of acknowledged updates, case by case: lost, twice or late, for both modes."""
    figure = new_figure(9.4, 4.4)
    axes = figure.add_subplot()
    names = [f"{row['case']}\n{row['mode']}" for row in rows]
    looks = {"updates_lost": style.VERMILION, "updates_twice": style.PURPLE, "updates_late": style.SKY}
    for place, row in enumerate(rows):
        bottom = 0.0
        for column, colour in looks.items():
            axes.bar(place, row[column] or 0, 0.6, bottom, color=colour)
            bottom += row[column] or 0
        note(axes, f"of {row['updates_acknowledged']}", (place, bottom), (0, 3), ha="center")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    style_axes(axes, "Acknowledged updates", "", "updates", grid="y")
    axes.set_ylim(0, 1.15 * max(1, *(sum(row[column] or 0 for column in looks) for row in rows)))
    legend(figure, [entry(name.removeprefix("updates_"), colour, linewidth=7) for name, colour in looks.items()])
    return figure


def trunk(rows: Rows) -> Figure:
    """Time of a round against the reconfiguration delay of an optical trunk, beside an electrical one."""
    figure = new_figure(8.4, 4.6)
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(row["policy"] for row in rows))
    for kind in kinds:
        colour = _TRUNKS.get(kind, style.VERMILION)
        mine = [row for row in rows if row["policy"] == kind]
        _trunk_curve(axes, mine, colour)
    style_axes(axes, "One round over the trunk", "reconfiguration delay (ms)", "time of a round (s)", grid="y")
    handles = [entry(kind, _TRUNKS.get(kind, style.VERMILION), marker="o", linestyle="") for kind in kinds]
    dotted = entry("electrical, measured", linestyle=style.DOTTED)
    legend(figure, [*handles, entry("formula"), dotted], 6)
    axes.set_ylim(bottom=0)
    return figure


def _trunk_curve(axes: Axes, rows: Sequence[Row], colour: str) -> None:
    for column, marker, dashes in (("time_s", "o", ""), ("predicted_time_s", "_", "-")):
        points = [(row["delay_ms"], row[column]) for row in rows if row[column] is not None]
        if points and points[0][0] is None:  # the electrical trunk has no delay
            axes.axhline(points[0][1], color=colour, linestyle=dashes or style.DOTTED)
        elif points:
            axes.plot(*zip(*sorted(points), strict=True), color=colour, marker=marker, linestyle=dashes)
