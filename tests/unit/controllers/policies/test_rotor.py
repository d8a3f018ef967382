"""Circuits in turns: who meets whom and for how long, beside rings and chains that come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from fabric_plans import rail_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.circuits.decomposition import birkhoff_von_neumann, covering_matchings
from controllers.circuits.matchings import one_factorization
from controllers.circuits.rotation import Cycle, Slot
from controllers.engine.jobs import Job
from controllers.policies.policy import Wiring
from controllers.policies.rotor import DemandPolicy, RotorPolicy
from controllers.policies.wiring import group_paths, path_circuits, ring_paths
from railyard.errors import ConfigError
from railyard.protocol import Hop
from railyard.scale import goodput_share
from workloads.program import Group
from workloads.rank.slot_sender import HEADROOM_BYTES, LATE_S

CYCLES = [None, Cycle(), Cycle(slot_s=0.2, guard_s=0.01), Cycle(simplex=True), Cycle(slot_s=0.2, simplex=True)]


def started(kind: type[RotorPolicy], n: int, cycle: Cycle | None, *groups: Group, ports: int = 2) -> RotorPolicy:
    policy = kind(rail_plan(n, ports=ports))
    policy.prepare(Job("job", (), "any", cycle=cycle))
    policy.start(groups)
    return policy


def everybody(n: int) -> Group:
    return Group("ep", "ep", tuple(range(n)))


def check_slots(slots: Sequence[Slot], policy: RotorPolicy) -> None:
    """Each slot lights its paths and nothing else."""
    switch = policy.plan.rail_of(0)
    for slot in slots:
        assert slot.wiring == {"rail0": Matching(path_circuits(switch, slot.paths))}
        assert len(slot.wiring["rail0"]) == len(slot.paths)


@pytest.mark.parametrize("cycle", CYCLES)
@given(members=st.lists(st.integers(0, 11), min_size=2, max_size=12, unique=True))
def test_a_rotor_joins_each_to_each_once(cycle: Cycle | None, members: list[int]) -> None:
    group = Group("ep", "ep", tuple(members))
    policy = started(RotorPolicy, 12, cycle, group)
    slots, n = policy.rotation(group), len(members)
    check_slots(slots, policy)
    cycle = cycle or Cycle()
    assert {slot.seconds for slot in slots} == {cycle.slot_s}
    paths = [path for slot in slots for path in slot.paths]
    if cycle.simplex:
        assert len(slots) == n - 1
        assert sorted((a, b) for a, _, b, _ in paths) == sorted(permutations(members, 2))
        assert {(out, into) for _, out, _, into in paths} == {(1, 0)}
    else:
        assert len(slots) == -(-(n - 1 + n % 2) // 2)  # a matching on each of two ports
        assert sorted(sorted((a, b)) for a, _, b, _ in paths) == sorted(sorted(p) for p in combinations(members, 2))
        assert all(out == into for _, out, _, into in paths)


def test_with_one_port_a_slot_is_a_matching() -> None:
    policy = started(RotorPolicy, 7, None, everybody(7), ports=1)
    slots = policy.rotation(everybody(7))
    assert [[(a, b) for a, _, b, _ in slot.paths] for slot in slots] == [list(pairs) for pairs in one_factorization(7)]
    assert {(out, into) for slot in slots for _, out, _, into in slot.paths} == {(0, 0)}


def test_only_ep_groups_of_several_members_on_the_rails_rotate() -> None:
    others = [Group("dp", "dp", (0, 1)), Group("inside", "ep", (2, 3), "scale-up"), Group("one", "ep", (2,))]
    policy = started(RotorPolicy, 4, None, *others)
    assert [policy.rotation(group) for group in others] == [(), (), ()]
    assert not policy.asks(others[1])


def test_a_start_wires_rings_and_leaves_the_ports_of_a_rotation_alone() -> None:
    policy = RotorPolicy(rail_plan(6))
    policy.prepare(Job("job", (), "any"))
    dense = Group("dp", "dp", (0, 1))
    assert policy.start([dense, Group("ep", "ep", (2, 3, 4, 5))]) == {
        "rail0": Matching(path_circuits(policy.plan.rail_of(0), ring_paths((0, 1))))
    }


def test_pairs_need_one_port_and_shifts_two() -> None:
    assert len(started(RotorPolicy, 4, None, everybody(4), ports=1).rotation(everybody(4))) == 3
    for kind in (RotorPolicy, DemandPolicy):
        with pytest.raises(ConfigError, match="GPU 0 has no port 1 on rail0"):
            started(kind, 4, Cycle(simplex=True), everybody(4), ports=1)


@st.composite
def cycles(draw: st.DrawFn) -> Cycle:
    """Cycles with a demand between 2 to 6 positions, in bytes."""
    n = draw(st.integers(2, 6))
    rows = draw(st.lists(st.lists(st.integers(0, 10**7), min_size=n, max_size=n), min_size=n, max_size=n))
    demand = [[0.0 if i == j else float(entry) for j, entry in enumerate(row)] for i, row in enumerate(rows)]
    demand[0][1] += 1000.0
    slot_s = draw(st.sampled_from([None, 0.1]))
    most = draw(st.sampled_from([0, 3 * n]))
    return Cycle(slot_s, 0.003, draw(st.booleans()), tuple(map(tuple, demand)), most)


@given(cycles())
@settings(deadline=None)
def test_every_demand_fits_into_its_slots(cycle: Cycle) -> None:
    n = len(cycle.demand)
    group = Group("ep", "ep", tuple(reversed(range(n))))
    policy = started(DemandPolicy, n, cycle, group)
    slots = policy.rotation(group)
    check_slots(slots, policy)
    assert not cycle.most_slots or len(slots) <= cycle.most_slots
    goodput = 100e6 / 8 * goodput_share(9000)
    room: Counter[tuple[int, int]] = Counter()
    for slot in slots:
        assert (slot.seconds is None) == (cycle.slot_s is None)
        for a, _, b, _ in slot.paths:
            size = 0 if slot.seconds is None else (slot.seconds - cycle.guard_s) * goodput
            for pair in [(a, b)] if cycle.simplex else [(a, b), (b, a)]:
                room[pair] += size  # type: ignore[assignment]
    for i, row in enumerate(cycle.demand):
        for j, entry in enumerate(row):
            pair = group.members[i], group.members[j]
            assert pair in room or not entry
            assert cycle.slot_s is None or room[pair] >= entry * (1 - 1e-9)


def test_pairs_by_matchings_and_shifts_by_birkhoff_von_neumann() -> None:
    demand = ((0.0, 9e5, 1e5), (0.0, 0.0, 9e5), (9e5, 0.0, 0.0))
    for simplex, slot_s, turns in (
        (True, 0.1, birkhoff_von_neumann(demand)),
        (True, None, birkhoff_von_neumann(demand, 2)),
        (False, None, covering_matchings(demand)),
    ):
        cycle = Cycle(slot_s, simplex=simplex, demand=demand)
        policy = started(DemandPolicy, 3, cycle, everybody(3), ports=2 if simplex else 1)
        slots = policy.rotation(everybody(3))
        found = [tuple((a, b) for a, _, b, _ in slot.paths) for slot in slots]
        assert found == [
            slot_window.pairs for slot_window in sorted(turns, key=lambda slot_window: -slot_window.length)
        ]


def test_a_slot_is_as_long_as_its_bytes_take_and_the_guard() -> None:
    demand = ((0.0, 12.5e6 * goodput_share(9000)), (1.0, 0.0))
    policy = started(DemandPolicy, 2, Cycle(0.1, 0.004, demand=demand), everybody(2))
    (slot,) = policy.rotation(everybody(2))
    beside_s = LATE_S + HEADROOM_BYTES / demand[0][1]
    assert slot.seconds == pytest.approx(1.004 + beside_s), "and what is not planned for on this machine"


@pytest.mark.parametrize("cycle", CYCLES)
def test_without_a_demand_it_is_a_rotor(cycle: Cycle | None) -> None:
    group = everybody(5)
    rotor, demand = (started(kind, 5, cycle, group) for kind in (RotorPolicy, DemandPolicy))
    assert demand.rotation(group) == rotor.rotation(group)


def stages(ep: int, dp: int, pp: int) -> tuple[Group, ...]:
    """Dense rings, EP groups and pairs, the EP index fastest."""
    width = ep * dp
    groups = []
    for s in range(pp):
        ranks = range(s * width, (s + 1) * width)
        groups.append(Group(f"dp.s{s}", "dp", tuple(ranks), stage=s))
        groups += [Group(f"ep.d{d}.s{s}", "ep", tuple(ranks[d * ep : (d + 1) * ep]), stage=s) for d in range(dp)]
        if s + 1 < pp:
            groups += [Group(f"pp.{r}", "pp", (r, r + width), stage=s) for r in ranks]
    return tuple(groups)


def turned(slot: Slot, slots: Sequence[Slot], standing: Wiring) -> dict[str, Matching]:
    """As the engine steps: the ports of all slots are the group's, then this one's circuits."""
    here = standing["rail0"]
    for other in slots:
        here = here.without_ports(other.wiring["rail0"].ports)
    return {"rail0": Matching([*here, *slot.wiring["rail0"]])}


@given(
    ep=st.integers(2, 4),
    dp=st.integers(1, 2),
    simplex=st.booleans(),
    picks=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=14),
)
@settings(deadline=None)
def test_rings_and_chains_leave_other_stages_rotations_alone(
    ep: int, dp: int, simplex: bool, picks: list[tuple[int, int]]
) -> None:
    groups = stages(ep, dp, 3)
    policy = RotorPolicy(rail_plan(3 * ep * dp))
    policy.prepare(Job("job", (), "any", cycle=Cycle(simplex=simplex)))
    standing: Wiring = {"rail0": Matching(), **policy.start(groups)}
    turning: dict[str, Slot] = {}
    for pick, number in picks:
        group = groups[pick % len(groups)]
        touched = {group.stage, group.stage + 1} if group.dimension == "pp" else {group.stage}
        if group.dimension == "ep":
            slots = policy.rotation(group)
            turning[group.name] = slots[number % len(slots)]
            standing = turned(turning[group.name], slots, standing)
            continue
        after = policy.wanted(group, standing)
        for ring in groups:
            if (
                ring.dimension == "dp"
                and ring.stage not in touched
                and policy.paths(ring, standing) == group_paths(ring)
            ):
                assert policy.paths(ring, after) == group_paths(ring)
        assert policy.wanted(group, after) == after
        assert policy.paths(group, after) == group_paths(group)
        turning = {name: slot for name, slot in turning.items() if int(name[-1]) not in touched}
        for slot in turning.values():
            assert slot.wiring["rail0"].circuits <= after["rail0"].circuits
        standing = after


def test_a_ring_takes_its_ports_back_from_a_rotation() -> None:
    groups = {g.name: g for g in stages(4, 1, 2)}
    policy = RotorPolicy(rail_plan(8))
    policy.prepare(Job("job", (), "any"))
    start = policy.start(list(groups.values()))
    slots = policy.rotation(groups["ep.d0.s0"])
    standing = turned(slots[1], slots, start)
    assert policy.paths(groups["dp.s0"], standing) == ()
    assert policy.paths(groups["dp.s1"], standing) == ring_paths((4, 5, 6, 7))
    assert policy.wanted(groups["dp.s0"], standing) == start


def test_a_chain_takes_the_place_of_a_rotation_where_there_is_no_ring() -> None:
    ep, pair = Group("ep", "ep", (0, 1)), Group("pp", "pp", (0, 2))
    policy = RotorPolicy(rail_plan(3))
    policy.prepare(Job("job", (), "any"))
    start = policy.start([ep, pair])
    slots = policy.rotation(ep)
    standing = turned(slots[0], slots, start)
    assert len(standing["rail0"]) == 2, "the chain leaves by the other port"
    assert policy.wanted(pair, standing) == start


@pytest.mark.parametrize("kind", [RotorPolicy, DemandPolicy])
@pytest.mark.parametrize("ports", [1, 2])
def test_on_electrical_rails_nothing_turns(kind: type[RotorPolicy], ports: int) -> None:
    policy = kind(rail_plan(4, ports=ports, kind="electrical"))
    policy.prepare(Job("job", (), "any", cycle=Cycle(0.1)))
    ep, dp, pp = everybody(4), Group("dp", "dp", (0, 1, 2, 3)), Group("pp", "pp", (0, 1))
    assert policy.start([ep, dp, pp]) == {}
    assert policy.rotation(ep) == () and all(policy.wanted(group, {}) == {} for group in (ep, dp, pp))
    wanted: list[Hop] = [Hop(a, 0, b, 0) for a, b in combinations(range(4), 2)]
    assert sorted(policy.paths(ep, {})) == wanted
    assert policy.paths(dp, {}) == ring_paths((0, 1, 2, 3), high=ports - 1)
    assert policy.paths(pp, {}) == group_paths(pp, high=ports - 1)
