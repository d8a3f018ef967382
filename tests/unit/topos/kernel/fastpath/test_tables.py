from __future__ import annotations

import time
from typing import NamedTuple

import pytest
from fast_path.doubles import FakeForwarder
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import MachineError
from topos.kernel.fastpath import tables as under_test
from topos.kernel.fastpath.openflow import ADDED, INITIAL, MODIFIED, PORT_DOWN, REMOVED, FlowUpdate, SimpleMatch
from topos.kernel.fastpath.rules import DROP, OUT, TO_OVS, UP, Counts, KernelPort, PortRules
from topos.kernel.fastpath.tables import FlowTables, SimpleFlow

PORTS = (1, 2, 3)
LOCAL = 0xFFFFFFFE
MACS = tuple(bytes([2, 0, 0, 0, 0, n]) for n in range(3))
TYPES = (0x800, 0x806)
OTHER = -1
Key = tuple[int, int | None, bytes | None, int | None]


class Flow(NamedTuple):
    """A flow of OpenFlow; ``output`` as in ``FlowUpdate``."""

    priority: int
    in_port: int | None = None
    eth_dst: bytes | None = None
    eth_type: int | None = None
    output: int | None = None
    cookie: int = 0

    @property
    def key(self) -> Key:
        return self[:4]

    def takes(self, port: int, destination: bytes, kind: int) -> bool:
        wanted = self.in_port, self.eth_dst, self.eth_type
        return all(one in (None, found) for one, found in zip(wanted, (port, destination, kind), strict=True))

    def update(self, event: int, table: int = 0) -> FlowUpdate:
        match = SimpleMatch(self.in_port, self.eth_dst, others=self.eth_type is not None)
        return FlowUpdate(event, table, self.priority, self.cookie, repr(self.key).encode(), match, self.output)


class Switch:
    """Flow tables with a kernel, and beside them the flows as OpenFlow has them."""

    def __init__(self, slots: int = 1 << 10) -> None:
        self.kernel = FakeForwarder(slots)
        self.kernel.add([KernelPort("s1", port, port, 100 + port) for port in PORTS])
        self.tables = FlowTables("s1", PORTS, self.kernel)
        self.flows: dict[Key, Flow] = {}
        self.counted: dict[Key, int] = {}
        self.blocked: set[int] = set()

    def apply(self, event: int, flow: Flow) -> None:
        """A change as Open vSwitch reports it: flows that it lacks are neither changed nor removed."""
        if event == REMOVED and flow.key not in self.flows:
            return
        if event == MODIFIED and flow.key not in self.flows:
            event = ADDED
        flow = flow._replace(cookie=self.flows[flow.key].cookie) if event == REMOVED else flow
        self.tables.update(flow.update(event))
        if event == REMOVED:
            del self.flows[flow.key]
            self.counted.pop(flow.key, None)
            return
        self.flows[flow.key] = flow

    def best(self, port: int, destination: bytes, kind: int) -> list[Flow]:
        """The flows that OpenFlow's rules allow for a packet: those with the highest priority."""
        matching = [flow for flow in self.flows.values() if flow.takes(port, destination, kind)]
        return [flow for flow in matching if flow.priority == max(one.priority for one in matching)]

    def check(self, *, exact: bool = False) -> None:
        """Send all kinds of packets; each goes up or where OpenFlow sends it, and ``exact``: up only where it must."""
        for port in PORTS:
            for destination in (*MACS, b"\xff" * 6):
                rule = self.kernel.receive(port, destination)
                for kind in TYPES:
                    best = self.best(port, destination, kind)
                    if rule.kind != UP:
                        assert len(best) == 1, "two flows of one priority, or none"
                        assert rule[:2] == expressed(best[0])
                        assert not {port, rule.port} & self.blocked and not self.tables.suspended
                    elif exact:
                        assert not best or expressed(best[0]) is None or {port, best[0].output} & self.blocked
                if rule.kind != UP:
                    self.counted[best[0].key] = self.counted.get(best[0].key, 0) + 1
        for flow in self.flows.values():
            if flow.eth_type is None:
                counts = self.tables.counts_of(0, flow.priority, flow.in_port, flow.eth_dst)
                assert counts.packets == self.counted.get(flow.key, 0)


def expressed(flow: Flow) -> tuple[int, int] | None:
    """Kind and port of the rule for a flow; None if the fast path has none."""
    if flow.eth_type is not None or flow.output not in (None, *PORTS):
        return None
    return (DROP, 0) if flow.output is None else (OUT, flow.output)


