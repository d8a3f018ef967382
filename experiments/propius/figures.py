"""Figures of the Propius experiment, one function for each study; markers are measured, lines are the model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.propius.row import SAME, merged, real_mb
from experiments.report import Drawn
from measure.figures.curves import Rows
from measure.figures.looks import AGGREGATION, BLACK, POLICIES, SCHEDULERS, TEXT, UPDATES, Look
from measure.figures.plot import Plot, figure_of
from measure.figures.style import (
    COLUMN,
    PAGE,
    SMALL,
    bar_look,
    entry,
    legend,
    new_figure,
    note,
    open_mark,
    panel_inches,
    style_axes,
    wrapped,
)
from measure.published import published
from measure.results.estimates import values_of

JCT = published("propius-jct-6000")
_FEW_CASES = 4
"""Most cases whose names fit beside each other in a column."""


def propius_figures(rows: Rows) -> Iterator[Drawn]:
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


_TITLES = {"packets": "On packets", "virtual": "Virtual time, the authors' sizes"}
_by_load = partial(Plot, "clients", series="policy", looks=SCHEDULERS, same=("layer",), grid="y", columns=8, height=2.2)


def job_completion(rows: Rows) -> Figure | None:
    """Mean job completion time against the number of clients; a panel for packets and one for virtual time.

    A point where jobs starved is crossed out.
    """
    rows = [row for row in rows if row["jct_s"] is not None] or rows
    theirs = entry(f"open: {JCT.label}", **open_mark(Look("", TEXT, "o")))
    plot = _by_load(
        "jct_s",
        ("clients", "mean job completion time (s)"),
        lambda rows: _TITLES[rows[0]["layer"]],
        "predicted_jct_s",
        y_scale="zero",
        ticks="{:g}".format,
        published=lambda row: row.get("authors_jct_s") or None,
        entries=[theirs] if any(row.get("authors_jct_s") for row in rows) else [],
        caption="" if any(row["layer"] == "packets" for row in rows) else "markers: virtual time",
    )
    return figure_of(plot, [{**row, "faithful": row["starved"] is None} for row in _pooled(rows, "jct_s")])


def _pooled(rows: Rows, *columns: str) -> Rows:
    """One row for the runs that differ in their seed alone, with the values of all as samples of ``columns``."""
    found = []
    for one in merged(rows):
        mine = [row for row in rows if all(row[key] == one[key] for key in SAME)]
        samples = {column: [x for row in mine for x in values_of(row, column)] for column in columns}
        found.append({**one, "samples": samples})
    return found


def _bars(rows: Rows, parts: dict[str, float], title: str, y: str) -> Figure | None:
    """Bars of each policy by number of clients; ``parts`` are stacked columns with their opacity."""
    plot = _by_load(
        next(iter(parts)),
        ("", y),
        lambda rows: f"{title}: {_TITLES[rows[0]['layer']].lower()}",
        bars=parts,
        categories=sorted({row["clients"] for row in rows}),
        ticks="{} clients".format,
    )
    return figure_of(plot, _pooled(rows, *parts))


def utilisation(rows: Rows) -> Figure | None:
    return _bars(rows, {"utilisation": 1.0}, "Utilisation", "busy time / length of the run")


def throughput(rows: Rows) -> Figure | None:
    """Clients bound to a job per second; the lower, darker part of each bar is of completed rounds."""
    split = [{**row, "rest_per_s": (row["bindings_per_s"] or 0) - (row["useful_per_s"] or 0)} for row in rows]
    return _bars(split, {"useful_per_s": 1.0, "rest_per_s": 0.4}, "Throughput", "clients bound per second")


def delays(rows: Rows) -> Figure | None:
    """Scheduling delay (below) and response time (above, lighter) of a round, by policy."""
    parts = {"scheduling_delay_s": 1.0, "response_time_s": 0.4}
    return _bars(rows, parts, "Scheduling, then response", "mean time of a round (s)")


def root_bytes(rows: Rows) -> Figure:
    """Bytes that the root sent and received in one round, for star and tree, with the law as a line."""
    figure = new_figure()
    axes = figure.add_subplot()
    names = [f"{row['topology']},\n{row['mode']}" for row in rows]
    for place, row in enumerate(rows):
        look = AGGREGATION["star" if row["topology"] == "star" else row["mode"]]
        for shift, column in ((-0.2, "root_bytes"), (0.2, "root_received_bytes")):
            value = real_mb(column)(row) or 0.0
            axes.bar(place + shift, value, 0.38, alpha=1.0 if shift < 0 else 0.5, **bar_look(look))
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
    """The ends of acknowledged updates, case by case: lost, twice or late, for both modes."""
    figure = new_figure(COLUMN if len(rows) <= _FEW_CASES else PAGE)
    axes = figure.add_subplot()
    room = panel_inches(axes) / len(rows) * 0.95
    names = [f"{wrapped(row['case'], room, SMALL)}\n{row['mode']}" for row in rows]
    for place, row in enumerate(rows):
        bottom = 0.0
        for column, look in UPDATES.items():
            axes.bar(place, row[column] or 0, 0.6, bottom, **bar_look(look))
            bottom += row[column] or 0
        note(axes, f"of {row['updates_acknowledged']}", (place, bottom), (0, 3), ha="center")
    axes.set_xticks(range(len(names)), names)
    style_axes(axes, "Acknowledged updates", "", "updates", grid="y")
    axes.set_ylim(0, 1.15 * max(1, *(sum(row[column] or 0 for column in UPDATES) for row in rows)))
    legend(figure, [Patch(**bar_look(look), label=look.name) for look in UPDATES.values()])
    return figure


def trunk(rows: Rows) -> Figure | None:
    """Time of a round against the reconfiguration delay of an optical trunk, beside an electrical one."""
    plot = Plot(
        lambda row: row["delay_ms"] or 0.0,
        "time_s",
        ("reconfiguration delay (ms)", "time of a round (s)"),
        "One round over the trunk",
        "predicted_time_s",
        series="policy",
        looks=POLICIES,
        levels=lambda policy: policy == "electrical",
        y_scale="zero",
        height=2.4,
    )
    return figure_of(plot, rows)
