from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_steps import groups_of

from railyard.errors import ConfigError, ControlError
from workloads.phases import phases
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank.executor import (
    Blocked,
    Executor,
    PhaseBegan,
    PhaseEnded,
    RankAction,
    ReleaseCircuits,
    RequestCircuits,
    StartCommunication,
    StartCompute,
    StepBegan,
    StepEnded,
    all_dependencies,
)

GROUPS = {
    "dp": Group("dp", "dp", (0, 1)),
    "pp": Group("pp", "pp", (0, 2)),
    "pp2": Group("pp2", "pp", (0, 3)),
    "tp": Group("tp", "tp", (0, 4), domain="scale-up"),
}
ASKS = {"dp", "pp", "pp2"}


def make(
    operations: list[Operation], steps: int, provisioned: bool, asks: set[str] = ASKS, first_step: int = 0
) -> Executor:
    program = Program("p", (tuple(operations),), GROUPS)
    found = [phase.operations for phase in phases(program, 0)]
    return Executor(operations, found, asks, steps, first_step=first_step, provisioned=provisioned)


@st.composite
def rank_programs(draw: st.DrawFn) -> list[Operation]:
    operations: list[Operation] = []
    for id_ in range(draw(st.integers(1, 14))):
        deps = tuple(sorted(draw(st.sets(st.integers(0, id_ - 1), max_size=3)))) if id_ else ()
        kind = draw(st.sampled_from(["compute", "collective", "send", "recv"]))
        group = draw(st.sampled_from(sorted(GROUPS)))
        if kind == "compute":
            operations.append(Compute(id_, f"c{id_}", 1.0, deps))
        elif kind == "collective":
            operations.append(Collective(id_, f"a{id_}", "all_reduce", group, 8, deps))
        else:
            pair = draw(st.sampled_from(["pp", "pp2"]))
            cls = Send if kind == "send" else Recv
            operations.append(cls(id_, f"p{id_}", pair, 2, 8, deps))
    return operations


@dataclass
class RackResult:
    """Everything that an executor did, with what was reported done when."""

    actions: list[RankAction]
    done: list[tuple[int, int]]
    """(step, operation) in the order of completion."""


def play(executor: Executor, seed: int, asks: set[str] = ASKS) -> RackResult:
    """Answer intents in a random order until nothing is left; data moves only between acknowledgement and release."""
    rng = random.Random(seed)
    played = RackResult([], [])
    todo: list[RankAction] = []
    held: set[str] = set()
    moving: dict[int, str] = {}

    def take(new: list[RankAction]) -> None:
        played.actions.extend(new)
        for action in new:
            if isinstance(action, StartCommunication) and action.op.group in asks:
                assert action.op.group in held
                moving[action.op.id] = action.op.group
            if isinstance(action, ReleaseCircuits):
                assert action.group not in moving.values()
                held.remove(action.group)
        todo.extend(i for i in new if isinstance(i, StartCompute | StartCommunication | RequestCircuits))

    take(executor.begin())
    while todo:
        action = todo.pop(rng.randrange(len(todo)))
        if isinstance(action, RequestCircuits):
            held.add(action.group)
            take(executor.acknowledged(action.group, action.index))
            continue
        assert isinstance(action, StartCompute | StartCommunication)
        played.done.append((action.step, action.op.id))
        moving.pop(action.op.id, None)
        done = executor.compute_done if isinstance(action, StartCompute) else executor.communication_done
        take(done(action.op.id))
    assert not held
    return played


@given(rank_programs(), st.integers(0, 4), st.integers(0, 3), st.booleans(), st.integers(0, 1 << 30))
def test_every_operation_runs_once_in_every_step_of_a_life_after_what_it_needs(
    operations: list[Operation], first: int, count: int, provisioned: bool, seed: int
) -> None:
    executor = make(operations, first + count, provisioned, first_step=first)
    played = play(executor, seed)
    assert executor.finished
    steps = range(first, first + count)
    assert [i.step for i in played.actions if isinstance(i, StepBegan)] == list(steps)
    assert [(i.step, i.last) for i in played.actions if isinstance(i, StepEnded)] == [
        (step, step == first + count - 1) for step in steps
    ]
    assert sorted(played.done) == [(step, op.id) for step in steps for op in operations]
    place = {entry: number for number, entry in enumerate(played.done)}
    needs = all_dependencies(operations)
    for step in steps:
        for op, before in enumerate(needs):
            assert all(place[step, b] < place[step, op] for b in before)
            assert set(operations[op].deps) <= before