OUTPUTS = st.sampled_from([None, *PORTS, *PORTS, OTHER, LOCAL])
SIMPLE = st.builds(
    Flow,
    st.integers(0, 3),
    st.sampled_from([None, *PORTS]),
    st.sampled_from([None, *MACS]),
    st.none(),
    OUTPUTS,
    st.integers(0, 2),
)
FLOWS = st.builds(lambda flow, kind: flow._replace(eth_type=kind), SIMPLE, st.sampled_from([None] * 9 + [0x800, 0x806]))
CHANGES = st.tuples(st.sampled_from([ADDED, ADDED, MODIFIED, REMOVED]), FLOWS)
OTHERS = st.tuples(st.just("block"), st.sampled_from(PORTS)) | st.tuples(st.just("suspend"), st.booleans())
STEPS = st.lists(st.one_of(*[CHANGES] * 9, OTHERS), max_size=12)


@given(st.lists(STEPS, max_size=6), st.integers(0, 12))
def test_every_packet_goes_up_or_where_openflow_sends_it(rounds: list[list[tuple[object, ...]]], slots: int) -> None:
    switch = Switch(slots)
    for steps in rounds:
        for kind, what in steps:
            if kind == "block":
                assert isinstance(what, int)
                switch.blocked ^= {what}
                switch.tables.port_configured(what, PORT_DOWN if what in switch.blocked else 0)
            elif kind == "suspend":
                switch.tables.suspend(bool(what))
            else:
                assert isinstance(kind, int) and isinstance(what, Flow)
                switch.apply(kind, what)
        switch.tables.commit()
        switch.check()
        live = {flow.slot for flow in switch.tables._flows.values() if flow.slot}
        assert live == switch.kernel.counted.keys(), "slots in use are those of live flows"
        assert len(live) == sum(bool(flow.slot) for flow in switch.tables._flows.values()), "no two flows share one"


@given(st.lists(SIMPLE, max_size=8), st.sets(st.sampled_from(PORTS), max_size=1))
def test_what_can_be_expressed_goes_the_fast_way(flows: list[Flow], blocked: set[int]) -> None:
    """Simple flows of different priorities: only packets without a flow go up, and those of other actions."""
    switch = Switch()
    for priority, flow in enumerate(flows):
        switch.apply(INITIAL, flow._replace(priority=priority))
    switch.blocked = blocked
    for port in blocked:
        switch.tables.port_configured(port, PORT_DOWN)
    switch.tables.commit()
    switch.check(exact=True)


def committed(*flows: Flow) -> Switch:
    switch = Switch()
    for flow in flows:
        switch.apply(ADDED, flow)
    switch.tables.commit()
    return switch


def test_flows_of_other_tables_and_events_without_flows_are_no_concern() -> None:
    switch = Switch()
    for table, event in ((1, ADDED), (0, 4), (0, 5), (0, 6)):
        switch.tables.update(Flow(1, 1, output=2).update(event, table))
    switch.tables.commit()
    assert not switch.kernel.sets and not list(switch.tables.each())
    switch.tables.update(Flow(1, 1, output=2).update(ADDED))
    switch.tables.commit()
    switch.kernel.receive(1, MACS[0])
    assert switch.tables.counts_of(0, 1, 1, None) == Counts(1, 100)
    assert switch.tables.counts_of(1, 1, 1, None) == switch.tables.counts_of(0, 2, 1, None) == Counts()


def test_only_ports_that_a_change_concerns_are_set_and_all_at_once() -> None:
    switch = committed(Flow(1, None, MACS[0], output=2))
    assert [rules.keys() for rules in switch.kernel.sets] == [set(PORTS)]
    assert len({id(switch.kernel.rules[port].to) for port in PORTS}) == 1, "one table for all"
    switch.apply(ADDED, Flow(2, 1, output=3))
    switch.apply(ADDED, Flow(2, 3, output=1))
    switch.apply(ADDED, Flow(2, LOCAL, output=1))
    switch.tables.commit()
    switch.tables.commit()
    assert [rules.keys() for rules in switch.kernel.sets[1:]] == [{1, 3}]


def test_last_counts_of_removed_flows_are_kept() -> None:
    switch = committed(Flow(1, 1, output=2, cookie=9))
    for _ in range(3):
        switch.kernel.receive(1, MACS[0])
    switch.apply(REMOVED, Flow(1, 1))
    switch.tables.commit()
    removed = switch.tables.removed_counts
    assert removed(1, 1, 1, None, 9) == removed(0, 1, 1, None, 8) == Counts()
    assert removed(0, 1, 1, None, 9) == Counts(3, 300)


def test_last_counts_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST_REMOVED", 2)
    switch = Switch()

    def remove(cookie: int) -> None:
        switch.apply(ADDED, Flow(1, 1, output=2, cookie=cookie))
        switch.tables.commit()
        switch.kernel.receive(1, MACS[0])
        switch.apply(REMOVED, Flow(1, 1))
        switch.tables.commit()

    def counts(cookie: int) -> int:
        return switch.tables.removed_counts(0, 1, 1, None, cookie).packets

    for cookie in (1, 2, 3):
        remove(cookie)
    assert [counts(cookie) for cookie in (1, 2, 3)] == [0, 1, 1]
    remove(2)
    remove(4)
    assert [counts(cookie) for cookie in (2, 3, 4)] == [1, 0, 1], "the oldest, whenever it came first"


