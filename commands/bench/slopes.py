"""Benchmark of the growth of step time with the reconfiguration delay, against Opus (arXiv 2602.12521).

On-demand exposes every phase change of the critical path, so step time grows by their number times the delay: 2 for
the smoke job, 6 for the Llama job without overlap, 0 for a job with one phase. Provisioned hides delays inside its
windows: it is never slower than on-demand, and follows the stall law for the measured windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commands.bench import Measurement, NotMeasured, at_most
from commands.bench.bed import Bed, rows_of
from experiments.rails.experiment import Rails
from experiments.rails.settings import make_settings
from measure.results.row import Row

NEVER_SLOWER_SHARE = 0.01
"""Difference between two points of one machine that noise explains, as a share of the step time."""
STALL_LAW_SHARE = 0.10


def slopes(bed: Bed) -> list[Measurement]:
    """Slopes in seconds of step per second of delay; provisioned against on-demand and the stall law. Needs root."""
    smoke = _rows(bed, "smoke", ["electrical", "on-demand", "provisioned"], [50, 100, 200, 350, 500], 4)
    llama = _rows(bed, "llama3-8b-16", ["on-demand"], [50, 200, 500], 2)
    flat = _rows(bed, "pp-only", ["on-demand"], [50, 500], 2)
    return [
        _slope("smoke_on_demand_slope", smoke, 2.0, 0.05),
        _slope("llama_on_demand_slope", llama, 6.0, 0.10),
        _flat("pp_only_slope", flat),
        *_provisioned(smoke),
        Measurement("unfaithful_points", sum(not row["faithful"] for row in (*smoke, *llama, *flat)), "points"),
    ]


def _rows(bed: Bed, workload: str, modes: Sequence[str], delays_ms: Sequence[float], steps: int) -> list[Row]:
    values = {"workload": workload, "modes": modes, "delays_ms": delays_ms, "steps": steps, "datapath": bed.option}
    return rows_of(Rails(make_settings(values)))


def _fit(rows: Sequence[Row], mode: str) -> float:
    """Least-squares slope of step time over delay."""
    points = [(row["reconfiguration_delay_ms"] / 1e3, _step_s(row)) for row in rows if row["mode"] == mode]
    if len({delay for delay, _ in points}) < 2:
        raise NotMeasured(f"the slope of {mode}: its points have fewer than two delays")
    delays, times = np.array(points).T
    return float(np.polyfit(delays, times, 1)[0])


def _step_s(row: Row) -> float:
    """The step time of a point in seconds; ``NotMeasured`` if no step of the point was measured."""
    if not row["step_time_s"]:
        raise NotMeasured(
            f"the step time of {row['mode']} at {row['reconfiguration_delay_ms']:g} ms: no step was whole"
        )
    return float(row["step_time_s"])


def _slope(name: str, rows: Sequence[Row], expected: float, share: float) -> Measurement:
    """A measurement whose ``ratio`` is measured / expected and whose ``limit`` is the largest distance of it from 1."""
    found = _fit(rows, "on-demand")
    ratio = found / expected
    return Measurement(name, found, "s/s", expected, ratio, share, abs(ratio - 1) <= share)


def _flat(name: str, rows: Sequence[Row]) -> Measurement:
    """A measurement with an expected slope of 0: within 0.05 s per second of delay, and without reconfigurations."""
    found, limit = _fit(rows, "on-demand"), 0.05
    quiet = all(row["reconfigurations_per_step"] == 0 for row in rows)
    return Measurement(name, found, "s/s", 0.0, None, limit, abs(found) <= limit and quiet)


def _provisioned(rows: Sequence[Row]) -> list[Measurement]:
    """Measurements of provisioned against on-demand at the same delay, and against the stall law."""
    by_mode = {mode: {row["reconfiguration_delay_ms"]: row for row in rows if row["mode"] == mode}
               for mode in ("on-demand", "provisioned")}  # fmt: skip
    exposed, covered = by_mode["on-demand"], by_mode["provisioned"]
    if not covered or not all(delay in exposed and row.get("stall_law_step_time_s") for delay, row in covered.items()):
        raise NotMeasured("provisioned against on-demand and the stall law: a point of one of them is missing")
    slower = max(_step_s(row) / _step_s(exposed[delay]) for delay, row in covered.items())
    off = max(abs(_step_s(row) / row["stall_law_step_time_s"] - 1) for row in covered.values())
    return [
        at_most("provisioned_over_on_demand_worst", slower, "ratio", 1 + NEVER_SLOWER_SHARE),
        at_most("provisioned_off_stall_law_worst", off, "share", STALL_LAW_SHARE),
    ]
