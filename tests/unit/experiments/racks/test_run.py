"""What a run on racks gives its jobs in time, and its judgement where there is little to judge."""

from __future__ import annotations

from typing import Any

from fake_rack import Rack

from experiments.racks.failover.experiment import FailoverSettings
from experiments.racks.forecast import windows
from experiments.racks.run import RackResult, timeout_s
from experiments.settings import validated
from railyard.timeline import Event


def bound_s(**values: Any) -> float:
    made = validated(FailoverSettings, {"fabrics": "photonic", **values})
    setting = made.setting("photonic")
    specs, kills = made.specs(setting), made.kills(setting.plan)
    return timeout_s(specs[0], windows(specs, [kill.rank for kill in kills]), len(kills))


def test_the_bound_of_a_run_knows_how_long_everything_may_take() -> None:
    usual = bound_s()
    assert usual > 5 * 10 * 2.1  # ten steps of 2.1 s
    silent = bound_s(detection={"heartbeat_ms": 60_000, "misses": 100})
    assert silent > usual + 6000  # a death may stay unnoticed for so long
    assert bound_s(stages={"data": 500}) > usual + 1000
    assert bound_s(job={"state_bytes": 1e13}) > 2 * 1e13 * 8 / 1e10  # a checkpoint over a port of 10 Gb/s
    assert bound_s(kill="1@4.5,2@+1") > usual
    assert bound_s(scale={"time": 0.1}) < usual


def test_a_job_without_a_whole_step_is_neither_right_nor_wrong(rack: Rack) -> None:
    job = rack.job()
    launch = Event(100.0, "run", "launch", None, {"job": "A", "incarnation": 0, "members": list(job.members)})
    played = RackResult(0, (), tuple(windows([job.spec], [])), (job,), (launch,), points=(), delivered=None, seed=1)
    assert played.checksum_ok(job) is None
    assert played.rows() == []