def test_flows_are_listed_with_their_counts() -> None:
    switch = committed(
        Flow(1, 1, output=2, cookie=5), Flow(2, None, MACS[0]), Flow(3, eth_type=0x800), Flow(0, 2, output=OTHER)
    )
    switch.apply(REMOVED, Flow(3, eth_type=0x800))
    switch.tables.commit()
    switch.kernel.receive(1, MACS[0])
    assert sorted(switch.tables.each(), key=lambda flow: flow.priority) == [
        SimpleFlow(0, 0, 2, None, 0, None, Counts()),
        SimpleFlow(0, 1, 1, None, 5, 2, Counts()),
        SimpleFlow(0, 2, None, MACS[0], 0, None, Counts(1, 100)),
    ]


def test_a_refusal_leaves_everything_to_open_vswitch_for_ever() -> None:
    switch = committed(Flow(1, None, output=2))
    switch.kernel.refuses = True
    switch.apply(ADDED, Flow(2, 1, output=3))
    with pytest.raises(MachineError, match="the map is full"):
        switch.tables.commit()
    assert switch.kernel.rules == dict.fromkeys(PORTS, PortRules())
    switch.kernel.refuses = False
    switch.apply(REMOVED, Flow(1))
    switch.apply(ADDED, Flow(3, output=1))
    switch.tables.commit()
    assert switch.kernel.rules == dict.fromkeys(PORTS, PortRules())
    assert len(switch.kernel.counted) == 2, "the slot of the removed flow is free"


@pytest.mark.parametrize("configuration", [1 << 0, 1 << 2, 1 << 5])
def test_ports_that_a_controller_limits_are_open_vswitch_s(configuration: int) -> None:
    switch = committed(Flow(1, 1, output=2), Flow(1, 2, output=3))
    switch.tables.port_configured(77, configuration)
    switch.tables.port_configured(2, configuration)
    switch.tables.commit()
    assert [switch.kernel.receive(port, MACS[0]) for port in (1, 2)] == [TO_OVS, TO_OVS]
    switch.tables.port_configured(2, 1 << 6)
    switch.tables.commit()
    assert [switch.kernel.receive(port, MACS[0])[:2] for port in (1, 2)] == [(OUT, 2), (OUT, 3)]


def test_statistics_of_many_flows_take_no_search_through_all() -> None:
    switch = Switch(slots=20_000)
    macs = [n.to_bytes(6, "big") for n in range(20_000)]
    for mac in macs:
        switch.tables.update(Flow(5, None, mac, output=2).update(ADDED))
    start = time.process_time()
    counted = [switch.tables.counts_of(0, 5, None, mac) for mac in macs]
    assert time.process_time() - start < 1
    assert counted == [Counts()] * 20_000 and len(list(switch.tables.each())) == 20_000


LONG = Flow(9, in_port=1, output=2, cookie=77)


def lasting() -> Switch:
    """A switch whose only flow, by which a packet went, is removed and lasts in the kernel from the commit on."""
    switch = committed(LONG)
    switch.tables.lasting.committed(10.0)
    switch.kernel.receive(1, MACS[0])
    switch.tables.lasting.ask(77, 0.5, 10.1)
    switch.apply(REMOVED, LONG)
    return switch


def test_a_flow_that_lasts_in_the_kernel_is_removed_for_statistics() -> None:
    switch = lasting()
    switch.tables.commit()
    assert switch.kernel.receive(1, MACS[0]).kind == OUT, "it lasts"
    assert list(switch.tables.each()) == [] and switch.tables.counts_of(0, 9, 1, None) == (0, 0)
    assert switch.tables.removed_counts(0, 9, 1, None, 77) == (2, 200)
    switch.kernel.receive(1, MACS[0])
    switch.tables.end_lasting(10.5)
    switch.tables.commit()
    assert switch.kernel.receive(1, MACS[0]).kind == UP
    assert switch.tables.removed_counts(0, 9, 1, None, 77) == (3, 300)
    assert len(switch.kernel.free) == 1 << 10


def test_a_flow_in_place_of_one_that_lasts_has_counts_of_its_own() -> None:
    switch = lasting()
    switch.apply(ADDED, LONG._replace(output=3, cookie=78))
    switch.tables.commit()
    switch.check(exact=True)
    assert [one.cookie for one in switch.tables.each()] == [78]
    assert switch.tables.removed_counts(0, 9, 1, None, 77) == (1, 100)


