"""The fast path forwards as Open vSwitch alone does: random flow tables, random packets, the same ways and counts."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openflow.twins import EMPTY, ETHERTYPES, MARK, OFPROTO, PARSER, Message, Twin, Twins, flow, frame, twins

pytestmark = [pytest.mark.root, pytest.mark.beside]

PORTS = (1, 2, 3, 4)
ADDRESSES = ("02:00:00:00:00:01", "02:00:00:00:00:02", "01:80:c2:00:00:00", "ff:ff:ff:ff:ff:ff")
SENDERS = ("0a:00:00:00:00:01", "0a:00:00:00:00:02")
FLOOD, ALL, IN_PORT, CONTROLLER = OFPROTO.OFPP_FLOOD, OFPROTO.OFPP_ALL, OFPROTO.OFPP_IN_PORT, OFPROTO.OFPP_CONTROLLER
BOTH_GROUP, ONE_GROUP, METER = 1, 2, 1
SO_RCVBUFFORCE = 33
TAGS = itertools.count(1)


@pytest.fixture(scope="module")
def fabric() -> Iterator[Twins]:
    with twins("ovs", "bpf") as made:
        yield made


def outputs(*ports: int) -> list[Any]:
    return [PARSER.OFPActionOutput(port, OFPROTO.OFPCML_NO_BUFFER) for port in ports]


def applied(actions: list[Any], kind: int = OFPROTO.OFPIT_APPLY_ACTIONS) -> list[Any]:
    return [PARSER.OFPInstructionActions(kind, actions)]


port = st.sampled_from(PORTS)
simple_matches = st.fixed_dictionaries({}, optional={"in_port": port, "eth_dst": st.sampled_from(ADDRESSES)})
other_matches = st.fixed_dictionaries(
    {},
    optional={
        "in_port": port,
        "eth_dst": st.sampled_from([*ADDRESSES, ("02:00:00:00:00:00", "ff:ff:ff:ff:ff:00")]),
        "eth_src": st.sampled_from(SENDERS),
        "eth_type": st.sampled_from(ETHERTYPES),
    },
)
matches = st.one_of(simple_matches, simple_matches, other_matches)

simple_instructions = st.one_of(
    st.just([]),
    port.map(lambda p: applied(outputs(p))),
    port.map(lambda p: applied(outputs(p), OFPROTO.OFPIT_WRITE_ACTIONS)),
)
other_instructions = st.one_of(
    st.tuples(port, port).map(lambda ports: applied(outputs(*ports))),
    st.sampled_from([FLOOD, ALL, IN_PORT, CONTROLLER]).map(lambda p: applied(outputs(p))),
    port.map(lambda p: applied([PARSER.OFPActionSetField(eth_src="0e:00:00:00:00:01"), *outputs(p)])),
    port.map(lambda p: applied(outputs(p, CONTROLLER))),
    st.sampled_from([BOTH_GROUP, ONE_GROUP]).map(lambda g: applied([PARSER.OFPActionGroup(g)])),
    port.map(lambda p: [PARSER.OFPInstructionMeter(METER), *applied(outputs(p))]),
)
first_instructions = st.one_of(
    simple_instructions,
    simple_instructions,
    other_instructions,
    st.just([PARSER.OFPInstructionGotoTable(1)]),
)
second_instructions = st.one_of(simple_instructions, other_instructions)
extras = st.sampled_from(
    [
        {},
        {"cookie": 1},
        {"cookie": 2},
        {"idle_timeout": 60},
        {"hard_timeout": 60},
        {"flags": OFPROTO.OFPFF_RESET_COUNTS},
    ]
)
filters: st.SearchStrategy[dict[str, int]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {}, optional={"out_port": port, "cookie": st.integers(0, 3), "cookie_mask": st.integers(0, 3)}
    ),
)


@st.composite
def additions(draw: st.DrawFn) -> list[Message]:
    """Flows of different priorities, and at one priority circuits between ports or a table of addresses.

    One flow that the fast path cannot express takes all below it away from the fast path, so half of the tables are
    without, and some have their circuits above.
    """
    made = []
    plain = draw(st.booleans())
    for priority in draw(st.lists(st.integers(1, 40), max_size=6, unique=True)):
        table = 0 if plain else draw(st.sampled_from([0, 0, 0, 1]))
        kinds = simple_instructions if plain else first_instructions if table == 0 else second_instructions
        match = draw(simple_matches if plain else matches)
        made.append(flow(table, priority * 2, match, draw(kinds), **draw(extras)))
    level = draw(st.integers(0, 60)) * 2 + 1
    block = draw(st.sampled_from(["none", "circuits", "addresses", "pairs"]))
    for number, target in enumerate(draw(st.permutations(PORTS)), 1):
        address = ADDRESSES[number - 1]
        pairing: Any = {"circuits": {"in_port": number}, "addresses": {"eth_dst": address}}.get(
            block, {"in_port": number, "eth_dst": address}
        )
        if block != "none":
            made.append(flow(0, level, pairing, applied(outputs(target))))
    return made


@st.composite
def changes(draw: st.DrawFn) -> list[Message]:
    """What is done to the tables between two bursts of packets."""
    made = draw(additions())
    kind = draw(st.sampled_from(["none", "delete", "modify"]))
    match, target = draw(simple_matches), dict[str, Any]()
    if strict := bool(made) and draw(st.booleans()):  # one flow, else all flows that the match covers
        chosen = draw(st.sampled_from(made))[1]
        target = {key: chosen[key] for key in ("table_id", "priority", "match")}
    if kind == "delete":
        target["command"] = OFPROTO.OFPFC_DELETE_STRICT if strict else OFPROTO.OFPFC_DELETE
        table = draw(st.sampled_from([0, OFPROTO.OFPTT_ALL]))
        name, mod = flow(table, 0, match, [], **draw(filters))
        made.append((name, mod | target))
    elif kind == "modify":
        target["command"] = OFPROTO.OFPFC_MODIFY_STRICT if strict else OFPROTO.OFPFC_MODIFY
        instructions = draw(simple_instructions if target.get("table_id") else first_instructions)
        name, mod = flow(0, 0, match, instructions, **draw(extras))
        made.append((name, mod | target))
    return made


packets = st.lists(
    st.tuples(
        port,
        st.sampled_from(ADDRESSES),
        st.sampled_from(SENDERS),
        st.sampled_from(ETHERTYPES),
        st.sampled_from([22, 60, 61, 100, 1514]),
        st.sampled_from([None, None, None, 5]),
    ),
    min_size=4,
    max_size=16,
)

NO_RECV, NO_FWD = OFPROTO.OFPPC_NO_RECV, OFPROTO.OFPPC_NO_FWD
configurations = st.one_of(st.just({}), st.dictionaries(port, st.sampled_from([NO_RECV, NO_FWD]), max_size=2))

asked = st.tuples(matches, filters)

MARKED = flow(0, 65535, {"eth_dst": MARK}, applied(outputs(CONTROLLER)))
NEW: list[Message] = [
    EMPTY,
    ("OFPGroupMod", {"command": OFPROTO.OFPGC_DELETE, "group_id": OFPROTO.OFPG_ALL}),
    ("OFPMeterMod", {"command": OFPROTO.OFPMC_DELETE, "meter_id": OFPROTO.OFPM_ALL, "flags": OFPROTO.OFPMF_PKTPS}),
    (
        "OFPGroupMod",
        {
            "type_": OFPROTO.OFPGT_ALL,
            "group_id": BOTH_GROUP,
            "buckets": [PARSER.OFPBucket(actions=outputs(p)) for p in (1, 3)],
        },
    ),
    (
        "OFPGroupMod",
        {
            "type_": OFPROTO.OFPGT_INDIRECT,
            "group_id": ONE_GROUP,
            "buckets": [PARSER.OFPBucket(actions=outputs(2))],
        },
    ),
    (
        "OFPMeterMod",
        {
            "flags": OFPROTO.OFPMF_PKTPS,
            "meter_id": METER,
            "bands": [PARSER.OFPMeterBandDrop(rate=1_000_000, burst_size=1_000_000)],
        },
    ),
]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(changes(), st.booleans(), configurations, packets), min_size=1, max_size=3), asked=asked
)
def test_packets_go_the_same_ways_and_are_counted_the_same(
    fabric: Twins, steps: list[tuple[Any, ...]], asked: tuple[Any, Any]
) -> None:
    fabric.configure({}, NO_RECV | NO_FWD)
    fabric.tell(*NEW)
    fabric.forget()
    before = [(twin.port_counts(), twin.table_counts()) for twin in fabric.twins]
    for messages, bundled, configured, burst in steps:
        fabric.configure(configured, NO_RECV | NO_FWD)
        fabric.tell(*messages, MARKED, bundled=bundled)
        reference, other = fabric.twins
        # Neither filters of traffic control nor the internal ports of the kernel's datapath count a VLAN tag.
        tags = other.net.datapath == "bpf" and reference.net.forwarding["open_vswitch"] == "userspace"
        fabric.pour(
            (number, frame(next(TAGS), to, sender, kind, length, vlan if tags else None))
            for number, to, sender, kind, length, vlan in burst
        )
        assert other.arrived == reference.arrived
        assert other.packets_in == reference.packets_in
        for twin in fabric.twins:
            twin.forget_caches()
        assert other.flow_counts() == reference.flow_counts()
        match, more = asked
        found = [twin.aggregate(match=PARSER.OFPMatch(**match), **more) for twin in fabric.twins]
        assert found[1] == found[0]
    grown = [
        (
            ports_grown(ports, twin.port_counts()),
            [(b[0] - a[0], b[1] - a[1]) for a, b in zip(tables, twin.table_counts(), strict=True)],
        )
        for twin, (ports, tables) in zip(fabric.twins, before, strict=True)
    ]
    assert grown[1] == grown[0]


def ports_grown(before: dict[int, Any], after: dict[int, Any]) -> dict[int, tuple[int, ...]]:
    return {number: tuple(b - a for a, b in zip(before[number], after[number], strict=True)) for number in after}


class Load:
    """A thread that sends frames from all ports of a bridge in turn, each with the next number, one after the other."""

    def __init__(self, twin: Twin) -> None:
        self.sent = 0
        self._twin = twin
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Load:
        for sock in self._twin.sockets.values():
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)

    def _send(self) -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # a core forwards its frames in their order
        sockets = list(self._twin.sockets.values())
        while not self._end.is_set():
            sockets[self.sent % len(sockets)].send(frame(self.sent, ADDRESSES[3], SENDERS[0], ETHERTYPES[0]))
            self.sent += 1


def matchings(count: int, size: int) -> list[dict[int, int]]:
    """Matchings of ``size`` ports in pairs, no two in a row with a common pair."""
    ports, made = list(range(1, size + 1)), []
    for number in range(count):
        turned = ports[:1] + ports[1 + number % (size - 1) :] + ports[1 : 1 + number % (size - 1)]
        pairs = [(turned[place], turned[-1 - place]) for place in range(size // 2)]
        made.append({a: b for pair in pairs for a, b in (pair, pair[::-1])})
    return made


def test_a_bundle_swaps_whole_matchings_under_load() -> None:
    """Each frame goes by the matching before the bundle or the one after it, and by none before once it is confirmed.

    The matchings are exchanged at once: as soon as a frame has gone the new way, all do.
    """
    size, swaps = 8, matchings(24, 8)
    with twins("bpf", ports=size) as made:
        (twin,) = made.twins
        swap(twin, swaps[0])
        before = sum(packets for packets, *_ in twin.port_counts().values())
        windows: list[tuple[int, int]] = []
        with Load(twin) as load:
            for matching in swaps[1:]:
                begun = load.sent
                while load.sent < begun + 4 * size:
                    time.sleep(0.0005)
                begun = load.sent
                swap(twin, matching)
                windows.append((begun, load.sent))
            time.sleep(0.01)
        ways = arrivals(twin, load.sent)
        counted = sum(packets for packets, _ in twin.flow_counts().values())
        received = sum(packets for packets, *_ in twin.port_counts().values()) - before
    assert len(ways) == load.sent, "every port has a circuit at all times, so every frame arrives"
    newest = dict.fromkeys(range(load.sent), 0)
    for tag, way in sorted(ways.items()):
        ended = sum(confirmed < tag for _, confirmed in windows)
        begun = sum(start <= tag for start, _ in windows)
        went = [number for number in range(ended, begun + 1) if swaps[number][tag % size + 1] == way]
        assert went, f"frame {tag} of port {tag % size + 1} went to {way}"
        newest[tag] = went[0]
    assert counted == received == load.sent, "a flow keeps its counts when another replaces it"
    order = [newest[tag] for tag in sorted(newest)]
    assert order == sorted(order)


def swap(twin: Twin, matching: dict[int, int]) -> None:
    """Exchange all circuits in one bundle, and return when the barrier behind it is answered."""
    twin.client.bundle([flow(0, 10, {"in_port": port}, applied(outputs(peer))) for port, peer in matching.items()])


def arrivals(twin: Twin, count: int) -> dict[int, int]:
    """The port at which each frame arrived, by its number; no frame may arrive twice."""
    found: dict[int, int] = {}
    while len(found) < count and twin.collect(1.0):
        for (number, _, data), times in twin.arrived.items():
            tag = int.from_bytes(data[18:22], "big")
            assert times == 1 and tag not in found
            found[tag] = number
        twin.arrived.clear()
    return found
