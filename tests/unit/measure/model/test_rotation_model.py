"""The model of circuits that take turns, against closed formulas: B is what full packets leave of a port's rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.rotation import Cycle
from controllers.policies.catalog import load_policy
from measure.model.prediction import Costs, Prediction, predict
from railyard.errors import ControlError
from railyard.scale import goodput_share
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo
from workloads.collectives.algorithms import straight_all_to_all, valiant_all_to_all
from workloads.program import Collective, Compute, Group, Operation, Program
from workloads.rank.slot_sender import LATE_S
from workloads.schedule import Schedule

RATE_MBPS = 100.0
B = RATE_MBPS * 1e6 / 8 * goodput_share(9000)
T = 0.05
D = 500_000
EP = "ep"


def program(schedule: Schedule, size: int = D, operations: Sequence[Operation] = ()) -> Program:
    """An all-to-all of ``size`` bytes per pair (or on average) on every rank, or what is given."""
    n = schedule.n
    ops = tuple(operations) or (all_to_all(0, n, size),)
    return Program("all-to-all", (ops,) * n, {EP: Group(EP, "ep", tuple(range(n)))}, {schedule.algorithm: schedule})


def all_to_all(
    number: int, n: int, size: int = D, deps: tuple[int, ...] = (), algorithm: str = "straight"
) -> Collective:
    return Collective(number, f"all-to-all {number}", "all_to_all", EP, n * size, deps, algorithm)


def run(
    made: Program,
    cycle: Cycle | None = None,
    policy: str = "rotor",
    delay_s: float = T,
    ports: int = 1,
    **options: object,
) -> Prediction:
    """RackResult over ideal links."""
    where = plan(RailTopo(servers=made.ranks, gpus=1, ports=ports, rate_mbps=RATE_MBPS, fabric="ocs"))
    options.setdefault("steps", 2)
    return predict(made, where, load_policy(policy, where), "on-demand", delay_s, cycle=cycle, **options)  # type: ignore[arg-type]


def slots(prediction: Prediction) -> list[Event]:
    return [e for e in prediction.events if e.kind == "slot"]


def took(prediction: Prediction, step: int = 0) -> float:
    """From the first dark of a step to the last byte."""
    ends = [e.end or 0.0 for e in prediction.events if e.kind == "communicate" and e["step"] == step]
    asked = [e.t for e in prediction.events if e.kind == "reconfigure" and e["delay_s"] and e.t < max(ends)]
    before = [e.end or 0.0 for e in prediction.events if e.kind == "communicate" and e["step"] == step - 1]
    return max(ends) - min(t for t in asked if t >= max(before, default=0.0) - 1e-9)


def moved(prediction: Prediction, step: int = 0) -> dict[tuple[int, int], int]:
    """Bytes by (sender, receiver)."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    for e in prediction.events:
        if e.kind == "transfer" and e["step"] == step:
            found[e["peer"], e["rank"]] += e["bytes"]
    return dict(found)


def pairs(n: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(n) for b in range(n) if a != b]


@pytest.mark.parametrize(
    ("n", "ports", "cycle", "needed"),
    [
        *((n, 1, None, n - 1 + n % 2) for n in range(2, 10)),
        *((n, 2, Cycle(simplex=True), n - 1) for n in (4, 5, 9)),  # one-way circuits
        *((n, ports, None, needed) for n, ports, needed in ((4, 2, 2), (5, 2, 3), (4, 3, 1), (8, 4, 2))),
    ],
)
def test_everybody_to_everybody_in_one_round_of_slots(n: int, ports: int, cycle: Cycle | None, needed: int) -> None:
    """With more ports several matchings stand at once."""
    found = run(program(straight_all_to_all(n)), cycle, ports=ports)
    assert len({e["slot"] for e in slots(found)}) == needed
    assert moved(found) == dict.fromkeys(pairs(n), D)
    if needed > 1:  # or circuits are kept
        assert took(found, 1) == pytest.approx(needed * (D / B + T), rel=0.005)


