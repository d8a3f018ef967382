"""Report of the failover experiment: recoveries, step times before and after the fault, and the factors of the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.failover.experiment import REPROGRAMMING_S
from experiments.racks.failover.factors import factor_findings, factor_tables
from experiments.racks.failover.requests import request_figures, request_findings, request_tables
from experiments.racks.report import fault_rows, point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.racks.row import PHOTONIC
from experiments.racks.setting import COMPUTE_S, TIMELINE
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table
from measure.published import published
from measure.results.row import Row
from railyard.digits import significant
from topos.spares import PLACES

RESTART = published("lumion-restart")


_PLACE_COLUMNS = (
    Column("fabric, place", "fabric", left=True),
    Column("spare", "replaced_by", "g"),
    Column("hops", "ring_hops", "g"),
    Column("shared\nlinks", "shared_links", "g"),
    Column("most on\na link", "most_on_link", "g"),
    Column("step\nafter", "step_time_after_s", significant),
    Column("step after\nmodel", "predicted_step_time_after_s", significant),
    FAITHFUL,
)


def _place_tables(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [row for row in rows if any(row["fabric"].endswith(f" {place}") for place in PLACES) and row["ring_hops"]]
    if lines:
        title = (
            "Where spares stand: links between chips (both ways round) or fibres between servers that the ring crosses "
            "after the failure, those that another ring crosses too, and the most on one"
        )
        yield Table(title, _PLACE_COLUMNS, lines)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    yield from recovery_tables(rows)
    yield from factor_tables(fault_rows(rows))
    yield from _place_tables(fault_rows(rows))
    yield from request_tables(fault_rows(rows))


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    yield from recovery_findings(rows)
    yield from factor_findings(fault_rows(rows))
    yield from request_findings(fault_rows(rows), settings)
    optical = any(row["fabric"] == PHOTONIC for row in fault_rows(rows))
    if optical and settings.get("reconfiguration_delay_ms") == REPROGRAMMING_S * 1e3:
        yield (
            f"rewire: {REPROGRAMMING_S:g} s is the time in which MORPHLUX's mesh is reprogrammed ({TIMELINE.label}); "
            f"LUMION gives no parts, but about {RESTART.value:g} s until the job restarts ({RESTART.label})."
        )


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("job", {}).get("compute_s") == COMPUTE_S and not settings.get("inference"):
        yield "rack-compute"
    if settings.get("stages"):
        yield "rack-stages"


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    yield from recovery_figures(recorded)
    yield from request_figures(recorded)


REPORT = Report(tables=_tables, point=point_name, findings=_findings, figures=_figures, calibrated=_calibrated)
