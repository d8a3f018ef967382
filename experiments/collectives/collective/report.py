"""Report of the collective experiment: its table, that of nccl-tests for each algorithm, and time against size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from experiments.collectives.collective.nccl_table import format_table, table_row
from experiments.collectives.report import trial_point, trial_tables
from experiments.report import Cell, Drawn, Recorded, Report, to_nothing
from measure.results.row import Row


def _nccl(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        mine = [row for row in rows if row["algorithm"] == algorithm]
        first = mine[0]
        yield (
            f"# {algorithm}, {first['collective']}, {first['n']} ranks, {first['fabric']}, "
            f"{first['port_gbps']:g} Gb/s a port"
        )
        table = [table_row(r["collective"], r["n"], r["bytes"], r["after_arrival_s"], r["wrong"]) for r in mine]
        devices = [f"g{rank}" for rank in range(first["n"])]
        yield format_table(table, iterations=settings["iterations"], warmup=1, devices=devices)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
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
