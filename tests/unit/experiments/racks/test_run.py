"""Jobs of a run: kills at their moments, a controller that dies, bounds, and the points between faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from failover_events import FAULT, GRADIENTS, RESUMED, SLOW_STEP, STEP, Run, struck
from fake_rack import Rack

from experiments.job_point import JobPoint
from experiments.racks.failover.experiment import FailoverSettings
from experiments.racks.forecast import JobPrediction, JobWindow, windows
from experiments.racks.recovery import recoveries
from experiments.racks.run import IncarnationPoint, RackResult, points_of, timeout_s, undisturbed_intervals
from experiments.racks.setting import Setting, TenantSection
from experiments.settings import validated
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan

SCALE = Scale(1 / 200)
MEMBERS = {"A": (0, 1, 2, 3), "B": (8, 9)}
LANE_MBPS = GRADIENTS * 1.5 * 8 / (STEP / 2) / 2 / 1e6 / goodput_share()
"""Two lanes of this rate just carry job A's gradients in the time they take."""


def photonic(mbps: float = LANE_MBPS) -> FabricPlan:
    ports = tuple(
        HostPort(2 * r + lane + 1, f"g{r}", r, lane, f"g{r}-r{lane}", "", "", mbps)
        for r in range(16)
        for lane in (0, 1)
    )
    return FabricPlan("photonic", 16, 1, 2, 9000, (SwitchPlan("rack0", 0x10000, "ocs", "rail", ports),))


def electrical() -> FabricPlan:
    """Every chip's port is far faster than what the links let through."""
    switches = tuple(
        SwitchPlan(f"n{r}", 0x40000 + r, "electrical", "rail", (HostPort(1, f"g{r}", r, 0, f"g{r}-r0", "", "", 999.0),))
        for r in range(16)
    )
    return FabricPlan("electrical-torus", 16, 1, 1, 9000, switches, (SwitchLink("n0", 2, "n1", 2, 10.0),))


def sampled(run: Run, plan: FabricPlan | None = None) -> Run:
    return run.sampled(9.0, RESUMED + 9 * SLOW_STEP, plan or photonic(), (0, 1, 2, 3, 8, 9, 12))


def rented(plan: FabricPlan) -> tuple[Setting, list[JobPoint]]:
    """Both jobs, on a fabric of this plan."""
    setting = Setting(
        name="photonic", system="", policy="lumion", mode="one-shot", delay_s=0.0, options={}, scale=SCALE
    )
    setting.__dict__["plan"] = plan
    vars(setting)["lanes"] = lambda groups: {group.name: 2 for group in groups}
    return setting, [setting.job(name, ranks, TenantSection(), 9) for name, ranks in MEMBERS.items()]


def window(contended: bool = False, **jobs: JobPrediction) -> JobWindow:
    return JobWindow({}, frozenset(), jobs, contended)


def points(
    run: Run, plan: FabricPlan | None = None, windows: Sequence[JobWindow] = ()
) -> dict[tuple[str, int], IncarnationPoint]:
    found = points_of(run.timeline(), *rented(plan or photonic()), windows)
    assert [p.point.number for p in found] == list(range(len(found)))
    return {(p.job, p.window): p for p in found}


def calm() -> Run:
    """The neighbour notices nothing."""
    return sampled(struck(neighbour_after=1.0))


def test_every_job_has_a_point_before_and_after() -> None:
    found = points(sampled(struck()))
    assert set(found) == {("A", 0), ("B", 0), ("A", 1), ("B", 1)}
    assert found["A", 1].incarnation == 1 and found["B", 1].incarnation == 0
    assert found["A", 0].point.name.startswith("photonic-A-0")
    assert found["A", 1].point.groups["A"].members == (0, 12, 2, 3)
    steps = {key: point.metrics.steps for key, point in found.items()}
    assert steps["A", 0] == 4 and steps["A", 1] == 5
    assert found["A", 0].point.warmup_steps == 1 and found["B", 1].point.warmup_steps == 0
    assert found["A", 0].metrics.step_time_s == pytest.approx(STEP)
    for point in found.values():
        inside = [e for e in point.events if e.source != "link"]  # which begin and end with a reading outside
        assert all(e.t < FAULT or e.t >= RESUMED - 1e-9 for e in inside), "nothing of the outage"


def test_an_exact_run_is_faithful_in_every_point() -> None:
    for key, point in points(calm()).items():
        assert point.verdict.faithful, (key, str(point.verdict))


def test_the_machine_is_judged_within_the_point() -> None:
    run = calm()
    run.events = [
        replace(e, fields={**e.fields, "busy": 1.0}) if e.kind == "cpu" and e.t > RESUMED else e for e in run.events
    ]
    found = points(run)
    assert found["A", 0].verdict.faithful
    assert {c.name for c in found["A", 1].verdict.failed} == {"cores"}