def test_what_the_machine_adds_is_added_to_each_slot() -> None:
    n, costs = 6, Costs(alpha_s=0.001, control_s=0.004)
    plain, costly = (took(run(program(straight_all_to_all(n)), costs=c), 1) for c in (Costs(), costs))
    each = costs.alpha_s + costs.control_s / 2  # the last byte is here, and the controller hears of it
    assert costly - plain == pytest.approx((n - 1) * each, abs=1.5 * (costs.alpha_s + costs.control_s))


def test_in_two_hops_everybody_sends_twice() -> None:
    n = 4
    found = run(program(valiant_all_to_all(n), operations=(all_to_all(0, n, algorithm="valiant"),)))
    sent = moved(found)
    assert sum(sent.values()) == pytest.approx((n * (n - 1) + n * (n - 2)) * D, rel=1e-4)
    assert max(sent.values()) - min(sent.values()) < 100, "each circuit carries the same"
    assert (
        (n - 1) * T + sum(sent.values()) / n / B < took(found, 1) < 2 * (n - 1) * T + 1.01 * sum(sent.values()) / n / B
    )


def test_with_turns_made_for_it_a_demand_goes_in_fewer_seconds() -> None:
    demand = ((0, 90, 5, 5), (90, 0, 5, 5), (5, 5, 0, 90), (5, 5, 90, 0))
    made = program(straight_all_to_all(4, weights=demand), size=300_000)
    unit = 4 * 4 * 300_000 / sum(map(sum, demand))
    cycle = Cycle(demand=tuple(tuple(unit * entry for entry in row) for row in demand))
    found = run(made, cycle, policy="demand", delay_s=0.01)
    sent = moved(found)
    assert {pair: round(size / unit) for pair, size in sent.items()} == {(a, b): demand[a][b] for a, b in pairs(4)}
    assert took(found, 1) == pytest.approx((90 + 5 + 5) * unit / B + 3 * 0.01, rel=0.01)


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("n", [4, 5])
def test_what_does_not_fit_goes_in_the_next_round(n: int, rounds: int) -> None:
    light_s = D / B / (rounds - 0.5)
    cycle = Cycle(slot_s=light_s + 0.002 + LATE_S, guard_s=0.002)
    found = run(program(straight_all_to_all(n)), cycle)
    round_ = n - 1 if n % 2 == 0 else n
    needed, slot_s = rounds * round_, cycle.slot_s or 0.0
    assert moved(found) == dict.fromkeys(pairs(n), D), "every byte once"
    first = [e for e in slots(found) if e["index"] == 0]
    assert [e["slot"] for e in first] == list(range(len(first)))
    assert all((e.end or 0.0) - e.t == pytest.approx(slot_s) for e in first[:-1])
    rest_s = D / B - (rounds - 1) * light_s
    # the last slot of an odd number has everybody but one, as any other
    assert took(found) == pytest.approx((needed - 1) * slot_s + rest_s + needed * T, rel=0.005)


def test_nothing_moves_in_the_guard_time_or_in_the_dark() -> None:
    cycle = Cycle(slot_s=0.03, guard_s=0.004)
    found = run(program(straight_all_to_all(4), size=900_000), cycle)
    lights = [(e.t, e.t + 0.03 - 0.004) for e in slots(found)]
    for e in found.events:
        if e.kind == "transfer":
            assert any(began - 1e-9 <= (e.end or 0.0) <= end + 1e-9 for began, end in lights), (
                "its last byte is in the light"
            )


