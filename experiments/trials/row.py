"""The row of a trial in ``summary.json``: measured beside predicted values, in the units of the real system."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean

from experiments.trials.plan import TrialPlan
from experiments.trials.trial import Trial
from measure.metrics.collective import CollectiveTimes
from measure.metrics.critical import bound_s
from measure.metrics.fidelity import Verdict
from measure.metrics.metrics import PointMetrics
from measure.metrics.point import Point
from measure.results.row import Row
from railyard.scale import goodput_share
from workloads.collectives.bandwidth import bus_factor


def trial_row(
    trial: Trial,
    plan: TrialPlan,
    point: Point,
    times: CollectiveTimes,
    predicted: CollectiveTimes,
    metrics: PointMetrics,
    verdict: Verdict,
) -> Row:
    """The row of a measured trial, in seconds and bits of the real system.

    ``time_s`` is from the first rank's arrival at the collective to the last rank's end, ``after_arrival_s`` from the
    last rank's arrival; the two are equal if no rank is late. algbw and busbw (nccl-tests) count from the last arrival.
    ``bound_s`` is the alpha-beta bound without latency.
    """
    total, after = _typical(trial, plan, times)
    algbw_gbps = trial.bytes * 8 / after / 1e9 if after else None
    return {
        **_described(trial, plan),
        "time_s": total,
        "after_arrival_s": after,
        **predicted_columns(trial, plan, predicted),
        "algbw_gbps": algbw_gbps,
        "busbw_gbps": None if algbw_gbps is None else algbw_gbps * bus_factor(trial.schedule.kind, trial.schedule.n),
        "wrong": times.wrong,
        "step_time_s": metrics.step_time_s,
        "mean_step_time_s": fmean(metrics.step_times_s[metrics.warmup_steps :] or (0.0,)),
        "predicted_step_time_s": metrics.predicted_step_time_s,
        "steps": metrics.steps,
        "warmup_steps": metrics.warmup_steps,
        "reconfigurations": sum(metrics.reconfigurations.values()),
        "packets_lost": metrics.packets_lost,
        "retransmissions": metrics.retransmissions,
        "faithful": verdict.faithful,
        "point": point.number,
        "verdict": str(verdict),
        **dict(trial.tags),
        "checks": [asdict(check) for check in verdict.checks],
    }


def predicted_columns(trial: Trial, plan: TrialPlan, predicted: CollectiveTimes) -> Row:
    """The columns of a trial's prediction and of its lower bound, in real seconds."""
    total, after = _typical(trial, plan, predicted)
    return {
        "predicted_time_s": total,
        "predicted_after_arrival_s": after,
        "bound_s": wire_bound_s(trial),
    }


def _typical(trial: Trial, plan: TrialPlan, times: CollectiveTimes) -> tuple[float, float]:
    """Time and time after arrival in real seconds: medians, or means if the steps of the trial vary on purpose."""
    real = plan.scale.real_s
    if not trial.varies:
        return real(times.time_s), real(times.after_arrival_s)
    return real(fmean(s.time_s for s in times.steps)), real(fmean(s.after_arrival_s for s in times.steps))


def _described(trial: Trial, plan: TrialPlan) -> Row:
    """The columns that describe a trial: experiment, schedule, fabric, delays, scale."""
    return {
        "experiment": plan.experiment,
        "study": trial.study,
        "algorithm": trial.schedule.algorithm,
        "collective": trial.schedule.kind,
        "n": trial.schedule.n,
        "bytes": trial.bytes,
        "fabric": trial.fabric.kind,
        "port_gbps": trial.fabric.port_gbps,
        "mtu": trial.fabric.mtu,
        "rounds": trial.schedule.rounds,
        "second_phase_rounds": trial.schedule.rounds - trial.schedule.first_phase,
        "reconfiguration_delay_ms": trial.reconfiguration_delay_s * 1e3,
        "straggler_delay_s": trial.straggler_delay_s,
        "straggler": trial.late_rank,
        "predicted_straggler": trial.schedule.straggler,
        "injection": trial.injection.text if trial.injection else "",
        "seed": plan.settings.seed,
        "rate_scale": plan.scale.rate,
        "time_scale": plan.scale.time,
    }


def wire_bound_s(trial: Trial, alpha_s: float = 0.0) -> float:
    """The alpha-beta bound of a trial in real seconds, with ports at the goodput of full packets."""
    share = goodput_share(trial.fabric.mtu)
    return bound_s(
        trial.schedule,
        trial.bytes,
        alpha_s,
        trial.fabric.port_gbps * 1e9 / 8 * share,
        ports=trial.fabric.ports_per_rank,
        scale_up_bytes_per_s=trial.fabric.scale_up_gbps * 1e9 / 8 * share,
    )
