"""What schedules need at least, and how the verdict uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from synthetic_job import counters, numbered, samples

from measure.metrics.checks import Check
from measure.metrics.critical import Critical, critical_path, critical_paths
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from measure.metrics.point import Point
from measure.metrics.transfers import read_transfers
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Group, Program

ELEMENTS = 840_000
RATE_MBPS = 100.0
BYTES_PER_S = RATE_MBPS * 1e6 / 8 * goodput_share(9000)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_ring_needs_what_every_rank_sends(n: int) -> None:
    found = critical_path(schedule("all_reduce", n, "ring"), ELEMENTS, 1)
    assert found == Critical(2 * (n - 1) * ELEMENTS * 4 // n, 0, 2 * (n - 1), 0)


def test_a_tree_needs_more_than_any_rank_sends() -> None:
    found = critical_path(schedule("broadcast", 8, "tree"), ELEMENTS, 1)
    assert found.bytes == 3 * ELEMENTS * 4 and found.rounds == 3


def test_stragglar_after_arrival() -> None:
    """n + L - 2 rounds of a chunk of 1 / (n - 1), after n - 2 rounds that do without the straggler."""
    found = critical_path(schedule("all_reduce", 8, "stragglar"), ELEMENTS, 1)
    chunk = ELEMENTS * 4 // 7
    assert (found.bytes - found.first_bytes, found.first_bytes) == (9 * chunk, 6 * chunk)
    assert found.seconds(chunk, gap_s=100) == pytest.approx(9)
    assert found.seconds(chunk, gap_s=2) == pytest.approx(13)
    assert found.seconds(chunk) == pytest.approx(15)


def test_circuits_change_where_rounds_join_others() -> None:
    ring, halving = (schedule("all_reduce", 8, name) for name in ("ring", "recursive-halving-doubling"))
    assert critical_path(ring, ELEMENTS, 2, circuits=True).changes == 0
    assert critical_path(halving, ELEMENTS, 2, circuits=True).changes == 4, "3 + 3 rounds, the middle two alike"
    assert critical_path(halving, ELEMENTS, 2).changes == 0


def test_a_program_names_its_collectives_on_the_rails() -> None:
    ops = (
        Collective(0, "barrier", "all_reduce", "sync", 4),
        Collective(1, "small", "all_reduce", "world", 8, (0,), "ring"),
        Collective(2, "large", "all_reduce", "world", ELEMENTS * 8, (1,), "ring"),
    )
    groups = {
        "sync": Group("sync", "world", (0, 1, 2, 3), domain="front-end"),
        "world": Group("world", "world", (0, 1, 2, 3)),
    }
    found = critical_paths(Program("p", (ops,) * 4, groups), Scale(0.5), 1, circuits=False)
    assert set(found) == {("world", "small"), ("world", "large")}
    assert found["world", "large"].bytes == 6 * ELEMENTS


class _Run:
    """One collective a step over all ranks of a rail of 4, as agents and sampler would tell it."""

    def __init__(self, make_plan: Any, schedule_name: str, kind: Any = "all_reduce", elements: int = ELEMENTS) -> None:
        self.schedule = schedule(kind, 4, schedule_name)
        self.critical = critical_path(self.schedule, elements, 1)
        plan = make_plan(gpus=1, ports=1, fabric="electrical")
        group = Group("world", "world", (0, 1, 2, 3))
        self.point = Point(
            0, "native", plan, {"world": group}, Scale(1.0), critical={("world", "op"): self.critical}, warmup_steps=1,
            controlled=False,
        )  # fmt: skip
        self.events: list[Event] = []

    def play(self, seconds: list[float], late_s: float = 0.0, lag_s: float = 0.0001) -> _Run:
        """Steps in which the collective takes so long after the last arrival (rank 3, ``late_s`` late)."""
        t = 100.0
        for step, took in enumerate(seconds):
            begin, end = t, t + 0.0002 + late_s + took
            for rank in range(4):
                posted = begin + 0.0002 + (late_s if rank == 3 else 0.0)
                self._agent(begin, "compute", posted, rank, step, op=0, name="c", late_s=lag_s)
                self._agent(
                    posted + (took * 0.9 if rank == 2 else 0.0), "communicate", end, rank, step, op=1, name="op",
                    group="world", dimension="world", op_kind=self.schedule.kind, bytes=ELEMENTS * 4, phase=0,
                    sent_bytes=1000, lanes=[0], posted=posted,
                )  # fmt: skip
                self._agent(begin, "step", end, rank, step)
            t = end
        for rank in range(4):
            self.events.append(Event(t, "agent", "sockets", None, {"rank": rank, "retransmits": 0, "bytes": 9000}))
        cpu = {"busy": 0.3, "cores": 2, "steal": 0.0, "other": 0.0, "switch_busy": 0.2, "switch_thread": 0.2}
        plan = self.point.plan
        self.events += samples(plan, 99.9, t, cpu) + counters(plan, 99.9, 0, "ovs") + counters(plan, t, 9, "ovs")
        self.events = numbered(self.events)
        return self

    def _agent(self, t: float, kind: str, end: float, rank: int, step: int, **fields: Any) -> None:
        self.events.append(Event(t, "agent", kind, end, {"rank": rank, "step": step, **fields}))

    def checks(self) -> dict[str, Check]:
        verdict = judge(self.point, self.events, measure_point(self.point, self.events))
        return {check.name: check for check in verdict.checks}

    def failed(self) -> set[str]:
        return {name for name, check in self.checks().items() if not check.ok}


def test_a_tree_at_line_rate_is_faithful_and_a_slow_one_is_not(make_plan: Any) -> None:
    tree = _Run(make_plan, "tree", "broadcast")
    ideal = tree.critical.bytes / BYTES_PER_S
    assert _Run(make_plan, "tree", "broadcast").play([ideal * 1.02] * 3).failed() == set()
    slow = _Run(make_plan, "tree", "broadcast").play([ideal * 1.3] * 3).checks()["link rate"]
    assert not slow.ok and slow.value == pytest.approx(1 / 1.3, rel=0.01)


def test_without_the_critical_path_a_tree_would_look_slow(make_plan: Any) -> None:
    run = _Run(make_plan, "tree", "broadcast")
    run.play([run.critical.bytes / BYTES_PER_S] * 3)
    run.point = replace(run.point, critical={})
    assert "link rate" in run.failed()


@pytest.mark.parametrize(("gap_share", "left"), [(2.0, "phase 2"), (0.5, "half of phase 1 too")])
def test_a_straggler_saves_the_first_phase(make_plan: Any, gap_share: float, left: str) -> None:
    run = _Run(make_plan, "stragglar")
    first_s = run.critical.first_bytes / BYTES_PER_S
    rest_s = (run.critical.bytes - run.critical.first_bytes) / BYTES_PER_S
    needs = rest_s + first_s * max(0.0, 1 - gap_share)
    run.play([needs] * 3, late_s=gap_share * first_s)
    assert run.failed() == set(), left
    assert run.checks()["link rate"].value == pytest.approx(1.0, rel=1e-3)
    (transfer, *_) = read_transfers(run.point, run.events, [1])
    assert not transfer.together and transfer.rounds == run.critical.rounds


def test_the_wrong_straggler_saves_nothing() -> None:
    critical = Critical(bytes=300, first_bytes=100, straggler=3)
    assert critical.seconds(100.0, last_rank=3, gap_s=5.0) == pytest.approx(2.0)
    assert critical.seconds(100.0, last_rank=1, gap_s=5.0) == pytest.approx(3.0)


def test_tiny_collectives_are_not_judged_by_shares_of_next_to_nothing(make_plan: Any) -> None:
    """4 bytes: 6 rounds of 0.1 ms or so. Steps of half a millisecond differ by more than 5 %, timers too."""
    run = _Run(make_plan, "ring", elements=1).play([0.0006, 0.0005, 0.0009, 0.0007], lag_s=0.0003)
    run.point = replace(run.point, predicted_step_time_s=0.0005)
    checks = run.checks()
    assert run.failed() == set()
    assert "latency" in checks["link rate"].says and checks["link rate"].value is None
    assert checks["step spread"].value == pytest.approx(0.0004 / 0.0009, rel=0.1)


def test_tiny_collectives_that_lose_time_are_still_caught(make_plan: Any) -> None:
    run = _Run(make_plan, "ring", elements=1).play([0.0006, 0.0005, 0.0261, 0.0005])
    assert run.failed() == {"step spread"}
    slow = _Run(make_plan, "ring", elements=1).play([0.02] * 4)
    slow.point = replace(slow.point, predicted_step_time_s=0.0008)
    assert slow.failed() == {"link rate", "model"}


def test_one_lost_packet_of_few_is_no_verdict_and_three_are(make_plan: Any) -> None:
    for lost, failed in ((2, set()), (3, {"retransmissions"})):
        run = _Run(make_plan, "ring", elements=1).play([0.0005] * 4)
        run.events.append(Event(200.0, "agent", "sockets", None, {"rank": 0, "retransmits": lost, "bytes": 0}))
        assert run.failed() == failed


def test_circuits_that_change_within_are_left_to_the_model(make_plan: Any) -> None:
    run = _Run(make_plan, "recursive-halving-doubling").play([1.0] * 3)
    assert "link rate" in run.failed()
    run.point = replace(run.point, critical={("world", "op"): replace(run.critical, changes=2)})
    assert run.failed() == set()


def test_steps_that_differ_on_purpose_are_compared_with_their_predictions(make_plan: Any) -> None:
    run = _Run(make_plan, "ring")
    ideal = run.critical.bytes / BYTES_PER_S
    times = [ideal, ideal + 0.2, ideal, ideal + 0.4]
    run.play(times)
    run.point = replace(run.point, critical={})
    assert "step spread" in run.failed()
    run.point = replace(run.point, predicted_step_times_s=tuple(t * 1.01 for t in times))
    assert "step spread" not in run.failed()
    run.point = replace(run.point, predicted_step_times_s=tuple(reversed(times)))
    assert "step spread" in run.failed()
