"""Our bytes, read by ryu's parser and played on a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fabric_plans import rail_plan
from fake_openflow import FakeSwitch, parse
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Circuit, Matching
from controllers.engine.actions import Darken
from controllers.openflow import flows

ports = st.integers(1, 64)


def darken(before: Matching, after: Matching, delay_s: float, number: int = 7) -> Darken:
    return Darken(number, "rail0", before.changed_ports(after), before, after, delay_s)


@st.composite
def matchings(draw: st.DrawFn) -> Matching:
    order = draw(st.permutations(range(1, 13)))
    return Matching(zip(order[: draw(st.integers(0, 6)) * 2 : 2], order[1::2], strict=False))


def test_a_circuit_flow_is_what_the_framework_reads() -> None:
    body = flows.circuit_flow(3, 9)
    (mod,) = parse(flows.header(flows.TYPE_FLOW_MOD, 5, len(body)) + body)
    assert (mod.xid, mod.command, mod.priority, mod.table_id, mod.cookie) == (5, 0, 10, 0, flows.CIRCUIT_COOKIE)
    assert dict(mod.match.items()) == {"in_port": 3}
    assert mod.instructions[0].actions[0].port == 9


def test_a_forward_flow_matches_the_address() -> None:
    body = flows.forward_flow("02:00:00:00:01:0a", 4)
    (mod,) = parse(flows.header(flows.TYPE_FLOW_MOD, 5, len(body)) + body)
    assert dict(mod.match.items()) == {"eth_dst": "02:00:00:00:01:0a"}
    assert mod.instructions[0].actions[0].port == 4


def test_a_bundle_is_atomic_and_ends_in_a_barrier_under_one_xid() -> None:
    data = flows.darken(darken(Matching(), Matching([(1, 4)]), 0.01), 77)
    messages = parse(data)
    assert {m.xid for m in messages} == {77}
    assert [m.msg_type for m in messages] == [33, *[34] * 6, 33, 20], "old circuit, dark and new circuit of two ports"
    assert {m.flags for m in messages if m.msg_type in (33, 34)} == {3}
    assert {m.bundle_id for m in messages if m.msg_type in (33, 34)} == {77}


def test_a_plain_circuit_takes_the_place_of_a_plain_one_by_itself() -> None:
    before, after = Matching([(1, 2), (3, 4), (5, 6)]), Matching([(1, 3), (2, 4)])
    mods = [
        m.inner for m in parse(flows.darken(darken(before, after, 0.0), 77, rotation_ports={2})) if m.msg_type == 34
    ]
    taken_out = [dict(mod.match.items())["in_port"] for mod in mods if mod.command == flows.DELETE]
    assert taken_out == [2, 5, 6], "what may hold a flow of a rotation, and what only loses its circuit"
    assert [dict(mod.match.items())["in_port"] for mod in mods if mod.command == flows.ADD] == [1, 2, 3, 4]


@given(matchings(), matchings())
def test_dark_then_light_moves_only_what_changes(before: Matching, after: Matching) -> None:
    switch = FakeSwitch()
    switch.take(flows.fill(rail_plan(6).switches[0], [c.ports for c in before], 1))
    assert {p: switch.goes_to(p) for p in range(1, 13)} == {p: before.peer(p) for p in range(1, 13)}
    change = darken(before, after, 0.01)
    switch.take(flows.darken(change, 2))
    for port in range(1, 13):
        assert switch.goes_to(port) == (None if port in change.ports else before.peer(port))
    switch.take(flows.end_dark(7, 3))
    assert {p: switch.goes_to(p) for p in range(1, 13)} == {p: after.peer(p) for p in range(1, 13)}


@given(matchings(), matchings())
def test_without_a_delay_nothing_goes_dark(before: Matching, after: Matching) -> None:
    switch = FakeSwitch()
    switch.take(flows.fill(rail_plan(6).switches[0], [c.ports for c in before], 1))
    switch.take(flows.darken(darken(before, after, 0.0), 2))
    assert {p: switch.goes_to(p) for p in range(1, 13)} == {p: after.peer(p) for p in range(1, 13)}


def test_lighting_one_reconfiguration_leaves_another_dark() -> None:
    switch = FakeSwitch()
    first, second = Matching([(1, 2)]), Matching([(1, 2), (3, 4)])
    switch.take(flows.darken(darken(Matching(), first, 1.0, 7), 1))
    switch.take(flows.darken(darken(first, second, 1.0, 8), 2))
    switch.take(flows.end_dark(7, 3))
    assert (switch.goes_to(1), switch.goes_to(3)) == (2, None)


@given(matchings(), matchings(), matchings())
def test_in_a_rotation_only_what_is_for_the_partner_passes(
    before: Matching, slot_window: Matching, after: Matching
) -> None:
    plan, switch = rail_plan(6).switches[0], FakeSwitch()
    macs = {port.number: port.mac for port in plan.ports}
    switch.take(flows.fill(plan, [c.ports for c in before], 1))
    switch.take(flows.darken(replace(darken(before, slot_window, 0.01), quiet=True), 2, macs))
    switch.take(flows.end_dark(7, 3))
    changed = before.changed_ports(slot_window)
    for port in changed:
        for other, mac in macs.items():
            assert switch.goes_to(port, mac) == (other if slot_window.peer(port) == other else None)
    switch.take(flows.darken(darken(slot_window, after, 0.0), 4, macs))
    for port in slot_window.changed_ports(after):
        assert {switch.goes_to(port, mac) for mac in macs.values()} == {after.peer(port)}, "nothing is left of the turn"


def test_an_electrical_switch_forwards_by_address() -> None:
    plan = rail_plan(3, kind="electrical").switches[0]
    switch = FakeSwitch()
    switch.take(flows.fill(plan, [], 1))
    for port in plan.ports:
        assert switch.goes_to(1, port.mac) == port.number
    assert switch.goes_to(1, "02:ff:ff:ff:ff:ff") is None


@pytest.mark.parametrize("changed", [b"", flows.output(3)], ids=["drops", "sends back"])
def test_a_circuit_whose_flow_a_person_has_changed_is_not_one_that_is_up(changed: bytes) -> None:
    switch = FakeSwitch()
    switch.take(flows.fill(rail_plan(6).switches[0], [(1, 2), (3, 4)], 1))
    assert flows.circuits_in(switch.statistics()) == ({Circuit(1, 2), Circuit(3, 4)}, set())
    priority, cookie = flows.CIRCUIT_PRIORITY, flows.CIRCUIT_COOKIE
    body = flows.flow_mod(flows.ADD, flows.match_in_port(3), changed, priority=priority, cookie=cookie)
    switch.take(flows.header(flows.TYPE_FLOW_MOD, 5, len(body)) + body)
    assert flows.circuits_in(switch.statistics()) == ({Circuit(1, 2)}, set())
