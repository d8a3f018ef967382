"""Invariants of circuits and matchings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import Change, OpticalSwitch
from railyard.errors import CircuitError, ControlError


@st.composite
def matchings(draw: st.DrawFn, ports: int = 16) -> Matching:
    order = draw(st.permutations(range(1, ports + 1)))
    count = draw(st.integers(0, ports // 2))
    return Matching((order[2 * i], order[2 * i + 1]) for i in range(count))


def test_direction_does_not_matter() -> None:
    assert Circuit(5, 2) == Circuit(2, 5)
    assert Matching([(5, 2), (2, 5)]) == Matching([(2, 5)])


@given(matchings(), matchings())
def test_only_ports_with_another_peer_change(before: Matching, after: Matching) -> None:
    changed = before.changed_ports(after)
    for port in before.ports | after.ports:
        assert (port in changed) == (before.peer(port) != after.peer(port))
    assert before.changed_ports(before) == frozenset()


@given(matchings(), matchings())
def test_stealing_keeps_all_wanted_and_nothing_on_their_ports(before: Matching, wanted: Matching) -> None:
    after = before.replaced_by(wanted)
    assert wanted.circuits <= after.circuits
    assert all(c in wanted or (c in before and not set(c.ports) & wanted.ports) for c in after)


def switch_with(*circuits: tuple[int, int], ports: int = 8) -> OpticalSwitch:
    switch = OpticalSwitch("rail0", range(1, ports + 1))
    go(switch, Matching(circuits), 1)
    if circuits:
        switch.finish(1)
    return switch


def go(switch: OpticalSwitch, after: Matching, number: int) -> Change | None:
    change = switch.change_to(after)
    if change is not None:
        switch.begin(change, number)
    return change


def test_port_states_through_a_reconfiguration() -> None:
    switch = switch_with((1, 2), (3, 4))
    go(switch, Matching([(1, 5), (3, 4)]), 2)
    assert switch.states() == {
        **dict.fromkeys((1, 5), "tuning"),
        **dict.fromkeys((3, 4), "tuned"),
        **dict.fromkeys((2, 6, 7, 8), "blocked"),
    }
    assert switch.up == Matching([(3, 4)])
    switch.finish(2)
    assert (switch.state(1), switch.state(2), switch.state(5)) == ("tuned", "blocked", "tuned")


@given(st.permutations(range(1, 9)), st.permutations(range(1, 9)), st.integers(0, 4), st.integers(0, 4))
def test_ports_that_keep_their_circuit_never_blink(a: list[int], b: list[int], n: int, m: int) -> None:
    before = Matching(zip(a[: 2 * n : 2], a[1 : 2 * n : 2], strict=True))
    after = Matching(zip(b[: 2 * m : 2], b[1 : 2 * m : 2], strict=True))
    switch = switch_with(*(c.ports for c in before))
    go(switch, after, 2)
    assert before.circuits & after.circuits <= switch.up.circuits
    assert all(switch.state(p) != "tuning" for p in range(1, 9) if before.peer(p) == after.peer(p))


def test_two_reconfigurations_at_once_need_ports_of_their_own() -> None:
    switch = switch_with((1, 2), (3, 4))
    go(switch, Matching([(1, 5), (3, 4)]), 2)
    go(switch, Matching([(1, 5), (3, 6)]), 3)
    assert switch.dark == {1, 5, 3, 6}
    change = switch.change_to(Matching([(1, 7), (3, 6)]))
    assert change is not None
    with pytest.raises(CircuitError, match="port 1 of rail0 is still tuning"):
        switch.begin(change, 4)
    switch.finish(3)
    assert switch.up == Matching([(3, 6)])


def test_a_port_that_only_loses_its_circuit_may_be_taken_at_once() -> None:
    switch = switch_with((1, 2), (3, 4))
    go(switch, Matching([(1, 3)]), 2)
    go(switch, Matching([(1, 3), (2, 4)]), 3)
    switch.finish(3)
    assert switch.up == Matching([(2, 4)])
    switch.finish(2)
    assert switch.up == Matching([(1, 3), (2, 4)])


def test_circuits_of_an_aborted_reconfiguration_are_down_until_they_return() -> None:
    switch = switch_with((1, 2), (3, 4), (5, 6))
    go(switch, Matching([(1, 3), (2, 4), (5, 6)]), 2)
    switch.abort(2)
    assert switch.up == Matching([(5, 6)])
    with pytest.raises(ControlError, match="no reconfiguration 2"):
        switch.finish(2)
    back = switch.return_of_lost()
    assert back is not None and back.after == Matching([(1, 2), (3, 4), (5, 6)])


def test_an_aborted_reconfiguration_leaves_a_circuit_that_took_one_of_its_ports() -> None:
    switch = switch_with((1, 2), (3, 4))
    go(switch, Matching([(1, 3)]), 2)
    go(switch, Matching([(1, 3), (2, 4)]), 3)
    switch.finish(3)
    switch.abort(2)
    assert switch.up == Matching([(2, 4)]) and switch.return_of_lost() is None


def test_update_modes() -> None:
    switch = switch_with((1, 2), (3, 4))
    wanted = Matching([(2, 5)])
    assert switch.resolve(wanted, "update") == Matching([(2, 5), (3, 4)])
    assert switch.resolve(wanted, "overwrite") == wanted
    assert switch.resolve(Matching([(1, 2), (5, 6)]), "safe") == Matching([(1, 2), (3, 4), (5, 6)])
    with pytest.raises(CircuitError, match="port 2 of rail0 holds circuit 1-2; mode safe"):
        switch.resolve(wanted, "safe")


def test_a_failed_port_loses_its_circuit_and_gets_it_back() -> None:
    switch = switch_with((1, 2), (3, 4))
    switch.fail(2)
    assert switch.up == Matching([(3, 4)])
    change = switch.removal_of_broken()
    assert change is not None and change.ports == {1, 2}
    switch.begin(change, 2)
    switch.finish(2)
    assert (switch.state(1), switch.state(2)) == ("blocked", "failed")
    switch.restore(2)
    back = switch.return_of_lost()
    assert back is not None and back.after == Matching([(1, 2), (3, 4)])


def test_a_lost_circuit_does_not_come_back_over_a_new_one() -> None:
    switch = switch_with((1, 2))
    switch.fail(2)
    change = switch.removal_of_broken()
    assert change is not None
    switch.begin(change, 2)
    switch.finish(2)
    go(switch, Matching([(1, 3)]), 3)
    switch.finish(3)
    switch.restore(2)
    assert switch.return_of_lost() is None


def lose(switch: OpticalSwitch, port: int, number: int) -> None:
    switch.fail(port)
    change = switch.removal_of_broken()
    assert change is not None
    switch.begin(change, number)
    switch.finish(number)


def test_of_two_circuits_that_a_port_has_lost_the_last_one_returns() -> None:
    switch = switch_with((1, 2))
    lose(switch, 2, 2)
    go(switch, Matching([(1, 3)]), 3)
    switch.finish(3)
    lose(switch, 1, 4)
    switch.restore(2)
    assert switch.return_of_lost() is None
    switch.restore(1)
    back = switch.return_of_lost()
    assert back is not None and back.after == Matching([(1, 3)])


def test_a_return_under_way_is_remembered_while_other_ports_change() -> None:
    switch = switch_with((1, 2))
    lose(switch, 1, 2)
    switch.restore(1)
    back = switch.return_of_lost()
    assert back is not None
    switch.begin(back, 3)
    go(switch, Matching([(1, 2), (5, 6)]), 4)
    switch.finish(4)
    switch.abort(3)
    assert switch.returning == {Circuit(1, 2)}
