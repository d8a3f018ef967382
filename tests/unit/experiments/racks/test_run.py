"""What a run on racks gives its jobs in time, and its judgement where there is little to judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_rack import Rack

from experiments.failover.run import failover_rows, specs_of
from experiments.failover.settings import FailoverExperiment
from experiments.racks.forecast import windows
from experiments.racks.run import RackResult, RackRun
from experiments.settings import validated
from railyard.timeline import Event


def bound_s(out: Path, **values: Any) -> float:
    made = validated(FailoverExperiment, {"fabrics": "photonic", **values})
    run = RackRun(made, out, print)
    setting = made.setting("photonic")
    plan = made.plan(setting, run.scale)
    specs = specs_of(made, setting, plan, run.scale)
    kills = made.kills(plan)
    seen = windows(specs, plan, run.scale, [kill.rank for kill in kills])
    return run._timeout_s(specs[0], setting, seen, len(kills))


def test_the_bound_of_a_run_knows_how_long_everything_may_take(tmp_path: Path) -> None:
    usual = bound_s(tmp_path)
    assert usual > 5 * 10 * 2.1  # ten steps of 2.1 s
    silent = bound_s(tmp_path, detection={"heartbeat_ms": 60_000, "misses": 100})
    assert silent > usual + 6000  # a death may stay unnoticed for so long
    assert bound_s(tmp_path, stages={"data": 500}) > usual + 1000
    assert bound_s(tmp_path, job={"state_bytes": 1e13}) > 2 * 1e13 * 8 / 1e10  # a checkpoint over a port of 10 Gb/s
    assert bound_s(tmp_path, kill="1@4.5,2@+1") > usual
    assert bound_s(tmp_path, scale={"time": 0.1}) < usual


def test_a_job_without_a_whole_step_is_neither_right_nor_wrong(rack: Rack) -> None:
    job = rack.job()
    seen = windows([job.spec], rack.plan, rack.scale, [])
    launch = Event(100.0, "run", "launch", None, {"job": "A", "incarnation": 0, "members": list(job.members)})
    played = RackResult(
        rack.setting, rack.plan, (), tuple(seen), (job,), (launch,), recoveries=(), points=(), scale=rack.scale
    )
    assert played.checksum_ok(job) is None
    assert played.window(0) is seen[0] and played.window(1) is None
    assert failover_rows(rack.made, replace(played, jobs=())) == []
