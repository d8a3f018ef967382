"""Report of the mesh experiment: gates, loss, latency and state changes of every matching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from experiments.mesh.experiment import some_pairs
from experiments.mesh.row import routable_in_words
from experiments.report import Column, Drawn, Recorded, Report, Table, to_nothing
from measure.published import published
from measure.results.row import Row

GATES, PORTS = published("pip-gates"), published("pip-ports")
_COLOURS = {True: "green", False: "red", None: "yellow"}


def _lengths(row: Row) -> str | None:
    return None if row["gates"] is None else f"{row['path_min']} / {row['path_mean']:.1f} / {row['path_max']}"


_COLUMNS = (
    Column("no.", "number", "d"),
    Column("pairs", lambda row: some_pairs(row["pairs"], " "), left=True),
    Column("routable", lambda row: Text(routable_in_words(row), _COLOURS[row["routable"]]), left=True),
    Column("gates", "gates", "d"),
    Column("path gates\nmin/mean/max", _lengths),
    Column("loss\ndB", "loss_db", ".1f"),
    Column("latency\nps", "latency_ps", ".0f", wide=True),
    Column("flips", "flips", "d"),
    Column("s", "seconds", ".2f", wide=True),
    Column("proved", lambda row: "yes" if row["proved"] else "no", left=True),
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    first = rows[0]
    title = f"{first['width']} x {first['height']} mesh: {first['mesh_gates']} gates, {first['mesh_ports']} ports; "
    title += (
        f"{len(first['used_ports'])} in use ({first['used_ports_are']}): {', '.join(map(str, first['used_ports']))}"
    )
    yield Table(title, _COLUMNS, rows)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Text]:
    yield Text(
        f"Loss and latency of the longest path, at {settings['gate_loss_db']:g} dB and "
        f"{settings['gate_latency_ps']:g} ps a gate. Flips: gates that change their state from the matching before.",
        style="dim",
    )
    if rows[0].get("cover") is not None:
        yield _cover_in_words(rows[0])
    gates, ports = rows[0]["mesh_gates"], rows[0]["mesh_ports"]
    if (gates, ports) != (GATES.value, PORTS.value):
        yield Text(
            f"PIP's device has {GATES.value:g} gates ({GATES.label}) and {PORTS.value:g} ports ({PORTS.label}); this "
            f"mesh is of our geometry and has {gates} and {ports}.",
            style="dim",
        )


def _cover_in_words(row: Row) -> Text:
    """The size of a cover, its bound, and the pairs that it leaves out."""
    fewest = row["cover"] == row["cover_bound"]
    text = f"Cover: {row['cover']} partial matchings join every two ports that can be joined, once. "
    text += "It has the fewest" if fewest else f"No cover has fewer than {row['cover_bound']}"
    text += f" (proved: {row['cover_bound_is']})."
    if row["apart"]:
        pairs = some_pairs(row["apart"], ", ")
        text += f" {len(row['apart'])} pairs are left out, as nothing joins them (proved): {pairs}."
    return Text(text, "green" if fewest else "yellow")


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.mesh.figure import figure_of_rows

    if recorded.rows:
        yield Drawn("mesh", figure_of_rows(recorded.rows), recorded.rows)


REPORT = Report(tables=_tables, findings=_findings, figures=_figures, calibrated=to_nothing)
