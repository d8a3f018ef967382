"""The row of a trial: measured beside predicted values, in the units of the real system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, ClassVar

from experiments.collectives.rounds import after_arrival_s, has_law
from experiments.collectives.trial import Trial
from experiments.job_row import JobRow
from measure.metrics.collective import CollectiveTimes
from measure.metrics.critical import bound_s
from measure.model.prediction import Prediction
from railyard.scale import Scale
from railyard.timeline import Event
from workloads.schedule import bus_factor

if TYPE_CHECKING:
    from experiments.runner import Measured


@dataclass(kw_only=True)
class TrialRow(JobRow):
    """One collective on one fabric, as the median of its iterations (the mean where steps vary on purpose).

    ``time_s`` is from the first rank's arrival at the collective to the last rank's end, ``after_arrival_s`` from the
    last rank's arrival; the two are equal if no rank is late. Bandwidths (nccl-tests) count from the last arrival.
    ``formula_s``, from the last arrival too, is the law of circuits that follow the rounds
    (``experiments.collectives.rounds``).
    """

    main: ClassVar[tuple[str, ...]] = ("time_s", "after_arrival_s", "busbw_gbps")
    given: ClassVar[frozenset[str]] = JobRow.given | {"straggler", "bound_s", "formula_s"}

    study: Annotated[str, "study of the trial; trials of a study are compared"]
    algorithm: Annotated[str, "algorithm of the collective"]
    collective: Annotated[str, "kind of the collective"]
    n: Annotated[int, "number of ranks"]
    bytes: Annotated[int, "buffer, in bytes"]
    fabric: Annotated[str, "electrical or ocs"]
    circuits: Annotated[str, "static, on-demand, provisioned or in-slots; empty on packet switches"] = ""
    port_gbps: Annotated[float, "rate of a port"]
    mtu: Annotated[int, "MTU of the links, in bytes"]
    rounds: Annotated[int, "rounds of the schedule"]
    second_phase_rounds: Annotated[int, "rounds in which the late rank takes part"]
    reconfiguration_delay_ms: Annotated[float, "configured reconfiguration delay"] = 0.0
    straggler_delay_s: Annotated[float, "delay of the late rank"] = 0.0
    straggler: Annotated[int | None, "the late rank"] = None
    predicted_straggler: Annotated[int | None, "the rank that the schedule expects to be late"] = None
    injection: Annotated[str, "cause of lateness"] = ""
    time_s: Annotated[float | None, "time from the first arrival"] = None
    predicted_time_s: Annotated[float | None, "the same of the model"] = None
    after_arrival_s: Annotated[float | None, "time from the last arrival"] = None
    predicted_after_arrival_s: Annotated[float | None, "the same of the model"] = None
    in_time_s: Annotated[float | None, "time of groups without the late rank, of several groups"] = None
    predicted_in_time_s: Annotated[float | None, "the same of the model"] = None
    bound_s: Annotated[float | None, "alpha-beta bound without latency"] = None
    formula_s: Annotated[float | None, "time after the last arrival by the closed form, on circuits"] = None
    over_formula: Annotated[float | None, "time after arrival over the formula"] = None
    algbw_gbps: Annotated[float | None, "buffer over time after arrival"] = None
    busbw_gbps: Annotated[float | None, "algorithm bandwidth times the bus factor of nccl-tests"] = None
    background_gbps: Annotated[float | None, "rate of other traffic at the late rank's port"] = None
    wrong: Annotated[int | None, "wrong elements in results; empty if none was checked"] = None
    mean_step_time_s: Annotated[float | None, "step time, mean"] = None
    reconfigurations: Annotated[int | None, "reconfigurations of all switches in the point"] = None

    def predict(self, trial: Trial, scale: Scale, prediction: Prediction) -> None:
        times = trial.times(prediction.events, 1)
        self.predicted_time_s, self.predicted_after_arrival_s = _typical(trial, scale, times)
        self.predicted_in_time_s = _in_time_s(trial, scale, prediction.events, 1)
        self.bound_s = wire_bound_s(trial)
        self.formula_s = after_arrival_s(trial) if has_law(trial) else None

    def measure(self, trial: Trial, scale: Scale, found: Measured, times: CollectiveTimes) -> None:
        self.take(found)
        metrics = found.metrics
        self.time_s, self.after_arrival_s = _typical(trial, scale, times)
        self.in_time_s = _in_time_s(trial, scale, found.events, found.point.warmup(metrics.steps))
        if self.after_arrival_s:
            self.over_formula = self.after_arrival_s / self.formula_s if self.formula_s else None
        if self.after_arrival_s and trial.groups == 1:
            self.algbw_gbps = trial.bytes * (1 + len(trial.then)) * 8 / self.after_arrival_s / 1e9
            self.busbw_gbps = self.algbw_gbps * bus_factor(trial.schedule.kind, trial.schedule.n)
        if found.background_mbps is not None:
            self.background_gbps = found.background_mbps / 1e3 / scale.rate
        self.wrong = times.wrong
        self.mean_step_time_s = fmean(metrics.step_times_s[metrics.warmup_steps :] or (0.0,))
        self.reconfigurations = sum(metrics.reconfigurations.values())


def described(kind: type[TrialRow], trial: Trial, scale: Scale, seed: int) -> TrialRow:
    """A row of type ``kind`` with the fields that describe ``trial``; its tags are fields too."""
    schedule = trial.schedule
    row = kind(
        study=trial.study,
        algorithm=schedule.algorithm,
        collective=schedule.kind,
        n=schedule.n,
        bytes=trial.bytes,
        fabric=trial.fabric.kind,
        circuits=trial.circuits,
        port_gbps=trial.fabric.port_gbps,
        mtu=trial.fabric.mtu,
        rounds=schedule.rounds,
        second_phase_rounds=schedule.rounds - schedule.first_phase,
        reconfiguration_delay_ms=trial.reconfiguration_delay_s * 1e3,
        straggler_delay_s=trial.straggler_delay_s,
        straggler=trial.late_rank,
        predicted_straggler=schedule.straggler,
        injection=trial.injection.text if trial.injection else "",
        **dict(trial.tags),
    )
    row.at(scale, seed)
    return row


def _typical(trial: Trial, scale: Scale, times: CollectiveTimes) -> tuple[float, float]:
    """Time and time after arrival in real seconds: medians, or means if the steps of the trial vary on purpose."""
    real = scale.real_s
    if not trial.varies:
        return real(times.time_s), real(times.after_arrival_s)
    return real(fmean(s.time_s for s in times.steps)), real(fmean(s.after_arrival_s for s in times.steps))


def _in_time_s(trial: Trial, scale: Scale, events: Sequence[Event], warmup_steps: int) -> float | None:
    """Real seconds of the collectives in the groups after the first, if there are any."""
    names = {f"tp{group}" for group in range(1, trial.groups)}
    return scale.real_s(trial.times(events, warmup_steps, names).time_s) if names else None


def wire_bound_s(trial: Trial, alpha_s: float = 0.0) -> float:
    """The alpha-beta bound of a trial in real seconds, pauses included, with ports at the goodput of full packets."""
    fabric = trial.fabric
    return sum(
        bound_s(
            part.schedule,
            trial.bytes,
            alpha_s + part.schedule.pause_s,
            fabric.bytes_per_s(),
            ports=fabric.ports_per_rank,
            scale_up_bytes_per_s=fabric.bytes_per_s(fabric.scale_up_gbps),
        )
        for part in trial.parts
        if 0 in part.group.members
    )
