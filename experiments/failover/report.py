"""Report of the failover experiment: recoveries, and step times before and after the fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.report import point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.racks.setting import COMPUTE_S
from experiments.report import Report
from measure.results.row import Row


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("job", {}).get("compute_s") == COMPUTE_S:
        yield "rack-compute"
    if settings.get("stages"):
        yield "rack-stages"


REPORT = Report(
    tables=recovery_tables,
    point=point_name,
    findings=lambda rows, settings: recovery_findings(rows),
    figures=recovery_figures,
    calibrated=_calibrated,
)
