"""One row of ``summary.json`` and ``summary.csv``: the metrics of one point in real units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from measure.metrics.fidelity import Verdict
from measure.metrics.metrics import PointMetrics
from measure.metrics.point import Point
from measure.metrics.quantiles import Quantiles
from measure.metrics.stall import stall_law

Row = dict[str, Any]
"""A row as plain data. Times are real seconds, except in columns named ``..wall..``; nested values are in JSON only."""

NESTED = frozenset(
    {
        "step_times_s",
        "reconfigurations",
        "bandwidth",
        "timer_lag_wall_s",
        "control_latency_wall_s",
        "dark_error_wall_s",
        "windows_s",
        "checks",
        "per_rack",
        "breakdown",
        "predicted_breakdown",
        "stages",
        "steps_done",
        "acknowledged_checkpoints",
        "resumed",
    }
)
"""Keys whose values are lists or tables, which CSV leaves out."""


def summary_row(
    point: Point, metrics: PointMetrics, verdict: Verdict, *, experiment: str, workload: str, seed: int
) -> Row:
    """The row of the summary for one measured point."""
    return {
        "experiment": experiment,
        "workload": workload,
        "fabric": point.plan.fabric,
        "mode": point.mode,
        "point": point.number,
        "reconfiguration_delay_ms": point.reconfiguration_delay_s * 1e3,
        "link_recovery_ms": point.link_recovery_s * 1e3,
        "seed": seed,
        "steps": metrics.steps,
        "warmup_steps": metrics.warmup_steps,
        "step_time_s": metrics.step_time_s,
        "predicted_step_time_s": metrics.predicted_step_time_s,
        "reconfigurations_per_step": metrics.reconfigurations_per_step,
        "exposed_stall_s": metrics.exposed_stall_s,
        "exposed_stall_worst_s": metrics.exposed_stall_worst_s,
        "hidden_stall_s": metrics.hidden_stall_s,
        "readiness_wait_s": metrics.readiness_wait_s,
        "control_wait_s": metrics.control_wait_s,
        "window_median_s": metrics.window_median_s,
        "packets_lost": metrics.packets_lost,
        "packets_lost_outside_dark": metrics.packets_lost_outside_dark,
        "retransmissions": metrics.retransmissions,
        "refusals": metrics.refusals,
        "timer_lag_p99_wall_s": _p99(metrics.timer_lag_s),
        "control_latency_p99_wall_s": _p99(metrics.control_latency_s),
        "dark_configured_wall_s": metrics.dark_configured_s,
        "dark_median_wall_s": None if metrics.dark_s is None else metrics.dark_s.p50,
        "verified": metrics.verified,
        "wrong": metrics.wrong,
        "faithful": verdict.faithful,
        "rate_scale": point.scale.rate,
        "time_scale": point.scale.time,
        "verdict": str(verdict),
        "step_times_s": list(metrics.step_times_s),
        "reconfigurations": metrics.reconfigurations,
        "bandwidth": {kind: asdict(b) for kind, b in metrics.bandwidth.items()},
        "timer_lag_wall_s": _numbers(metrics.timer_lag_s),
        "control_latency_wall_s": _numbers(metrics.control_latency_s),
        "dark_error_wall_s": _numbers(metrics.dark_error_s),
        "windows_s": list(metrics.windows_s),
        "critical_windows_s": list(metrics.critical_windows_s),
        "checks": [asdict(c) for c in verdict.checks],
    }


def stall_law_step_time_s(row: Row, baseline: Row) -> float | None:
    """Step time of ``row`` in seconds by the stall law, from step time and windows measured without reconfigurations.

    ``baseline`` is the electrical (or native) row of the same workload. Only mode ``provisioned`` can use windows; in
    other modes they count as 0. None if the baseline has too few steps to have windows. Source: Opus, arXiv 2507.08119,
    section 4.
    """
    windows = baseline["critical_windows_s"]
    if not windows or baseline["step_time_s"] is None:
        return None
    dark_s = (row["reconfiguration_delay_ms"] + row["link_recovery_ms"]) / 1e3
    used = windows if row["mode"] == "provisioned" else [0.0] * len(windows)
    return float(baseline["step_time_s"] + stall_law(used, dark_s))


def flat(row: Mapping[str, Any]) -> Row:
    """The columns of a row for CSV, without nested values."""
    return {key: value for key, value in row.items() if key not in NESTED}


def _p99(sample: Quantiles | None) -> float | None:
    return None if sample is None else sample.p99


def _numbers(sample: Quantiles | None) -> dict[str, float] | None:
    return None if sample is None else asdict(sample)