def test_what_the_fault_drops_is_not_held_against_the_job() -> None:
    run = calm()
    for place, e in enumerate(run.events):
        if e.kind == "bytes" and e["rank"] == 0 and e.t > FAULT:
            run.events[place] = replace(e, fields={**e.fields, "dropped": 500})
    assert points(run)["A", 0].verdict.faithful and points(run)["A", 1].verdict.faithful
    for place, e in enumerate(run.events):
        if e.kind == "bytes" and e["rank"] == 12 and e.t > RESUMED + STEP:
            run.events[place] = replace(e, fields={**e.fields, "dropped": 500})
    assert {c.name for c in points(run)["A", 1].verdict.failed} == {"drops"}
    assert points(run)["B", 1].verdict.faithful, "not its interface"


def test_counters_of_a_whole_run_count_only_where_no_fault_is_between() -> None:
    run = calm()
    for t, stayed in ((5.0, 0), (RESUMED + 100, 900)):
        run.add(t, "link", "switch", switch="rack0", packets_in=10_000, packets_out=10_000 - stayed)
    assert all(point.verdict.faithful for point in points(run).values())
    whole = Run()
    whole.launch(9.0, "A", 0, (0, 1, 2, 3))
    end = whole.steps(10.0, STEP, (0, 1, 2, 3), range(6), "A")
    for rank in range(4):
        whole.add(end, "agent", "sockets", rank=rank, retransmits=0, bytes=9_000_000)
    whole.sampled(9.0, end + 1, photonic(), (0, 1, 2, 3))
    for t, stayed in ((9.9, 0), (end + 0.5, 900)):
        whole.add(t, "link", "switch", switch="rack0", packets_in=10_000, packets_out=10_000 - stayed)
    (point,) = points_of(whole.timeline(), *rented(photonic()))
    assert not point.point.cut_short
    assert {c.name for c in point.verdict.failed} == {"drops"}


def test_on_shared_links_the_model_is_the_line_rate() -> None:
    run = sampled(struck(after=SLOW_STEP), electrical())
    fast = JobPrediction(STEP, STEP, {("A", "gradients"): STEP / 2})
    slow = JobPrediction(SLOW_STEP, SLOW_STEP, {("A", "gradients"): SLOW_STEP / 2})
    before = window(A=fast, B=JobPrediction(1.0, 1.0, {("B", "gradients"): 0.5}))
    neighbour = JobPrediction(1.5, 1.5, {("B", "gradients"): 0.75})
    model = [before, window(A=slow, B=neighbour)]
    assert all(point.verdict.faithful for point in points(run, electrical(), model).values())
    assert "link rate" in {c.name for c in points(run, electrical())["A", 1].verdict.failed}, "999 Mb/s are not reached"
    model = [before, window(A=fast, B=neighbour)]
    failed = {c.name for c in points(run, electrical(), model)["A", 1].verdict.failed}
    assert failed == {"link rate", "model"}


def test_jobs_that_share_links_may_take_turns() -> None:
    run = sampled(struck())
    for place, e in enumerate(run.events):
        if e.kind == "step" and e["rank"] in (0, 12, 2, 3) and e["step"] == 5 and e.end:
            run.events[place] = replace(e, end=e.end + 0.5)
    assert {c.name for c in points(run)["A", 1].verdict.failed} == {"step spread"}
    assert points(run, windows=[window(), window(contended=True)])["A", 1].verdict.faithful


def test_a_life_without_a_whole_step_has_no_point() -> None:
    run = sampled(struck())
    run.events = [e for e in run.events if not (e.kind == "step" and e["rank"] == 12)]
    assert set(points(run)) == {("A", 0), ("B", 0), ("B", 1)}


def test_a_fault_before_the_one_before_is_mended_leaves_an_empty_stretch() -> None:
    run = struck(neighbour=False)
    run.add(FAULT + 0.3, "run", "fault", job="", rank=13, what="killed")
    stretches = undisturbed_intervals(recoveries(run.timeline(), SCALE))
    assert len(stretches) == 3
    assert stretches[0] == (0.0, FAULT) and stretches[1][0] == stretches[1][1]
    assert stretches[2][0] == pytest.approx(RESUMED)
    assert set(points(sampled(run))) == {("A", 0), ("A", 2)}


def test_what_agents_did_not_live_to_tell_is_not_missed() -> None:
    point = points(sampled(struck()))["A", 0]
    assert point.point.cut_short
    verdict = judge(replace(point.point, cut_short=False), point.events, measure_point(point.point, point.events))
    assert {c.name for c in verdict.failed} == {"drops", "retransmissions"}


def bound_s(**values: Any) -> float:
    made = validated(FailoverSettings, {"fabrics": "photonic", **values})
    setting = made.setting("photonic")
    jobs, kills = made.jobs(setting), made.kills(setting.plan)
    step_s = windows(setting, jobs, [])[0].jobs[jobs[0].name].step_time_s
    return timeout_s(setting, jobs[0], step_s * jobs[0].steps, len(kills))


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
    job, setting = rack.job(), rack.setting
    launch = Event(100.0, "run", "launch", None, {"job": "A", "incarnation": 0, "members": list(job.members)})
    played = RackResult(0, 0.0, (job,), (launch,), None, setting, (), tuple(windows(setting, [job.job], [])), (), 1)
    assert played.checksum_ok(job) is None
    assert played.rows() == []
