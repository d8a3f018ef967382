"""Report of the failover experiment: recoveries, and step times before and after the fault."""

from __future__ import annotations

from experiments.racks.report import point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.report import Report

REPORT = Report(
    tables=recovery_tables,
    point=point_name,
    findings=lambda rows, settings: recovery_findings(rows),
    figures=recovery_figures,
)
