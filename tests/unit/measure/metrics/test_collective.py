"""Times of one collective, from events made by hand and from the model's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from measure.metrics.collective import CollectiveTimes, StepTimes, collective_times, joined
from measure.model.prediction import predict
from measure.model.wires import wire_bytes
from railyard.errors import AgentError, ConfigError
from railyard.timeline import Event
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Compute, Group, Operation, Program

N, SIZE = 4, 4_000_000
RING = schedule("all_reduce", N, "ring")


def _communicate(rank: int, step: int, posted: float, end: float, **fields: Any) -> Event:
    values = {"rank": rank, "step": step, "op": 2, "name": "all-reduce", "group": "world", "op_kind": "all_reduce"}
    return Event(posted + 0.001, "agent", "communicate", end, {**values, "posted": posted, **fields})


def _steps(late_s: float = 0.0, steps: int = 3) -> list[Event]:
    """Rank 2 comes ``late_s`` late; rank 3 ends last, 0.4 s after it; the first step takes a second more."""
    events = []
    for step in range(steps):
        start, extra = 10.0 * step, 1.0 if step == 0 else 0.0
        for rank in range(N):
            arrival = start + (late_s if rank == 2 else 0.0)
            end = start + late_s + extra + (0.4 if rank == 3 else 0.35)
            events.append(_communicate(rank, step, arrival, end))
    return events


def test_from_first_and_from_last_arrival() -> None:
    times = collective_times(_steps(0.3), RING, "world", 1)
    assert times.time_s == pytest.approx(0.7)
    assert times.after_arrival_s == pytest.approx(0.4)
    assert [step.step for step in times.steps] == [1, 2]
    assert [step.arrivals for step in times.steps] == [pytest.approx((s, s, s + 0.3, s)) for s in (10.0, 20.0)]


def test_the_median_of_the_steps_counts() -> None:
    times = collective_times(_steps(), RING, "world", 0)
    assert times.time_s == pytest.approx(0.4), "the first step took 1.4 s and is the one that is off"


def test_waiting_for_circuits_belongs_to_the_collective() -> None:
    waits = [
        Event(10.0 - 0.05, "agent", "wait", 10.0, {"rank": 0, "step": 1, "op": 2, "group": "world", "index": 1}),
        Event(10.0 - 0.09, "agent", "wait", 10.0, {"rank": 0, "step": 1, "op": 1, "group": "sync", "index": 1}),
    ]
    times = collective_times(_steps() + waits, RING, "world", 1)
    assert times.steps[0].time_s == pytest.approx(0.45)
    assert times.steps[0].after_arrival_s == pytest.approx(0.4)


def test_other_groups_kinds_and_names_do_not_count() -> None:
    others = [
        _communicate(0, 1, 9.0, 19.0, group="sync"),
        _communicate(0, 1, 9.0, 19.0, op_kind="all_gather"),
        _communicate(0, 1, 9.0, 19.0, name="another"),
    ]
    assert collective_times(_steps() + others, RING, "world", 1, "all-reduce").time_s == pytest.approx(0.4)
    with pytest.raises(ConfigError, match="several all_reduce a step"):
        collective_times(_steps() + others, RING, "world", 1)


def test_a_step_that_not_all_ended_does_not_count() -> None:
    broken = [e for e in _steps() if (e["rank"], e["step"]) != (1, 2)]
    assert [step.step for step in collective_times(broken, RING, "world", 0).steps] == [0, 1]
    with pytest.raises(AgentError, match="all 4 members"):
        collective_times(broken, RING, "world", 2)


def test_wrong_elements_are_summed_and_none_if_nobody_looked() -> None:
    def verified(rank: int, step: int, op: int, wrong: int) -> Event:
        return Event(99.0, "agent", "verified", None, {"rank": rank, "step": step, "op": op, "wrong": wrong})

    assert collective_times(_steps(), RING, "world", 1).wrong is None
    found = [verified(0, 0, 2, 3), verified(1, 2, 2, 4), verified(2, 1, 0, 100)]
    assert collective_times(_steps() + found, RING, "world", 1).wrong == 7, "those of operation 0 are the barrier's"
    assert collective_times([*_steps(), verified(0, 1, 2, 0)], RING, "world", 1).wrong == 0


def _predicted(make_plan: Any, late: tuple[float, ...]) -> CollectiveTimes:
    def operations(rank: int) -> tuple[Operation, ...]:
        compute = Compute(0, "compute", 0.01)
        return (replace(compute, late=late) if rank == 1 else compute,
                Collective(1, "all-reduce", "all_reduce", "world", SIZE, (0,), "ring"))  # fmt: skip

    group = Group("world", "world", tuple(range(N)))
    program = Program("one", tuple(operations(rank) for rank in range(N)), {"world": group})
    events = predict(program, make_plan(gpus=1, ports=2, fabric="electrical"), None, "native", steps=3).events
    return collective_times(events, RING, "world", 1)


def test_predicted_times_use_the_same_definitions(make_plan: Any) -> None:
    """100 Mb/s ports: a ring sends 2 (n - 1) chunks of a quarter."""
    ring_s = 2 * (N - 1) * wire_bytes(SIZE // N, 9000) * 8 / 100e6
    together = _predicted(make_plan, ())
    assert together.time_s == together.after_arrival_s == pytest.approx(ring_s, rel=0.01)
    late = _predicted(make_plan, (0.5,))
    assert late.time_s == pytest.approx(late.after_arrival_s + 0.5)
    first, second, third, last = late.steps[0].arrivals
    assert first == third == last == pytest.approx(second - 0.5)
    assert 0.8 * ring_s < late.after_arrival_s <= ring_s * 1.01, "a ring can do next to nothing before"


def test_collectives_taken_as_one_begin_with_the_first_of_a_rank_and_end_with_its_last() -> None:
    first = CollectiveTimes(
        (StepTimes(1, (0, 1), (0.0, 0.3), (0.5, 0.6)), StepTimes(2, (0, 1), (1.0, 1.0), (2.0, 2.0))), 1
    )
    across = CollectiveTimes((StepTimes(1, (1, 2), (0.6, 0.1), (0.9, 0.8)),), 2)
    both = joined([first, across])
    assert both == CollectiveTimes((StepTimes(1, (0, 1, 2), (0.0, 0.3, 0.1), (0.5, 0.9, 0.8)),), 3)
    assert both.time_s == pytest.approx(0.9) and both.after_arrival_s == pytest.approx(0.6)
    assert joined([first]) == first and joined([replace(first, wrong=None)]).wrong is None
