from __future__ import annotations

import time
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.openflow import FlowUpdate, Match
from topos.kernel.fastpath.rules import DROP, OUT, UP, Counts, PortCounts, PortRules, Rule
from topos.kernel.fastpath.tables import FlowTables

PORTS = (1, 2)
MACS = tuple(bytes([2, 0, 0, 0, 0, n]) for n in range(2))
MANY = 20_000


class Kernel:
    """A forwarder that keeps the rules; each slot has counted as many packets as its number says."""

    def __init__(self) -> None:
        self.rules = {port: PortRules() for port in PORTS}
        self.used: set[int] = set()
        self.next = 0

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        self.rules |= rules

    def new_flow(self) -> int:
        self.next += 1
        self.used.add(self.next)
        return self.next

    def free_flow(self, flow: int) -> None:
        self.used.remove(flow)

    def flow_counts(self, flow: int) -> Counts:
        return Counts(flow, 100 * flow)

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        return {}

    def add(self, ports: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def decides(self, port: int, mac: bytes) -> Rule:
        rules = self.rules[port]
        return rules.to.get(mac, rules.other)


class Flow(FlowUpdate):
    """A flow as it is added; ``key`` is by what Open vSwitch knows it."""

    @property
    def key(self) -> tuple[int, bytes]:
        return self.priority, self.match_bytes

    def may_match(self, port: int, mac: bytes) -> bool:
        return self.match.in_port in (None, port) and self.match.eth_dst in (None, mac)


def flow(priority: int, in_port: int | None, mac: bytes | None, output: int | None, simple: bool = True) -> Flow:
    match = Match(simple, in_port, mac)
    return Flow(openflow.ADDED, 0, priority, 0, repr(match).encode(), match, output)


flows = st.builds(
    flow,
    st.integers(0, 2),
    st.sampled_from([None, *PORTS]),
    st.sampled_from([None, *MACS]),
    st.sampled_from([1, 2, None, -1, 77]),
    st.sampled_from([True] * 9 + [False]),
)
steps = st.lists(st.tuples(st.booleans(), flows, st.booleans()), min_size=2, max_size=12)


def expected(known: Mapping[tuple[int, bytes], Flow], port: int, mac: bytes) -> int | None:
    """Where a packet goes: a port, 0 if it is dropped; None if that is for Open vSwitch to say."""
    able = sorted((one for one in known.values() if one.may_match(port, mac)), key=lambda one: -one.priority)
    if not able or not able[0].match.simple or (len(able) > 1 and able[1].priority == able[0].priority):
        return None
    output = able[0].output
    return 0 if output is None else output if output in PORTS else None


def check(kernel: Kernel, known: Mapping[tuple[int, bytes], Flow]) -> None:
    """What the kernel decides by itself is what Open vSwitch would do; the rest it passes on."""
    odd = any(not one.match.simple for one in known.values())
    for port in PORTS:
        for mac in (*MACS, b"\xff" * 6):
            rule, right = kernel.decides(port, mac), expected(known, port, mac)
            if rule.kind == UP:
                assert odd or right is None, (port, mac, "could have been decided")
            else:
                assert right == (0 if rule.kind == DROP else rule.port), (port, mac, rule)


@settings(max_examples=200)
@given(steps)
def test_the_kernel_decides_as_open_vswitch_or_not_at_all(changes: list[tuple[bool, Flow, bool]]) -> None:
    kernel = Kernel()
    tables = FlowTables("s1", PORTS, kernel)
    known: dict[tuple[int, bytes], Flow] = {}
    for remove, one, at_once in changes:
        if remove and known:
            key = sorted(known)[one.priority % len(known)]
            tables.update(known.pop(key)._replace(event=openflow.REMOVED))
        else:
            event = openflow.MODIFIED if one.key in known else openflow.ADDED
            tables.update(one._replace(event=event))
            known[one.key] = one
        if at_once:
            tables.commit()
            check(kernel, known)
    tables.commit()
    check(kernel, known)
    named = {rule.flow for rules in kernel.rules.values() for rule in (rules.other, *rules.to.values())}
    assert named - {0} <= kernel.used, "a rule counts for a slot that was given back"
    assert len(kernel.used) <= len(known), "a slot of a flow that is gone was not given back"


def test_statistics_of_many_flows_take_no_search_through_all() -> None:
    kernel = Kernel()
    tables = FlowTables("s1", PORTS, kernel)
    macs = [n.to_bytes(6, "big") for n in range(MANY)]
    for mac in macs:
        tables.update(flow(5, None, mac, 2))
    start = time.process_time()
    counted = {tables.counts_of(0, 5, None, mac).packets for mac in macs}
    assert counted == set(range(1, MANY + 1))
    assert time.process_time() - start < 1
    assert tables.counts_of(0, 6, None, macs[0]) == tables.counts_of(1, 5, None, macs[0]) == Counts()
    assert sum(one.counts.packets for one in tables.each()) == MANY * (MANY + 1) // 2


def test_a_kernel_that_is_full_leaves_the_switch_to_open_vswitch() -> None:
    class Full(Kernel):
        full = False

        def new_flow(self) -> int:
            return 0 if self.full else super().new_flow()

    kernel = Full()
    tables = FlowTables("s1", PORTS, kernel)
    tables.update(flow(5, 1, None, 2))
    kernel.full = True
    tables.update(flow(5, 2, None, 1))
    tables.commit()
    assert kernel.decides(1, MACS[0]).kind == OUT
    assert kernel.decides(2, MACS[0]).kind == UP, "no slot was left to count its packets"
