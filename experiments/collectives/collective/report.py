"""Report of the collective experiment: its table, that of nccl-tests for each algorithm, and time against size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from experiments.collectives.collective.experiment import CollectiveSettings
from experiments.collectives.collective.nccl_table import format_table, table_row
from experiments.collectives.report import trial_point, trial_tables
from experiments.collectives.rounds import after_arrival_s, crossings
from experiments.report import Cell, Drawn, Recorded, Report, to_nothing
from experiments.settings import recorded_settings
from measure.results.row import Row


def _nccl(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    for title in dict.fromkeys(map(_title, rows)):
        mine = [row for row in rows if _title(row) == title]
        first = mine[0]
        yield title
        table = [table_row(r["collective"], r["n"], r["bytes"], r["after_arrival_s"], r["wrong"]) for r in mine]
        devices = [f"g{rank}" for rank in range(first["n"])]
        yield format_table(table, iterations=settings["iterations"], warmup=1, devices=devices)


def _title(row: Row) -> str:
    circuits = f" {row['circuits']}, {row['reconfiguration_delay_ms']:g} ms" if row.get("circuits") else ""
    fabric = f"{row['fabric']}{circuits}, {row['port_gbps']:g} Gb/s a port"
    return f"# {row['algorithm']}, {row['collective']}, {row['n']} ranks, {fabric}"


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    yield from crossings(rows, recorded_settings(CollectiveSettings, settings).trials, after_arrival_s)
    wrong = [row["wrong"] for row in rows if row["wrong"] is not None]
    if wrong:
        says = f"Verified in {len(wrong)} of {len(rows)} points: {sum(wrong):,} wrong elements."
        yield Text(says, "bold red" if any(wrong) else "green")


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.collectives.collective.figures import time_against_size

    yield Drawn("collective", time_against_size(recorded.rows), recorded.rows)


REPORT = Report(
    tables=trial_tables,
    point=trial_point,
    findings=_findings,
    text=_nccl,
    figures=_figures,
    calibrated=to_nothing,
)