class DarkSwitch(Switch):
    """A switch that keeps ports dark for 2 s; ``now`` is its clock."""

    now = 100.0

    def __init__(self, *circuits: tuple[int, int | None]) -> None:
        super().__init__()
        self.change(*circuits)
        self.tables.keep_dark(2.0)

    def change(self, *circuits: tuple[int, int | None], after: float = 0.0) -> None:
        """New outputs of ports, all at once (None: no flow)."""
        self.pass_time(after)
        for port, out in circuits:
            self.apply(REMOVED if out is None else ADDED, Flow(5, port, output=out))
        self.commit()

    def commit(self) -> None:
        self.tables.commit()
        self.tables.dark.committed(self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tables.end_lasting(self.now)
        self.commit()

    @property
    def lit(self) -> dict[int, int]:
        """Where packets come out, by port."""
        rules = {port: self.kernel.receive(port, MACS[0]) for port in PORTS}
        return {port: rule.port for port, rule in rules.items() if rule.kind == OUT}

    @property
    def dark(self) -> set[int]:
        return {port for port in PORTS if self.kernel.receive(port, MACS[0]).kind == DROP}


def test_ports_are_dark_from_a_change_of_their_circuit_on() -> None:
    switch = DarkSwitch((1, 2), (2, 1))
    assert switch.lit == {1: 2, 2: 1}, "what was there is lit"
    switch.change((1, 3), (3, 1), (2, None), after=1.0)
    assert switch.dark == {1, 2, 3} and switch.tables.dark.awaited() == {1, 3}, "nobody waits for light on port 2"
    assert switch.tables.dark.next_end() == 103.0
    switch.pass_time(1.9)
    assert not switch.lit
    switch.pass_time(0.11)
    assert switch.lit == {1: 3, 3: 1} and not switch.dark and switch.tables.dark.next_end() is None


def test_a_first_circuit_and_one_that_comes_back_have_dark_times() -> None:
    switch = DarkSwitch()
    switch.change((1, 2))
    assert switch.dark == {1, 2} and switch.tables.dark.awaited() == {1, 2}
    switch.pass_time(2.0)
    switch.change((1, None))
    assert switch.dark == {1} and not switch.tables.dark.awaited()
    switch.change((1, 2), after=5.0)
    assert switch.dark == {1, 2}


def test_a_further_change_begins_the_dark_time_of_its_ports_again_and_not_that_of_others() -> None:
    switch = DarkSwitch()
    switch.change((1, 2), (3, OTHER))
    switch.change((1, 3), after=1.5)
    switch.pass_time(0.5)
    assert switch.dark == {1, 3}, "port 2 has waited long enough"
    switch.pass_time(1.5)
    assert switch.lit == {1: 3}


def test_what_leads_to_a_dark_port_passes_nothing() -> None:
    switch = DarkSwitch((1, 2), (2, 1), (3, 1))
    switch.change((1, 3))
    assert switch.dark == {1, 2, 3}
    switch.pass_time(2.0)
    assert switch.lit == {1: 3, 2: 1, 3: 1}


@pytest.mark.parametrize(
    "flow",
    [Flow(5, 1, output=2, cookie=9), Flow(9, 1, output=2), Flow(0, output=None), Flow(0, output=OTHER), Flow(9, 2)],
    ids=["the same", "another priority", "drop all else", "table miss", "drop where nothing passed"],
)
def test_what_changes_no_way_has_no_dark_time(flow: Flow) -> None:
    switch = DarkSwitch((1, 2))
    switch.apply(ADDED, flow)
    switch.commit()
    assert switch.lit == {1: 2} and switch.tables.dark.next_end() is None


@pytest.mark.parametrize("flow", [Flow(9, 1), Flow(9, 1, output=OTHER), Flow(9, 1, eth_type=0x800, output=3)])
def test_flows_of_any_kind_change_the_way(flow: Flow) -> None:
    switch = DarkSwitch((1, 2))
    switch.apply(ADDED, flow)
    switch.commit()
    assert 1 in switch.dark and not switch.lit
    switch.pass_time(2.0)
    assert switch.kernel.receive(1, MACS[0]).kind == (DROP if flow.output is None else UP)


def test_the_end_of_all_dark_times_and_another_length() -> None:
    switch = DarkSwitch()
    switch.change((1, 2))
    assert switch.tables.keep_dark(5.0) == set()
    switch.change((3, OTHER), after=1.0)
    assert switch.tables.dark.next_end() == 102.0, "a dark time that has begun is not prolonged"
    switch.pass_time(1.0)
    assert switch.lit == {1: 2} and switch.dark == {3}
    assert switch.tables.keep_dark(0.0) == {3}
    switch.commit()
    switch.change((1, 3))
    assert switch.lit == {1: 3}
