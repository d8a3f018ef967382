"""The OCS that is a photonic mesh, as a device: what it refuses, what keeps its light, and its gates."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from engine_player import Turner
from fabric_plans import pip_plan

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import Change, OpticalSwitch
from controllers.engine.actions import Darken, Rewired, RewireRefused
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.engine.optical_state import OpticalState
from controllers.mesh import layouts
from controllers.mesh.switch import LaidMatching, PipSwitch
from controllers.policies.policy import Policy, Wiring
from railyard.errors import CircuitError
from workloads.program import Group

CROWDED = (0, 1, 7, 12)
"""Mesh ports of a 3x3 between any two of which there is a way, but of two circuits only for 1-2 and 3-4."""


def pip(ports: int, at: tuple[int, ...] | None = None) -> PipSwitch:
    return PipSwitch(pip_plan(ports, at=at).switches[0])


def go(switch: PipSwitch, number: int, *circuits: tuple[int, int]) -> Change | None:
    change = switch.change_to(Matching(circuits))
    if change is not None:
        switch.begin(change, number)
        switch.finish(number)
    return change


def check_light(switch: PipSwitch) -> None:
    """What the gates do is what the switch says that it holds."""
    mesh, states = switch.layouts.mesh, switch.layout.routed.states
    assert switch.layout.matching == switch.target
    for circuit in switch.target:
        a, b = (switch.mesh.ports[port - 1] for port in circuit.ports)
        light = mesh.trace(states, a)
        assert light.port_out == b and light.gates == switch.path(circuit)
        assert mesh.trace(states, b).port_out == a


def round_robin(n: int) -> list[Matching]:
    turns = [[(n - 1, r), *(((r + k) % (n - 1), (r - k) % (n - 1)) for k in range(1, n // 2))] for r in range(n - 1)]
    return [Matching((a + 1, b + 1) for a, b in slot_window) for slot_window in turns]


def test_a_fabric_has_one_where_the_plan_has_a_mesh() -> None:
    plan = pip_plan(4)
    other = replace(plan.switches[0], name="rail1", dpid=2, mesh=None)
    fabric = OpticalState(replace(plan, switches=(*plan.switches, other)))
    assert isinstance(fabric.switch("rail0"), PipSwitch)
    assert type(fabric.switch("rail1")) is OpticalSwitch


def test_circuits_are_paths_of_light_and_what_stands_stays() -> None:
    switch = pip(8)
    go(switch, 1, (1, 4))
    path = switch.path(Circuit(1, 4))
    change = go(switch, 2, (1, 4), (2, 3))
    assert change is not None and change.ports == {2, 3} and switch.path(Circuit(1, 4)) == path
    check_light(switch)
    assert switch.latency_us(Circuit(1, 4)) == 0.5 * len(path)
    assert go(switch, 3, (1, 4), (2, 3)) is None
    gone = go(switch, 4, (2, 3))
    assert gone is not None and gone.ports == {1, 4} and gone.tuned == frozenset()


def test_the_path_is_told_from_the_lower_port_of_the_switch() -> None:
    switch = pip(2, at=(20, 3))
    go(switch, 1, (1, 2))
    assert switch.path(Circuit(1, 2)) == switch.layouts.mesh.trace(switch.layout.routed.states, 20).gates


def test_a_circuit_in_the_way_moves_and_goes_dark_with_the_others() -> None:
    switch = pip(8)
    go(switch, 1, (3, 7))
    before = switch.path(Circuit(3, 7))
    change = switch.change_to(Matching([(1, 4), (2, 8), (3, 7), (5, 6)]))
    assert change is not None and change.ports == set(range(1, 9)) == change.tuned
    switch.begin(change, 2)
    assert switch.state(3) == "tuning" and switch.path(Circuit(3, 7)) != before
    check_light(switch)
    switch.finish(2)
    assert switch.up == change.after


def test_no_more_moves_than_must() -> None:
    switch = pip(8)
    go(switch, 1, (1, 8), (2, 3), (4, 5), (6, 7))
    paths = {circuit: switch.path(circuit) for circuit in switch.target}
    change = go(switch, 2, (1, 4), (2, 3), (5, 8), (6, 7))
    assert change is not None
    for circuit in (Circuit(2, 3), Circuit(6, 7)):
        assert (switch.path(circuit) == paths[circuit]) == change.ports.isdisjoint(circuit.ports)
    check_light(switch)


def test_a_matching_without_paths_is_refused_with_a_proof_and_what_would_work() -> None:
    switch = pip(4, at=CROWDED)
    go(switch, 1, (1, 2), (3, 4))
    with pytest.raises(CircuitError) as refused:
        switch.change_to(Matching([(1, 3), (2, 4)]))
    text = str(refused.value)
    assert text.startswith(
        "the mesh of rail0 (3x3) cannot carry 1-3 2-4 at once (proved: light of port 3 can only come out at port 4); "
        "without 2-4 it works, "
    )
    assert "mesh=3x3@choose" in text and "\n" not in text
    assert switch.up == Matching([(1, 2), (3, 4)])
    check_light(switch)


def test_a_refusal_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = pip(4, at=CROWDED)
    for _ in range(2):
        with pytest.raises(CircuitError, match="proved"):
            switch.change_to(Matching([(1, 3), (2, 4)]))
        monkeypatch.setattr(layouts, "route", searched_again)


def searched_again(*_: object, **__: object) -> None:
    raise AssertionError("it was searched for a second time")


def test_a_rotation_that_was_warmed_costs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, turns = OpticalState(pip_plan(8)), round_robin(8)
    fabric.warm({"rail0": slot_window} for slot_window in turns)
    monkeypatch.setattr(layouts, "route", searched_again)
    switch = fabric.switch("rail0")
    assert isinstance(switch, PipSwitch)
    for number, slot_window in enumerate(turns * 2):
        go(switch, number, *(circuit.ports for circuit in slot_window))
        check_light(switch)


def test_warming_says_which_turn_cannot_be() -> None:
    with pytest.raises(CircuitError, match="cannot carry 1-4 2-3 at once"):
        pip(4, at=CROWDED).warm([Matching([(1, 2), (3, 4)]), Matching([(1, 4), (2, 3)])])


def test_a_stale_plan_is_not_carried_out() -> None:
    switch = pip(8)
    go(switch, 1, (3, 7))
    plan = switch.change_to(Matching([(3, 7), (1, 2)]))
    assert plan is not None
    other = next(
        s for s in layouts_of(switch, Circuit(3, 7)) if s.layout.path(Circuit(3, 7)) != switch.path(Circuit(3, 7))
    )
    moved = switch.change_to(other)
    assert moved is not None and moved.ports == {3, 7}
    switch.begin(moved, 2)
    with pytest.raises(CircuitError, match="plan it again"):
        switch.begin(plan, 3)


def layouts_of(switch: PipSwitch, circuit: Circuit) -> list[LaidMatching]:
    """Ways to lay one circuit, found by light alone."""
    random = Random(5)
    found: list[LaidMatching] = []
    blocked = switch.ports - set(circuit.ports)
    while len(found) < 5:
        try:
            found.append(switch.with_gates([random.random() < 0.5 for _ in switch.layouts.mesh.gates], blocked))
        except CircuitError:
            continue
    return found


def test_gates_as_given_stand_with_the_circuits_that_light_makes_of_them() -> None:
    other, switch = pip(8), pip(8)
    go(other, 1, (1, 2), (3, 4), (5, 8), (6, 7))
    routed = other.layout.routed
    states = [bool(state) or gate not in routed.crossed for gate, state in enumerate(routed.states)]
    laid = switch.with_gates(states)
    change = switch.change_to(laid)
    assert change is not None and change.after == laid == other.target
    switch.begin(change, 1)
    switch.finish(1)
    assert list(switch.layout.routed.states) == states
    check_light(switch)
    assert switch.change_to(Matching(laid.circuits)) is None


def test_the_same_circuits_on_other_paths_are_a_change_of_their_ports() -> None:
    switch = pip(8)
    go(switch, 1, (3, 7))
    for laid in layouts_of(switch, Circuit(3, 7)):
        change = switch.change_to(laid)
        if laid.layout.path(Circuit(3, 7)) == switch.path(Circuit(3, 7)):
            assert change is None and switch.layout.routed.states == laid.layout.routed.states
        else:
            assert change is not None and change.tuned == {3, 7}
            switch.begin(change, 2)
            switch.finish(2)
        check_light(switch)


def test_gates_that_no_light_crosses_can_be_set_at_any_time() -> None:
    switch = pip(8)
    go(switch, 1, (1, 2))
    idle = [gate for gate in range(35) if gate not in switch.path(Circuit(1, 2))]
    states = list(switch.layout.routed.states)
    for gate in idle:
        states[gate] = not states[gate]
    assert switch.change_to(switch.with_gates(states, range(3, 9))) is None
    assert list(switch.layout.routed.states) == states
    check_light(switch)


def test_light_that_ends_nowhere_is_named() -> None:
    switch = pip(4)
    with pytest.raises(CircuitError, match="rail0 has 35 gates; give a state for each, not 3"):
        switch.with_gates([True] * 3)
    with pytest.raises(CircuitError, match=r"light of port \d comes out at mesh port \d+, which is no port of rail0"):
        switch.with_gates([False] * 35)
    with pytest.raises(CircuitError, match="port 5 is not on rail0"):
        switch.with_gates([False] * 35, [5])
    go(switch, 1, (1, 2), (3, 4))
    with pytest.raises(CircuitError, match="light of port 2 comes out at port 1, which is to be blocked"):
        switch.with_gates(switch.layout.routed.states, [1])


def test_a_broken_port_takes_its_circuit_and_gives_it_back_only_where_there_is_a_way() -> None:
    switch = pip(4, at=CROWDED)
    go(switch, 1, (1, 3))
    switch.fail(3)
    change = switch.removal_of_broken()
    assert change is not None and change.ports == {1, 3}
    switch.begin(change, 2)
    switch.finish(2)
    go(switch, 3, (2, 4))
    switch.restore(3)
    assert switch.return_of_lost() is None
    assert switch.up == Matching([(2, 4)])


def test_a_circuit_that_returns_moves_no_other() -> None:
    switch = pip(8)
    go(switch, 1, (5, 8), (3, 6), (1, 2))
    for port in (8, 3, 2):
        switch.fail(port)
    change = switch.removal_of_broken()
    assert change is not None
    switch.begin(change, 2)
    switch.finish(2)
    go(switch, 3, (4, 7))
    for port in (8, 3, 2):
        switch.restore(port)
    change = switch.return_of_lost()
    assert change is not None and change.after == Matching([(1, 2), (3, 6), (4, 7)]) and change.ports == {1, 2, 3, 6}


def test_a_lost_circuit_without_a_way_keeps_no_other_from_its_return() -> None:
    switch = PipSwitch(pip_plan(8, width=3, height=2, at=(*range(8),)).switches[0])
    go(switch, 1, (1, 2), (5, 7))
    for number, port in ((2, 1), (3, 5)):
        switch.fail(port)
        change = switch.removal_of_broken()
        assert change is not None
        switch.begin(change, number)
        switch.finish(number)
    go(switch, 4, (3, 4))
    switch.restore(1)
    blocked = switch.return_of_lost()
    switch.restore(5)
    both = switch.return_of_lost()
    assert blocked is None and both is not None and both.after == Matching([(3, 4), (5, 7)])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_gates_do_what_the_switch_says(seed: int) -> None:
    random, switch = Random(seed), pip(8)
    running: dict[int, Change] = {}
    for number in range(60):
        ports = random.sample(range(1, 9), 2 * random.randint(1, 4))
        wanted = Matching(zip(ports[::2], ports[1::2], strict=True))
        try:
            change = switch.change_to(wanted if random.random() < 0.5 else switch.resolve(wanted, "update"))
        except CircuitError:
            continue
        if change is not None and change.ports.isdisjoint(switch.dark):
            staying = {c: switch.path(c) for c in switch.target if change.ports.isdisjoint(c.ports)}
            switch.begin(change, number)
            running[number] = change
            assert all(switch.path(circuit) == path for circuit, path in staying.items())
        check_light(switch)
        while running and random.random() < 0.6:
            done = random.choice(list(running))
            running.pop(done)
            (switch.finish if random.random() < 0.7 else switch.abort)(done)
            check_light(switch)


class OnePair(Policy):
    """Whoever talks gets the circuit 3-7 beside what stands."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        return {"rail0": standing["rail0"].replaced_by(Matching([(3, 7)]))}


def test_a_circuit_in_use_is_not_moved_by_hand() -> None:
    plan = pip_plan(8)
    world = Turner(Engine(plan))
    world.start(Job("job", (Group("pair", "pp", (2, 6)),), "on-demand", 0.0), OnePair(plan))
    world.ask("pair")
    world.settle()
    assert world.granted("pair")
    crowd = Matching([(1, 4), (2, 8), (5, 6)])
    (refused,) = world.engine.rewire("rail0", crowd, "update", 2.0)
    assert isinstance(refused, RewireRefused) and "pair has traffic on the ports of rail0" in refused.reason
    world.release("pair")
    (moving,) = world.engine.rewire("rail0", crowd, "update", 4.0)
    assert isinstance(moving, Darken) and moving.ports == set(range(1, 9))
    assert any(isinstance(action, Rewired) for action in world.engine.reconfigured(moving.reconfiguration_id, 4.0))
