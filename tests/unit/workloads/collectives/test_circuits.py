"""Circuits of a schedule: which, when, and who asks for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace

import pytest
from agents.machine_player import played
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.errors import ConfigError
from workloads.check import check
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.collectives.circuits import circuit_groups, circuit_uses, follow_circuits
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank.circuit_client import circuit_client_of
from workloads.rank.executor import ReleaseCircuits, RequestCircuits
from workloads.schedule import Schedule, Transfer


def provisioned(plan: Schedule) -> Schedule:
    return replace(plan, provisioned=True, lockstep=True)


def feasible() -> list[Schedule]:
    """Every schedule of the catalog for up to nine positions that two ports can carry."""
    found = []
    for name, algorithm in ALGORITHMS.items():
        for kind in algorithm.kinds:
            for n in range(1, 10):
                with suppress(ConfigError):
                    plan = schedule(kind, n, name)
                    circuit_uses(plan)
                    found += [plan, provisioned(plan)]
    return found


FEASIBLE = feasible()


def test_a_matching_takes_lane_0_of_both() -> None:
    uses = circuit_uses(schedule("all_reduce", 4, "recursive-doubling"))
    assert [(use.ends, use.first, use.last) for use in uses] == [
        (((0, 0), (1, 0)), 0, 0),
        (((2, 0), (3, 0)), 0, 0),
        (((0, 0), (2, 0)), 1, 1),
        (((1, 0), (3, 0)), 1, 1),
    ]


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_has_the_same_circuits_from_first_to_last(algorithm: str, n: int) -> None:
    plan = schedule("all_reduce", n, algorithm)
    uses = circuit_uses(plan)
    assert {(use.first, use.last) for use in uses} == {(0, plan.rounds - 1)}
    if algorithm == "ring" and n == 2:
        assert [use.ends for use in uses] == [((0, 0), (1, 0))]
        return
    ring = {frozenset({(p, 1), ((p + 1) % n, 0)}) for p in range(n)}
    assert {frozenset(use.ends) for use in uses} == ring


def test_stragglar_changes_to_a_matching_in_phase_2() -> None:
    plan = schedule("all_reduce", 8, "stragglar")
    uses = circuit_uses(plan)
    ring = [use for use in uses if use.first < plan.first_phase]
    assert len(ring) == 7 and all({lane for _, lane in use.ends} == {0, 1} for use in ring)
    assert all(lane == 0 for use in uses if use not in ring for _, lane in use.ends)
    with_straggler = [use for use in uses if plan.straggler in (use.ends[0][0], use.ends[1][0])]
    assert [use.first for use in with_straggler] == list(range(plan.first_phase, plan.rounds))


def test_provisioned_matchings_take_lanes_in_turn_and_rounds_on_the_same_matching_stay() -> None:
    pairwise = circuit_uses(provisioned(schedule("all_to_all", 8, "pairwise")))
    assert {(use.first, use.ends[0][1], use.ends[1][1]) for use in pairwise} == {(r, r % 2, r % 2) for r in range(7)}
    halving = circuit_uses(provisioned(schedule("all_reduce", 8, "recursive-halving-doubling")))
    lanes = {(use.first, use.last): use.ends[0][1] for use in halving}
    assert lanes == {(0, 0): 0, (1, 4): 1, (2, 3): 0, (5, 5): 0}, "lane 1 keeps the matching of rounds 1 and 4"


def test_a_provisioned_circuit_is_asked_for_when_the_one_before_it_is_up() -> None:
    group, plan = Group("g", "dp", tuple(range(8))), provisioned(schedule("all_to_all", 8, "pairwise"))
    client = circuit_client_of(group, circuit_uses(plan), 0, circuit_groups(group, plan), {}, in_turn=True)
    assert client is not None
    (first,) = client.begin()
    transfers = client.acknowledged(first.group, first.index)
    (second,) = client.release(transfers[0])
    assert (first.group, second.group) == ("g/0.0-1.0", "g/0.1-2.1"), "on the other lane, while the first is used"
    over = [message for number in transfers for message in client.over(number)]
    assert over == [ReleaseCircuits(first.group, 0)], "the third waits until the second is up"
    (third,) = client.release(client.acknowledged(second.group, second.index)[0])
    assert third.group == "g/0.0-3.0"


def test_a_chain_with_both_directions_is_laid_along_its_positions() -> None:
    rows = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3)]
    plan = Schedule("chain", "all_reduce", 4, 1, (0,), tuple(Transfer(0, a, b, 0, "copy") for a, b in rows))
    assert {use.ends for use in circuit_uses(plan)} == {((0, 1), (1, 0)), ((1, 1), (2, 0)), ((2, 1), (3, 0))}


def test_the_scale_up_network_and_copies_in_place_need_no_circuit() -> None:
    rows = (Transfer(0, 0, 1, 0, "copy", scale_up=True), Transfer(0, 1, 1, 0, "copy", to=1))
    assert circuit_uses(Schedule("inside", "all_reduce", 2, 2, (0, 0), rows)) == ()


@given(st.sampled_from(FEASIBLE))
def test_no_port_has_two_circuits_at_once_and_every_transfer_has_one(plan: Schedule) -> None:
    uses = circuit_uses(plan)
    wires = [number for number, t in enumerate(plan.transfers) if not (t.local or t.scale_up)]
    assert sorted(number for use in uses for number in use.transfers) == wires
    busy: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    for use in uses:
        assert use.first <= use.last
        for end in use.ends:
            assert busy[end] < use.first, "the port is free again"
            busy[end] = use.last
        for number in use.transfers:
            t = plan.transfers[number]
            assert {t.src, t.dst} == {position for position, _ in use.ends}
            assert use.first <= t.round <= use.last


@settings(deadline=None)
@given(st.sampled_from([made for made in FEASIBLE if made.n > 1]), st.integers(0, 1 << 30))
def test_circuits_never_lock_up_and_all_that_were_requested_are_released(made: Schedule, seed: int) -> None:
    """Two steps of the collective on the machines of its ranks, with a controller that hears them in any order."""
    player = played(made, 400, seed, steps=2, on_circuits=True)
    requests, releases = (
        Counter((message.group, message.index) for _, message in player.asked if isinstance(message, kind))
        for kind in (RequestCircuits, ReleaseCircuits)
    )
    assert requests == releases and set(requests.values()) <= {2}, "both ends count alike"
    assert len(requests) == 2 * len(circuit_uses(made))


def test_a_gate_only_where_the_circuits_ask() -> None:
    group, plan = Group("g", "dp", (0, 1, 2)), schedule("all_reduce", 3, "ring")
    assert circuit_client_of(group, circuit_uses(plan), 0, (), {}) is None
    assert circuit_client_of(group, circuit_uses(plan), 0, circuit_groups(group, plan), {}) is not None


def two_collectives(*names: str) -> Program:
    ranks = []
    for _ in range(4):
        operations: list[Operation] = [Compute(0, "c", 0.1)]
        operations += [
            Collective(1 + k, f"op{k}", "all_reduce", f"g{k}", 4000, (0,), name) for k, name in enumerate(names)
        ]
        ranks.append(tuple(operations))
    groups = {f"g{k}": Group(f"g{k}", "dp", (0, 1, 2, 3)) for k in range(len(names))}
    return Program("two", tuple(ranks), groups)


def test_circuit_groups_are_added_and_collectives_put_in_order() -> None:
    program = follow_circuits(two_collectives("ring", "stragglar"))
    check(program)
    circuits = {name: group for name, group in program.groups.items() if group.parent}
    assert {group.parent for group in circuits.values()} == {"g0", "g1"}
    assert circuits["g0/0.1-1.0"] == Group("g0/0.1-1.0", "dp", (0, 1), lanes=(1, 0), parent="g0")
    assert all(ops[2].deps == (0, 1) for ops in program.operations), "two rings must not wait for each other's ports"
    assert follow_circuits(program) == program


def test_sends_wait_for_the_collective_before_them_and_it_for_those_before_it() -> None:
    groups = {"all": Group("all", "dp", (0, 1)), "pair": Group("pair", "pp", (0, 1))}
    ranks = (
        (
            Send(0, "s", "pair", 1, 8),
            Collective(1, "a", "all_reduce", "all", 8, (), "ring"),
            Send(2, "t", "pair", 1, 8),
        ),
        (
            Recv(0, "r", "pair", 0, 8),
            Collective(1, "a", "all_reduce", "all", 8, (), "ring"),
            Recv(2, "q", "pair", 0, 8),
        ),
    )
    program = follow_circuits(Program("mixed", ranks, groups))
    assert [[op.deps for op in operations] for operations in program.operations] == [[(), (0,), (1,)]] * 2


def test_what_cannot_be_laid_is_named_with_its_operation() -> None:
    with pytest.raises(ConfigError, match=r"program two: op1: .*direct all_reduce over 4 needs circuits"):
        follow_circuits(two_collectives("ring", "direct"))


def test_the_front_end_needs_no_circuits() -> None:
    group = Group("fe", "world", (0, 1), domain="front-end")
    operations = (Collective(0, "barrier", "all_reduce", "fe", 4),)
    program = Program("scalar", (operations, operations), {"fe": group})
    assert follow_circuits(program) == program