def test_a_transfer_that_takes_several_rounds_begins_with_the_first() -> None:
    cycle = Cycle(slot_s=0.03, guard_s=0.004)
    found = run(program(straight_all_to_all(4), size=900_000), cycle, steps=1)
    lights = [(e.t, e.t + 0.03) for e in slots(found)]
    for e in found.events:
        if e.kind == "transfer":
            assert any(began <= e.t < end for began, end in lights[:3]), "each pair has one of the first three slots"
            assert (e.end or 0.0) > lights[3][0]


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(2, 6),
    size=st.integers(1, 200).map(lambda k: 4 * k * 500),
    slot_ms=st.floats(8, 60),
    simplex=st.booleans(),
)
def test_bytes_are_conserved_whatever_the_slots(n: int, size: int, slot_ms: float, simplex: bool) -> None:
    cycle = Cycle(slot_s=slot_ms / 1e3, guard_s=0.002, simplex=simplex)
    found = run(program(straight_all_to_all(n), size=size), cycle, ports=2 if simplex else 1, delay_s=0.005)
    for step in range(2):
        assert moved(found, step) == dict.fromkeys(pairs(n), size)
    light = (cycle.slot_s or 0.0) - cycle.guard_s - LATE_S
    round_ = n - 1 if simplex or n % 2 == 0 else n
    assert len([e for e in slots(found) if e["index"] == 0]) <= round_ * ceil(size / (light * B) + 1e-6)


def test_a_slot_that_can_never_carry_anything_is_an_error() -> None:
    with pytest.raises(ControlError, match="slot 0 of group ep leaves nothing beside its guard time of 2 ms"):
        run(program(straight_all_to_all(4)), Cycle(slot_s=0.0021, guard_s=0.002))


@pytest.mark.parametrize("cycle", [None, Cycle(slot_s=D / B + 0.01)])
def test_between_two_all_to_alls_of_a_phase_the_rotation_waits(cycle: Cycle | None) -> None:
    n, gap_s = 4, 0.7
    operations = (all_to_all(0, n), Compute(1, "think", gap_s, (0,)), all_to_all(2, n, deps=(1,)))
    found = run(program(straight_all_to_all(n), operations=operations), cycle, steps=1)
    assert moved(found) == dict.fromkeys(pairs(n), 2 * D)
    ends = {e["op"]: max(o.end or 0.0 for o in found.events if o.kind == "communicate" and o["op"] == e["op"])
            for e in found.events if e.kind == "communicate"}  # fmt: skip
    begins = [e.t for e in found.events if e.kind == "communicate" and e["op"] == 2]
    assert all(t >= ends[0] + gap_s - 1e-6 - (D / B + T) for t in begins)
    between = [e for e in slots(found) if ends[0] + 1e-3 < e.t < min(begins) - 1e-3]
    if cycle is None:
        assert len(between) <= 1, "the last slot stands while nobody has anything"
        assert len(slots(found)) <= 2 * n
    else:
        assert len(between) > 2, "slots with an end go on"
    assert max(ends.values()) - max(begins) <= n * (D / B + T + 0.02)


def test_a_rank_that_comes_late_is_waited_for() -> None:
    n, late_s = 4, 0.4
    group = Group(EP, "ep", tuple(range(n)))
    operations: list[tuple[Operation, ...]] = [
        (Compute(0, "work", late_s if rank == 2 else 0.001), all_to_all(1, n, deps=(0,))) for rank in range(n)
    ]
    schedule = straight_all_to_all(n)
    found = run(Program("late", tuple(operations), {EP: group}, {schedule.algorithm: schedule}), steps=1)
    assert moved(found) == dict.fromkeys(pairs(n), D)
    end = max(e.end or 0.0 for e in found.events if e.kind == "communicate")
    assert end == pytest.approx(late_s + (n - 1) * (D / B + T), rel=0.01)


def test_rings_and_turns_alternate() -> None:
    n = 4
    groups = {EP: Group(EP, "ep", tuple(range(n))), "dp": Group("dp", "dp", tuple(range(n)))}
    operations: tuple[Operation, ...] = (
        all_to_all(0, n),
        Collective(1, "sum", "all_reduce", "dp", n * D, (0,)),
        all_to_all(2, n, deps=(1,)),
    )
    schedule = straight_all_to_all(n)
    found = run(Program("both", (operations,) * n, groups, {schedule.algorithm: schedule}), ports=2)
    for step in range(2):
        ops = [e["op"] for e in found.events if e.kind == "communicate" and e["step"] == step and e["rank"] == 0]
        assert ops == [0, 1, 2]
    dark = [e["group"] for e in found.events if e.kind == "reconfigure" and e["delay_s"]]
    assert set(dark) == {EP, "dp"} and dark.count("dp") == 2
