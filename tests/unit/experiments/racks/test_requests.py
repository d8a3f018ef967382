"""Requests of an inference job around a failure: by hand, by the simulation of the machines, and by a closed form."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.racks.failover.experiment import Failover, FailoverSettings
from experiments.racks.failover.report import REPORT
from experiments.racks.forecast import predicted_jobs
from experiments.racks.recovery import NEVER, JobIncarnation
from experiments.racks.requests import measured, predicted, request_times, served
from experiments.settings import validated
from measure.metrics.quantiles import median
from workloads.check import check
from workloads.inference import poisson
from workloads.program import OpenLoop

EVEN = OpenLoop(tuple(0.5 + 0.5 * k for k in range(20)), 1.0)


def made(**values: Any) -> FailoverSettings:
    return validated(FailoverSettings, {"steps": 40, "kill": "1@20.5", "inference": {}, **values})


def test_a_queue_without_a_failure_is_that_of_pollaczek_and_khinchine() -> None:
    arrivals = poisson(3.0, 40_000, 1.0, 7)
    waits = [end - at for at, (_, end) in zip(arrivals.at_s, served(arrivals, 0, 0.0, [0.2]), strict=True)]
    assert sum(waits) / len(waits) == pytest.approx(0.2 + 3 * 0.2**2 / (2 * (1 - 3 * 0.2)), rel=0.03)


def test_requests_by_hand() -> None:
    """Every 0.5 s a request of 0.1 s; the chip dies in the one that came at 5 s, and the job goes on 1.2 s later."""
    found = predicted(EVEN, 5.05, [0.1], [0.1], 1.2)
    late = {round(came + 5.05, 2): wait for came, wait in zip(found.came_s, found.latencies_s, strict=True)}
    assert late[4.5] == pytest.approx(0.1)
    assert late[5.0] == float("inf")  # its second was over at 6
    assert [late[at] for at in (5.5, 6.0, 6.5)] == pytest.approx([0.85, 0.45, 0.1])
    row = request_times(found, 1.0)
    assert (row["dropped_requests"], row["retried_requests"]) == (1, 0)
    assert [row["latency_p99_before_s"], row["latency_p50_after_s"]] == pytest.approx([0.1, 0.1])
    assert row["p99_back_s"] == pytest.approx(0.3)  # 1 % of 10 requests is one: the last slow answer but one is at 6.35
    patient = request_times(predicted(OpenLoop(EVEN.at_s, 5.0), 5.05, [0.1], [0.1], 1.2), 1.0)
    assert (patient["dropped_requests"], patient["retried_requests"]) == (0, 1)


def test_an_answer_after_the_clients_patience_is_a_drop() -> None:
    hasty = predicted(OpenLoop(EVEN.at_s, 0.3), 5.05, [0.1], [0.4], 1.2)
    assert all(wait == float("inf") for came, wait in zip(hasty.came_s, hasty.latencies_s, strict=True) if came > -0.1)


@pytest.mark.parametrize("fabric", ["photonic", "fixed"])
def test_the_simulated_machines_serve_as_the_recursion_says(fabric: str) -> None:
    settings = made(neighbour=None, scale={"time": 0.5})
    setting = settings.setting(fabric)  # type: ignore[arg-type]
    (job,) = settings.jobs(setting)
    check(job.program)
    events = job.prediction(setting.plan, setting.scale).events
    service_s = predicted_jobs(events, {"A": job.members}, setting.scale)["A"].step_time_s
    arrivals = job.arrivals
    assert arrivals is not None
    life = JobIncarnation("A", 0, job.members, 0.0, NEVER, tuple(e for e in events if e.get("rank") in job.members))
    seen = measured(arrivals, [life], 0.0, 0.0, 0.0, setting.scale)
    assert seen.came_s == pytest.approx(arrivals.at_s, abs=1e-6)
    assert seen.answered_s == pytest.approx([end for _, end in served(arrivals, 0, 0.0, [service_s])], rel=1e-3)


def test_the_client_is_outside_the_slice_and_stays_when_a_job_migrates() -> None:
    settings = made()
    for fabric in settings.fabrics:
        setting = settings.setting(fabric)
        job = settings.jobs(setting)[0]
        *ranks, client = job.members
        assert job.holders(job.members) == tuple(ranks)
        rack = setting.plan.rack
        assert rack is not None and client not in {*rack.spares, *rack.tenants[0].ranks, *rack.tenants[1].ranks}
    migrated = next(row for row in Failover(made(fabrics=["migrate"])).predict())
    copy_s = dict(migrated.predicted_breakdown)["checkpoint"]
    assert copy_s == pytest.approx(2 * 4.94e9 / 2 / 4 * 8 / 10e9, rel=0.02)  # four shares leave three hosts


def test_the_second_half_has_the_load_of_the_first() -> None:
    at = poisson(3.0, 200, 1.0, 1).at_s
    gaps = [b - a for a, b in zip((0.0, *at), at, strict=False)]
    assert gaps[:100] == pytest.approx(gaps[100:]) and median(gaps) == pytest.approx(0.693 / 3, rel=0.4)


def test_preloaded_weights_are_not_copied_and_the_table_says_what_became_of_requests() -> None:
    copied, preloaded = (
        next(row for row in Failover(made(fabrics=["photonic"], inference={"preloaded": with_them})).predict())
        for with_them in (False, True)
    )
    assert dict(copied.predicted_breakdown)["checkpoint"] == pytest.approx(0.5, rel=0.02)
    assert "checkpoint" not in dict(preloaded.predicted_breakdown)
    (*_, table) = REPORT.tables([preloaded.to_json()])
    (line,) = table.rows
    assert line["predicted_retried_requests"] == 0 and line["predicted_dropped_requests"] >= 1
