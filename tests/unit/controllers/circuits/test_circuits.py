"""Invariants of circuits and matchings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Circuit, Matching


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
