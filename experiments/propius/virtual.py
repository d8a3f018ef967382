"""Rows of the policy studies in virtual time: as predictions of runs on packets, and at the authors' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.propius.data.clients import DeviceTimers, stratified
from experiments.propius.data.jobs import TEN_JOBS, EdgeJob, scaled_jobs
from experiments.propius.data.messages import Mode
from experiments.propius.metrics import EdgeMetrics, UpdateCounts
from experiments.propius.model.authors import AUTHORS, MANAGERS, authors_run, ten_jobs
from experiments.propius.model.plane import Network
from experiments.propius.model.simulation import VirtualOutcome, VirtualRun, simulate
from experiments.propius.row import PropiusRow
from experiments.propius.settings import PropiusSettings
from measure.published import published

JCT = published("propius-jct-6000")
KIND = f"{JCT.label}; {JCT.note}"
ROUNDS = TEN_JOBS[0].rounds
_AUTHORS_NAME = {"random-client": "random", "irs-strict": "irs", "irs-score": "irs"}
"""The authors' random order behaves as one that is drawn for each client, their result files were made as ``irs-score``
offers jobs, and their latest code offers them as ``irs-strict`` does (``experiments.propius.model.authors``,
``experiments.propius.control.policies``); their figures stand beside all these."""


def predicted(settings: PropiusSettings, policy: str, clients: int, seed: int) -> VirtualOutcome:
    """The run on packets in virtual time: the same jobs, clients, network and policy.

    The waits of clients are longer by the round trips of what they ask in between, at the control plane or, for a model
    that is not there yet, at their leaf and its root: after 50 questions that makes seconds.
    """
    trip_s = 2 * (settings.access_delay_ms + settings.trunk_delay_ms) / 1e3
    waits = ("ask_again_s", "pause_s", "refused_s", "poll_s")
    timers = replace(DeviceTimers(), **{wait: getattr(DeviceTimers, wait) + trip_s for wait in waits})
    network = Network(
        topology="tree",
        model_bytes=settings.object_bytes,
        trunk_mbps=settings.trunk_mbps,
        access_round_trip_s=2 * settings.access_delay_ms / 1e3,
        trunk_round_trip_s=2 * settings.trunk_delay_ms / 1e3,
    )
    return simulate(
        VirtualRun(
            settings.jobs(),
            stratified(clients, settings.regions, seed),
            policy,
            seed=seed,
            managers=settings.managers,
            timers=timers,
            network=network,
            until_s=settings.longest_s,
        )
    )


def authors_row(settings: PropiusSettings, policy: str, clients: int, seed: int) -> PropiusRow:
    """The authors' run with ten jobs: no network, sleeping clients, in virtual time."""
    jobs = scaled_jobs(ten_jobs(clients), 1.0, settings.virtual_rounds)
    outcome = simulate(authors_run(policy, clients, seed, jobs=jobs, online_share=settings.virtual_online))
    row = policy_row(settings, policy, clients, seed, jobs)
    row.layer, row.topology, row.mode, row.regions = "virtual", "flat", None, None
    row.managers, row.computed, row.rate_scale, row.time_scale = MANAGERS, True, 1.0, 1.0
    fill(row, outcome.metrics, jobs)
    row.scheduling_delay_s = outcome.metrics.scheduling_attempt_s  # both as the authors count them
    row.response_time_s = outcome.metrics.response_attempt_s
    means = AUTHORS.get((clients, _AUTHORS_NAME.get(policy, policy)))
    if means is not None and settings.virtual_rounds == ROUNDS:
        row.authors_jct_s, row.authors_kind = means.jct_s, KIND
        row.authors_scheduling_delay_s = means.scheduling_attempt_s
        row.authors_response_time_s = means.response_s
    return row


def policy_row(
    settings: PropiusSettings, policy: str, clients: int, seed: int, jobs: Sequence[EdgeJob], mode: Mode = "fixed"
) -> PropiusRow:
    """The row of a run of a policy study, without values."""
    row = PropiusRow(
        policy=policy,
        clients=clients,
        mode=mode,
        topology="tree",
        regions=settings.regions,
        managers=settings.managers,
        jobs=len(jobs),
        rounds=jobs[0].rounds,
    )
    row.at(settings.scale.scale(), seed)
    return row


def fill(row: PropiusRow, metrics: EdgeMetrics, jobs: Sequence[EdgeJob], to_real: float = 1.0) -> None:
    """Set the metrics of a run; ``to_real`` is real seconds per second of the run. Jobs are numbered in order."""

    def real(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * to_real

    def per_real(rate: float | None) -> float | None:
        return None if rate is None else rate / to_real

    names = [time.name or jobs[time.job].name for time in metrics.jobs]
    times = dict(zip(names, metrics.jobs, strict=True))
    row.run_s = real(metrics.length_s)
    row.jct_by_job = {name: time.jct_s * to_real for name, time in times.items() if time.jct_s is not None}
    row.finished = len(row.jct_by_job)
    row.starved = ", ".join(job.name for job in jobs if job.name not in row.jct_by_job) or None
    row.jct_s = None if row.starved else real(metrics.jct_s)
    row.utilisation, row.active_share = metrics.utilisation, metrics.active_share
    row.bindings_per_s = per_real(metrics.bindings_per_s)
    row.useful_per_s = per_real(metrics.completed_clients_per_s)
    row.scheduling_delay_s, row.response_time_s = real(metrics.scheduling_s), real(metrics.response_s)
    row.rounds_repeated = metrics.repeated
    row.checkin_wall_s = metrics.checkin_s
    count_updates(row, metrics.updates)


def count_updates(row: PropiusRow, updates: UpdateCounts) -> None:
    row.updates_acknowledged, row.updates_lost = updates.acknowledged, updates.lost
    row.updates_twice, row.updates_late = updates.twice, updates.late


def predict_into(row: PropiusRow, metrics: EdgeMetrics) -> None:
    """Set the columns of the model; of a run that is not measured, also which jobs finish."""
    row.predicted_jct_s = None if metrics.unfinished else metrics.jct_s
    row.predicted_bindings_per_s, row.predicted_useful_per_s = metrics.bindings_per_s, metrics.completed_clients_per_s
    row.predicted_rounds_repeated = metrics.repeated
    row.predicted_scheduling_delay_s = metrics.scheduling_s
    row.predicted_response_time_s = metrics.response_s