@given(rank_programs(), st.integers(0, 4), st.integers(1, 3), st.booleans(), st.integers(0, 1 << 30))
def test_every_request_of_a_life_is_acknowledged_and_released_exactly_once(
    operations: list[Operation], first: int, steps: int, provisioned: bool, seed: int
) -> None:
    actions = play(make(operations, first + steps, provisioned, first_step=first), seed).actions
    asked = [(i.group, i.index) for i in actions if isinstance(i, RequestCircuits)]
    released = [(i.group, i.index) for i in actions if isinstance(i, ReleaseCircuits)]
    assert sorted(asked) == sorted(released)
    for group in ASKS:
        assert [index for g, index in asked if g == group] == list(range(sum(g == group for g, _ in asked)))
    program = Program("p", (tuple(operations),), GROUPS)
    per_step = [(p, g) for p, phase in enumerate(phases(program, 0)) for g in groups_of(program, 0, phase) if g in ASKS]
    assert len(asked) == steps * len(per_step)


@given(rank_programs(), st.booleans(), st.integers(0, 1 << 30))
def test_nothing_is_asked_for_across_a_step_boundary(operations: list[Operation], provisioned: bool, seed: int) -> None:
    program = Program("p", (tuple(operations),), GROUPS)
    groups = [ASKS.intersection(groups_of(program, 0, phase)) for phase in phases(program, 0)]
    step_requests: list[list[str]] = []
    for action in play(make(operations, 3, provisioned), seed).actions:
        if isinstance(action, StepBegan):
            step_requests.append([])
        elif isinstance(action, RequestCircuits):
            step_requests[-1].append(action.group)
        elif isinstance(action, StepEnded):
            assert len(step_requests[-1]) == sum(map(len, groups))


@given(rank_programs(), st.integers(0, 1 << 30))
def test_provisioned_asks_right_after_the_phase_before(operations: list[Operation], seed: int) -> None:
    actions = play(make(operations, 1, True), seed).actions
    program = Program("p", (tuple(operations),), GROUPS)
    found = phases(program, 0)
    for number, action in enumerate(actions):
        if isinstance(action, PhaseEnded) and action.phase + 1 < len(found):
            wanted = groups_of(program, 0, found[action.phase + 1])
            following = actions[number + 1 : number + 1 + len(wanted)]
            assert [i.group for i in following if isinstance(i, RequestCircuits)] == list(wanted)


FORWARD = Compute(1, "forward", 1.0, (0,))


def smoke() -> list[Operation]:
    return [
        Collective(0, "gather", "all_gather", "dp", 8),
        FORWARD,
        Send(2, "send", "pp", 2, 8, (1,)),
        Recv(3, "recv", "pp", 2, 8, (1,)),
        Compute(4, "backward", 1.0, (3,)),
        Collective(5, "scatter", "reduce_scatter", "dp", 8, (4,)),
    ]


def test_on_demand_asks_when_the_operation_is_runnable() -> None:
    executor = make(smoke(), 1, provisioned=False)
    first = executor.begin()
    assert [type(i) for i in first] == [StepBegan, PhaseBegan, RequestCircuits, Blocked]
    assert [type(i) for i in executor.acknowledged("dp", 0)] == [StartCommunication]
    assert executor.communication_done(0) == [ReleaseCircuits("dp", 0), PhaseEnded(0, 0), StartCompute(0, FORWARD)]
    after = executor.compute_done(1)
    assert [i for i in after if isinstance(i, RequestCircuits)] == [RequestCircuits("pp", 0)]
    assert [i.op.id for i in executor.acknowledged("pp", 0) if isinstance(i, StartCommunication)] == [2, 3]


