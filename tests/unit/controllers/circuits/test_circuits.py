"""Invariants of circuits and matchings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import OpticalSwitch
from railyard.errors import CircuitError


@st.composite
def matchings(draw: st.DrawFn, ports: int = 16) -> Matching:
    order = draw(st.permutations(range(1, ports + 1)))
    count = draw(st.integers(0, ports // 2))
    return Matching((order[2 * i], order[2 * i + 1]) for i in range(count))


def test_a_port_twice_and_a_port_to_itself_are_refused() -> None:
    with pytest.raises(CircuitError, match="port 2 is in circuit 1-2"):
        Matching([(1, 2), (2, 3)])
    with pytest.raises(CircuitError, match="itself"):
        Circuit(4, 4)


def test_a_port_the_switch_has_not_is_named() -> None:
    with pytest.raises(CircuitError, match="port 9 is not on rail0; its ports are 1 to 8"):
        OpticalSwitch("rail0", range(1, 9)).change_to(Matching([(1, 9)]))


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
