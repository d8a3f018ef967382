"""The row of a rail experiment: one mode at one delay, measured beside predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Annotated, ClassVar

from experiments.job_row import JobRow
from measure.metrics.circuit_delay import circuit_delays
from measure.metrics.quantiles import Quantiles
from measure.metrics.stall import hidden_s, stall_law
from measure.metrics.transfers import Bandwidth
from measure.model.prediction import Prediction

if TYPE_CHECKING:
    from experiments.runner import Measured


@dataclass(kw_only=True)
class RailRow(JobRow):
    """One mode at one reconfiguration delay."""

    main: ClassVar[tuple[str, ...]] = ("step_time_s",)
    given: ClassVar[frozenset[str]] = JobRow.given | {"dark_configured_wall_s"}
    faults: ClassVar[frozenset[str]] = JobRow.faults | {"refusals", "packets_lost_outside_dark"}

    workload: Annotated[str, "name of the workload"]
    fabric: Annotated[str, "electrical, one-shot, four-lane or ocs"]
    mode: Annotated[str, "mode of the job"]
    policy: Annotated[str, "policy of the controller"]
    controller: Annotated[str, "framework of the controller; remote: one of the user's own"] = ""
    reconfiguration_delay_ms: Annotated[float, "configured reconfiguration delay"]
    link_recovery_ms: Annotated[float, "configured link recovery after a reconfiguration"]
    stall_law_step_time_s: Annotated[float | None, "step time by Opus's stall law from the electrical row"] = None
    reconfigurations_per_step: Annotated[float | None, "reconfigurations in a step"] = None
    predicted_reconfigurations_per_step: Annotated[float | None, "the same of the model"] = None
    exposed_s: Annotated[float | None, "what the delay adds to a step: over that of this mode at 0 ms"] = None
    predicted_exposed_s: Annotated[float | None, "the same of the model"] = None
    hidden_s: Annotated[float | None, "delays of a step's reconfigurations, less the exposed time, at least 0"] = None
    predicted_hidden_s: Annotated[float | None, "the same of the model"] = None
    late: Annotated[str, "the late rank and what makes it late; empty without one"] = ""
    late_s: Annotated[float | None, "time by which it is late in a step, mean"] = None
    late_adds_s: Annotated[float | None, "what the late rank adds to a step: over the same point without it"] = None
    predicted_late_adds_s: Annotated[float | None, "the same of the model"] = None
    circuit_wait_s: Annotated[float | None, "time of a step in which its last rank waited for circuits"] = None
    circuit_wait_worst_s: Annotated[float | None, "the same of the rank that waited longest"] = None
    readiness_wait_s: Annotated[float | None, "wait of a step for the other members of a group"] = None
    control_wait_s: Annotated[float | None, "wait of a step for the controller"] = None
    window_median_s: Annotated[float | None, "window between two phases of a rail, median"] = None
    packets_lost_outside_dark: Annotated[int | None, "of these, those not at dark ports"] = None
    refusals: Annotated[int | None, "requests that the controller refused"] = None
    timer_lag_p99_wall_s: Annotated[float | None, "lateness of timers, 99th percentile"] = None
    control_latency_p99_wall_s: Annotated[float | None, "answer time of the controller, 99th percentile"] = None
    dark_configured_wall_s: Annotated[float | None, "dark time of a reconfigured port as configured"] = None
    dark_median_wall_s: Annotated[float | None, "dark time of a reconfigured port, median"] = None
    controller_restart_wall_s: Annotated[float | None, "from the controller's death until another was ready"] = None
    controller_wait_wall_s: Annotated[float | None, "until then, the wait for circuits of the last rank that waits"] = (
        None
    )
    controller_late_wall_s: Annotated[float | None, "by how much the steps meanwhile were late, in all"] = None
    verified: Annotated[int | None, "collectives whose result was checked"] = None
    wrong: Annotated[int | None, "wrong elements in checked results"] = None
    stale_step_time_s: Annotated[float | None, "time of the step with a stale profile, which no other counts"] = None
    predicted_stale_step_time_s: Annotated[float | None, "the same of the model"] = None
    step_times_s: Annotated[Sequence[float], "time of every step, the warm-up included"] = ()
    reconfigurations: Annotated[dict[str, int], "reconfigurations of every switch"] = field(default_factory=dict)
    bandwidth: Annotated[dict[str, Bandwidth], "bandwidth by kind of link"] = field(default_factory=dict)
    timer_lag_wall_s: Annotated[Quantiles | None, "lateness of timers"] = None
    control_latency_wall_s: Annotated[Quantiles | None, "answer time of the controller"] = None
    dark_error_wall_s: Annotated[Quantiles | None, "dark time less the configured one"] = None
    circuit_delay_wall_s: Annotated[
        dict[str, dict[str, float]], "from request to first payload over new circuits, and its parts, at p50 and p99"
    ] = field(default_factory=dict)
    windows_s: Annotated[Sequence[float], "every window between two phases"] = ()
    critical_windows_s: Annotated[Sequence[float], "windows of the last rank, which the stall law uses"] = ()

    def predict(self, prediction: Prediction) -> None:
        self.predicted_step_time_s = prediction.step_time_s
        self.predicted_stale_step_time_s = prediction.stale_step_time_s
        self.predicted_reconfigurations_per_step = prediction.reconfigurations_per_step

    def take(self, found: Measured) -> None:
        super().take(found)
        metrics = found.metrics
        self.timer_lag_p99_wall_s = _p99(metrics.timer_lag_s)
        self.control_latency_p99_wall_s = _p99(metrics.control_latency_s)
        self.dark_configured_wall_s = metrics.dark_configured_s
        self.dark_median_wall_s = None if metrics.dark_s is None else metrics.dark_s.p50
        self.timer_lag_wall_s = metrics.timer_lag_s
        self.control_latency_wall_s = metrics.control_latency_s
        self.dark_error_wall_s = metrics.dark_error_s
        if delays := circuit_delays(found.point, found.events):
            at = {"p50": ceil(len(delays) / 2) - 1, "p99": ceil(0.99 * len(delays)) - 1}
            self.circuit_delay_wall_s = {name: asdict(delays[place]) for name, place in at.items()}

    def compare_late(self, punctual: RailRow) -> None:
        """Set what the late rank adds by the row of the same mode and delay without it."""
        if self.step_time_s is not None and punctual.step_time_s is not None:
            self.late_adds_s = self.step_time_s - punctual.step_time_s
        if self.predicted_step_time_s is not None and punctual.predicted_step_time_s is not None:
            self.predicted_late_adds_s = self.predicted_step_time_s - punctual.predicted_step_time_s

    def compare(self, ideal: RailRow) -> None:
        """Set the exposed and the hidden time by the row of the same mode without a delay."""
        delay_s = self.reconfiguration_delay_ms / 1e3
        if self.step_time_s is not None and ideal.step_time_s is not None:
            self.exposed_s = self.step_time_s - ideal.step_time_s
            self.hidden_s = hidden_s(self.reconfigurations_per_step or 0.0, delay_s, self.exposed_s)
        if self.predicted_step_time_s is not None and ideal.predicted_step_time_s is not None:
            self.predicted_exposed_s = self.predicted_step_time_s - ideal.predicted_step_time_s
            changes = self.predicted_reconfigurations_per_step or 0.0
            self.predicted_hidden_s = hidden_s(changes, delay_s, self.predicted_exposed_s)


def _p99(sample: Quantiles | None) -> float | None:
    return None if sample is None else sample.p99


def stall_law_step_time_s(row: RailRow, baseline: RailRow) -> float | None:
    """Step time of ``row`` in seconds by the stall law, from step time and windows measured without reconfigurations.

    ``baseline`` is the electrical (or native) row of the same workload. Only mode ``provisioned`` can use windows; in
    other modes they count as 0. None if the baseline has too few steps to have windows. Source: Opus, arXiv 2507.08119,
    section 4.
    """
    windows = baseline.critical_windows_s
    if not windows or baseline.step_time_s is None:
        return None
    dark_s = (row.reconfiguration_delay_ms + row.link_recovery_ms) / 1e3
    used = windows if row.mode == "provisioned" else [0.0] * len(windows)
    return float(baseline.step_time_s + stall_law(used, dark_s))