PAIR_BEFORE_GRADIENTS: list[Operation] = [
    Send(0, "send", "pp", 2, 8),
    Collective(1, "first", "all_reduce", "dp", 8, (0,)),
    Collective(2, "second", "all_reduce", "dp", 8),
    Recv(3, "recv", "pp2", 2, 8, (2,)),
]


@given(st.integers(0, 1 << 30))
def test_a_stale_profile_asks_for_the_next_circuits_too_early_in_one_step(seed: int) -> None:
    phases_of_rank, steps = [(0,), (1, 2), (3,)], 3
    executor = Executor(PAIR_BEFORE_GRADIENTS, phases_of_rank, ASKS, steps, provisioned=True, stale=(1, 1))
    held: list[list[str]] = []
    for action in play(executor, seed).actions:
        if isinstance(action, StepBegan):
            held.append([])
        elif isinstance(action, ReleaseCircuits):
            held[-1].append(action.group)
    assert held == [["pp", "dp", "pp2"], ["pp", "dp", "pp2", "dp", "pp2"], ["pp", "dp", "pp2"]]


def test_circuits_asked_for_by_mistake_are_released_once_they_are_up_and_needed_no_more() -> None:
    executor = Executor(PAIR_BEFORE_GRADIENTS, [(0,), (1, 2), (3,)], ASKS, 2, provisioned=True, stale=(0, 1))
    executor.begin()
    executor.acknowledged("pp", 0)
    executor.communication_done(0)
    executor.acknowledged("dp", 0)
    second = PAIR_BEFORE_GRADIENTS[2]
    assert isinstance(second, Collective)
    assert executor.communication_done(1) == [
        ReleaseCircuits("dp", 0),
        RequestCircuits("pp2", 0),
        Blocked(0, second, "pp2", 0, 1),
    ]
    assert executor.acknowledged("pp2", 0) == [
        ReleaseCircuits("pp2", 0),
        RequestCircuits("dp", 1),
        Blocked(0, second, "dp", 1, 1),
    ]
    assert executor.acknowledged("dp", 1) == [StartCommunication(0, second, 1)]
    assert executor.communication_done(2)[:3] == [
        ReleaseCircuits("dp", 1),
        PhaseEnded(0, 1),
        RequestCircuits("pp2", 1),
    ]


def test_a_group_that_does_not_ask_never_waits() -> None:
    executor = make(smoke(), 2, provisioned=False, asks=set())
    played = play(executor, 1, set())
    assert not [i for i in played.actions if isinstance(i, RequestCircuits | ReleaseCircuits | Blocked)]
    assert executor.finished


def test_a_stale_ack_is_refused() -> None:
    executor = make(smoke(), 1, provisioned=False)
    executor.begin()
    with pytest.raises(ControlError, match="request 7 of group dp, but request 0 is open"):
        executor.acknowledged("dp", 7)
    executor.acknowledged("dp", 0)
    with pytest.raises(ControlError, match="no request is open"):
        executor.acknowledged("dp", 0)


def test_an_operation_reported_twice_is_refused() -> None:
    executor = make([Compute(0, "a", 1.0), Compute(1, "b", 1.0)], 1, provisioned=False)
    executor.begin()
    executor.compute_done(0)
    with pytest.raises(ConfigError, match="operation 0 was reported done"):
        executor.compute_done(0)


def test_computes_run_one_after_another() -> None:
    executor = make([Compute(0, "a", 1.0), Compute(1, "b", 1.0)], 1, provisioned=False)
    assert [i.op.id for i in executor.begin() if isinstance(i, StartCompute)] == [0]
    assert [i.op.id for i in executor.compute_done(0) if isinstance(i, StartCompute)] == [1]


def test_a_rank_with_nothing_to_do_ends_all_steps_at_once() -> None:
    actions = make([], 2000, provisioned=False).begin()
    assert sum(isinstance(i, StepEnded) for i in actions) == 2000


def test_a_dependency_on_a_later_operation_is_named() -> None:
    with pytest.raises(ConfigError, match="'a' depends on operation 1"):
        all_dependencies([Compute(0, "a", 1.0, (1,)), Compute(1, "b", 1.0)])
