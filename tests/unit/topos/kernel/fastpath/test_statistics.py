"""Replies that Open vSwitch has sent, with the fast path's counts added, as the framework's parsers read them.

The bridge had two ports and these flows (cookies 5, 6 and 0):

    priority 7, in_port=1                       to port 2     priority 2, all              to port 1
    priority 9, in_port=2, eth_dst=..:01        to port 1     priority 11, in_port, eth_src dropped
    priority 8, eth_dst=..:02                   dropped       table 3, priority 7, in_port=1 dropped
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fast_path.doubles import FakeForwarder
from hypothesis import given
from hypothesis import strategies as st
from openflow.decoding import VERSIONS, connection, counts, decode, encode

from controllers.openflow.flows import bundle
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.openflow import FlowUpdate, SimpleMatch
from topos.kernel.fastpath.rules import Counts, PortCounts
from topos.kernel.fastpath.statistics import OpenResets, Statistics, resets
from topos.kernel.fastpath.tables import FlowTables, Reset, SimpleFlow

REPLIES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "replies.json").read_text())
ONE, TWO = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
FLOWS = (
    (0, 7, 1, None, 5, 2, Counts(10, 1_000)),
    (0, 9, 2, ONE, 6, 1, Counts(20, 2_000)),
    (0, 8, None, TWO, 0, None, Counts(40, 4_000)),
    (0, 2, None, None, 0, 1, Counts(80, 8_000)),
)
ALL = (150, 15_000)
REMOVED = Counts(5, 500)
STATISTICS = [(version, "flow") for version in VERSIONS] + [("1.0", "nx_flow")]


class FakeFlows(FlowTables):
    """A bridge whose fast path forwarded what ``FLOWS`` says."""

    port_names: Mapping[str, str] = {"s1-eth1": "veth-of-one", "s1-eth2": "exactly-15-char"}
    port_speeds: Mapping[str, int] = {}

    def __init__(self) -> None:
        self.removed: dict[tuple[object, ...], Counts] = {(0, 20, 1, None, 77): REMOVED}
        self.resets: list[Reset] = []

    def reset(self, reset: Reset) -> Callable[[], object]:
        self.resets.append(reset)
        return partial(self.resets.remove, reset)

    def counts_of(self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None) -> Counts:
        found = [flow[-1] for flow in FLOWS if flow[:4] == (table, priority, in_port, eth_dst)]
        return found[0] if found else Counts()

    def removed_counts(
        self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None, cookie: int
    ) -> Counts:
        return self.removed.pop((table, priority, in_port, eth_dst, cookie), Counts())

    def each(self) -> Iterator[SimpleFlow]:
        yield from (SimpleFlow(*flow) for flow in FLOWS)

    def port_counts(self) -> dict[int, PortCounts]:
        return {
            1: PortCounts(Counts(100, 10_000), Counts(200, 20_000), Counts(5, 500)),
            2: PortCounts(Counts(300, 30_000), Counts(400, 40_000), Counts(0, 0)),
        }


def reply(version: str, kind: str) -> bytes:
    return bytes.fromhex(REPLIES[version][kind])


def both(version: str, kind: str) -> tuple[Any, Any]:
    """What a client reads without and with the fast path's counts."""
    message = reply(version, kind)
    rewriting = Statistics(FakeFlows())
    assert rewriting.concerns(message)
    return decode(version, message), decode(version, rewriting.answered(message))


def added(before: Any, after: Any) -> tuple[int, int]:
    (packets, size), (more_packets, more_size) = counts(before), counts(after)
    return more_packets - packets, more_size - size


@pytest.mark.parametrize(("version", "kind"), STATISTICS)
def test_flow_statistics(version: str, kind: str) -> None:
    before, after = both(version, kind)
    found = {(a.table_id, a.priority): added(b, a) for b, a in zip(before.body, after.body, strict=True)}
    expected = {(flow[0], flow[1]): tuple(flow[-1]) for flow in FLOWS}
    assert found == expected | {(0, 11): (0, 0), (3, 7): (0, 0)}


@pytest.mark.parametrize(("version", "kind"), [(v, "removed") for v in VERSIONS] + [("1.0", "nx_removed")])
def test_flow_removed(version: str, kind: str) -> None:
    before, after = both(version, kind)
    assert added(before, after) == REMOVED
    assert (after.cookie, after.priority) == (77, 20)


def test_flow_removed_of_openflow_1_1_has_the_match_in_a_structure() -> None:
    message = reply("1.1", "removed")
    assert struct.unpack_from("!H", message, 48) == (0,)
    after = Statistics(FakeFlows()).answered(message)
    assert struct.unpack_from("!QQ", after, 32) == (5, 500)
    assert after[:32] == message[:32] and after[48:] == message[48:]


@pytest.mark.parametrize("version", VERSIONS)
def test_port_statistics(version: str) -> None:
    before, after = both(version, "port")
    found = {}
    for b, a in zip(before.body, after.body, strict=True):
        names = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
        found[a.port_no & 0xFFFF] = tuple(getattr(a, name) - getattr(b, name) for name in names)
        assert (a.rx_dropped, a.tx_dropped, a.rx_errors) == (b.rx_dropped, b.tx_dropped, b.rx_errors)
    assert found == {1: (100, 10_000, 200, 20_000), 2: (300, 30_000, 400, 40_000), 0xFFFE: (0, 0, 0, 0)}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_open_vswitch_counted_at_the_other_end_is_exchanged(version: str) -> None:
    """And what was forwarded beside it is not."""
    _, plain = both(version, "port")
    flows = FakeFlows()
    flows.counts_exchanged = True
    before, after = (
        decode(version, message) for message in (reply(version, "port"), flows_say(flows, version, "port"))
    )
    for b, p, a in zip(before.body, plain.body, after.body, strict=True):
        ours = a.port_no & 0xFFFF != 0xFFFE
        for unit, header in (("packets", 0), ("bytes", 14 * b.rx_packets), ("dropped", 0), ("errors", 0)):
            received, sent = f"rx_{unit}", f"tx_{unit}"
            exchanged = ours * (getattr(b, sent) - getattr(b, received))
            assert getattr(a, received) == getattr(p, received) + exchanged
            assert getattr(a, sent) == getattr(p, sent) - exchanged + ours * header


@pytest.mark.parametrize("version", VERSIONS)
def test_table_statistics(version: str) -> None:
    before, after = both(version, "table")
    found = [
        (a.lookup_count - b.lookup_count, a.matched_count - b.matched_count)
        for b, a in zip(before.body, after.body, strict=True)
    ]
    assert found == [(400, 400), (0, 0)]


def names_in(version: str, kind: str, message: bytes) -> list[str]:
    """Names of ports, wherever a message has some."""
    first = {"features": 32, "port_status": 16}.get(kind, 12 if version == "1.0" else 16)
    entry = 1 << 16 if kind == "port_status" else 48 if version == "1.0" else 64 if version < "1.4" else 72
    name = 8 if version == "1.0" else 16
    places = range(first, len(message), entry)
    return [message[at + name : at + name + 16].rstrip(b"\0").decode() for at in places]


@pytest.mark.parametrize("version", REPLIES)
@pytest.mark.parametrize("kind", ["features", "port_status", "port_description"])
def test_ports_have_the_names_of_the_veths(version: str, kind: str) -> None:
    message, rewriting = reply(version, kind), Statistics(FakeFlows())
    after = rewriting.answered(message)
    if kind == "features" and version >= "1.3":  # it has no ports
        assert after == message and not rewriting.concerns(message)
        return
    assert rewriting.concerns(message)
    expected = ["s1", "veth-of-one", "exactly-15-char"] if kind != "port_status" else ["veth-of-one"]
    assert names_in(version, kind, after) == expected
    if version in VERSIONS and (version, kind) not in (("1.0", "port_description"), ("1.2", "port_description")):
        decode(version, after)


@pytest.mark.parametrize(
    ("kbps", "features", "in_1_0"),
    [
        (100_000, 1 << 3, 1 << 3),
        (25_000, 1 << 10, 1 << 1),
        (400_000_000, 1 << 10, 1 << 6),
        (40_000_000, 1 << 7, 1 << 6),
    ],
)
@pytest.mark.parametrize(("version", "kind"), [("1.0", "features"), *((v, "port_status") for v in VERSIONS)])
def test_ports_tell_their_speed(version: str, kind: str, kbps: int, features: int, in_1_0: int) -> None:
    flows = FakeFlows()
    flows.port_speeds = {"s1-eth1": kbps}
    before, after = (decode(version, message) for message in (reply(version, kind), flows_say(flows, version, kind)))
    other, one = (found.ports[1] if kind == "features" else found.desc for found in (before, after))
    if version >= "1.4":
        other, one = other.properties[0], one.properties[0]
    assert one.curr == (in_1_0 if version == "1.0" else features)
    assert version == "1.0" or (one.curr_speed, one.max_speed) == (kbps, kbps)
    assert (one.advertised, one.supported, one.peer) == (other.advertised, other.supported, other.peer)
    if kind == "features":
        assert after.ports[2].curr == before.ports[2].curr, "no other port changes"


def flows_say(flows: FakeFlows, version: str, kind: str) -> bytes:
    return Statistics(flows).answered(reply(version, kind))


@pytest.mark.parametrize(("version", "kind"), [(v, "aggregate") for v in VERSIONS] + [("1.0", "nx_aggregate")])
def test_aggregates_of_everything(version: str, kind: str) -> None:
    rewriting = Statistics(FakeFlows())
    message = reply(version, kind)
    before = decode(version, message)
    assert rewriting.concerns(message)
    assert rewriting.answered(message) == message, "nothing was asked for"
    rewriting.asked(request(version, kind == "nx_aggregate", decode(version, message).xid))
    after = decode(version, rewriting.answered(message))
    assert added(*(data.body[0] if version == "1.0" else data.body for data in (before, after))) == ALL
    assert rewriting.answered(message) == message, "each request has one reply"


def request(version: str, nicira: bool, xid: int, **asked: Any) -> bytes:
    """An aggregate request; ``asked`` has in_port, eth_dst, mask, eth_type, table, out_port, cookie, cookie_mask."""
    link = connection(version)
    parser, ofproto = link.ofproto_parser, link.ofproto
    in_port, eth_dst, mask = asked.get("in_port"), asked.get("eth_dst"), asked.get("mask")
    table, out_port = asked.get("table", 255), asked.get("out_port")
    if version == "1.0":
        from os_ken.ofproto import nx_match

        if nicira:
            rule = nx_match.ClsRule()
            if in_port is not None:
                rule.set_in_port(in_port)
            if eth_dst is not None:
                rule.set_dl_dst_masked(eth_dst, mask) if mask else rule.set_dl_dst(eth_dst)
            if "eth_type" in asked:
                rule.set_dl_type(asked["eth_type"])
            port = ofproto.OFPP_NONE if out_port is None else out_port
            return encode(parser.NXAggregateStatsRequest(link, 0, port, table, rule), xid)
        fields = {"in_port": in_port, "dl_dst": eth_dst, "dl_type": asked.get("eth_type")}
        match = parser.OFPMatch(**{name: value for name, value in fields.items() if value is not None})
        port = ofproto.OFPP_NONE if out_port is None else out_port
        return encode(parser.OFPAggregateStatsRequest(link, 0, match, table, port), xid)
    fields = {"in_port": in_port, "eth_type": asked.get("eth_type")}
    if eth_dst is not None:
        fields["eth_dst"] = (colons(eth_dst), colons(mask)) if mask else colons(eth_dst)
    match = parser.OFPMatch(**{name: value for name, value in fields.items() if value is not None})
    port = ofproto.OFPP_ANY if out_port is None else out_port
    rest = table, port, asked.get("group", ofproto.OFPG_ANY), asked.get("cookie", 0), asked.get("cookie_mask", 0)
    if version == "1.2":
        return encode(parser.OFPAggregateStatsRequest(link, *rest, match), xid)
    return encode(parser.OFPAggregateStatsRequest(link, 0, *rest, match), xid)


def colons(address: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in address)


ADDRESSES = st.sampled_from([ONE, TWO])
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "in_port": st.integers(1, 2),
        "eth_dst": ADDRESSES,
        "mask": st.sampled_from([b"\xff" * 6, b"\xff" * 5 + b"\0", b"\xff" * 5 + b"\2"]),
        "eth_type": st.just(0x800),
        "table": st.sampled_from([0, 1, 255]),
        "out_port": st.integers(1, 2),
        "group": st.just(3),
        "cookie": st.integers(4, 7),
        "cookie_mask": st.integers(0, 3),
    },
)


def selects(asked: Mapping[str, Any], flow: tuple[Any, ...]) -> bool:
    """The filter of OpenFlow, once more and one by one."""
    table, _, in_port, eth_dst, cookie, out_port, _ = flow
    if "eth_type" in asked or "group" in asked or asked.get("table", 255) not in (table, 255):
        return False
    if asked.get("in_port", in_port) != in_port or asked.get("out_port", out_port) != out_port:
        return False
    mask = asked.get("cookie_mask", 0)
    if cookie & mask != asked.get("cookie", 0) & mask:
        return False
    if "eth_dst" not in asked:
        return True
    bits = int.from_bytes(asked.get("mask", b"\xff" * 6), "big")
    return eth_dst is not None and not (int.from_bytes(asked["eth_dst"], "big") ^ int.from_bytes(eth_dst, "big")) & bits


@given(st.sampled_from([*VERSIONS, "nicira"]), ASKED)
def test_aggregates_of_what_a_filter_selects(version: str, asked: dict[str, Any]) -> None:
    nicira = version == "nicira"
    version = "1.0" if nicira else version
    if version == "1.0":
        asked = {key: value for key, value in asked.items() if key not in ("cookie", "cookie_mask", "group")}
    if (version == "1.0" and not nicira) or "eth_dst" not in asked:
        asked.pop("mask", None)
    if asked.get("mask"):  # a masked value must not have bits outside of its mask
        asked["eth_dst"] = bytes(a & b for a, b in zip(asked["eth_dst"], asked["mask"], strict=True))
    message = reply(version, "nx_aggregate" if nicira else "aggregate")
    rewriting = Statistics(FakeFlows())
    rewriting.asked(request(version, nicira, decode(version, message).xid, **asked))
    before, after = (decode(version, data).body for data in (message, rewriting.answered(message)))
    if version == "1.0":
        (before,), (after,) = before, after
    chosen = [flow[-1] for flow in FLOWS if selects(asked, flow)]
    assert added(before, after) == (sum(c[0] for c in chosen), sum(c[1] for c in chosen))


def test_a_cookie_is_filtered_inside_the_match_of_nicira_s_extension() -> None:
    message = reply("1.0", "nx_aggregate")
    xid = decode("1.0", message).xid
    cookie = struct.pack("!HBBQQ", 1, 30 << 1 | 1, 16, 6, 7)
    head = struct.pack("!BBHIHHII4x", 1, 16, 32 + 24, xid, 0xFFFF, 0, 0x2320, 1)
    rewriting = Statistics(FakeFlows())
    rewriting.asked(head + struct.pack("!HHB3x", 0xFFFF, len(cookie), 255) + cookie + bytes(4))
    (before,), (after,) = (decode("1.0", data).body for data in (message, rewriting.answered(message)))
    assert added(before, after) == (20, 2_000)


def test_an_openflow_1_1_filter_has_ones_where_addresses_are_free() -> None:
    def asked(in_port: int, wildcards: int, eth_dst: bytes, wild: bytes) -> bytes:
        free = b"\xff" * 6
        match = struct.pack("!HHII6s6s6s6s", 0, 88, in_port, wildcards, bytes(6), free, eth_dst, wild)
        match += bytes(12) + b"\xff" * 4 + bytes(4) + b"\xff" * 4 + bytes(20) + b"\xff" * 8
        body = struct.pack("!B3xII4xQQ", 255, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0) + match
        return struct.pack("!BBHIHH4x", 2, 18, 16 + len(body), 21, 2, 0) + body

    message = reply("1.1", "aggregate")
    for filtered, expected in (
        (asked(0, 0x3FF, bytes(6), b"\xff" * 6), ALL),
        (asked(1, 0x3FE, bytes(6), b"\xff" * 6), (10, 1_000)),
        (asked(0, 0x3FF, ONE, bytes(6)), (20, 2_000)),
        (asked(0, 0x3FF, b"\2" + bytes(5), b"\0" * 5 + b"\xff"), (60, 6_000)),
        (asked(0, 0x3DF, bytes(6), b"\xff" * 6), (0, 0)),
    ):
        rewriting = Statistics(FakeFlows())
        rewriting.asked(filtered)
        before, after = (
            struct.unpack_from("!QQ", message, 16),
            struct.unpack_from("!QQ", rewriting.answered(message), 16),
        )
        assert (after[0] - before[0], after[1] - before[1]) == expected


def test_old_requests_are_forgotten() -> None:
    message, rewriting = reply("1.3", "aggregate"), Statistics(FakeFlows())
    rewriting.asked(request("1.3", False, decode("1.3", message).xid))
    for xid in range(1_000, 2_000):
        rewriting.asked(request("1.3", False, xid))
    assert rewriting.answered(message) == message


def test_unknown_counters_stay_unknown() -> None:
    message = bytearray(reply("1.3", "port"))
    struct.pack_into("!Q", message, 16 + 112 + 8, (1 << 64) - 1)
    after = decode("1.3", Statistics(FakeFlows()).answered(bytes(message))).body[1]
    assert (after.port_no, after.rx_packets) == (1, (1 << 64) - 1)


def test_what_has_no_counts_is_no_concern() -> None:
    rewriting = Statistics(FakeFlows())
    for version, kind in ((1, 19), (4, 21), (4, 10), (4, 1), (5, 34)):
        message = struct.pack("!BBHI", version, kind, 16, 1) + bytes(8)
        assert not rewriting.concerns(message) and rewriting.answered(message) == message
    description = struct.pack("!BBHIHH4x", 4, 19, 16, 1, 0, 0)
    assert not rewriting.concerns(description)


# ---- counts that are set to zero -----------------------------------------------------------------------------------


MATCH = SimpleMatch(in_port=1, eth_dst=ONE)


def flow_mod(version: str, command: str, reset: bool = False) -> bytes:
    link = connection(version)
    parser, ofproto = link.ofproto_parser, link.ofproto
    number = getattr(ofproto, f"OFPFC_{command}")
    if version == "1.0":
        match = parser.OFPMatch(in_port=1, dl_dst=ONE)
        return encode(parser.OFPFlowMod(link, match, 0, number, priority=7), 1)
    match = parser.OFPMatch(in_port=1, eth_dst="02:00:00:00:00:01")
    flags = ofproto.OFPFF_RESET_COUNTS if reset else 0
    asked: dict[str, Any] = {"command": number, "priority": 7, "match": match, "flags": flags, "instructions": []}
    if version == "1.2":
        asked |= {"cookie": 0, "cookie_mask": 0, "table_id": 0, "idle_timeout": 0, "hard_timeout": 0}
        asked |= {"buffer_id": ofproto.OFP_NO_BUFFER, "out_port": 0, "out_group": 0}
    return encode(parser.OFPFlowMod(link, **asked), 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_flow_mods_that_begin_at_zero(version: str) -> None:
    """What Open vSwitch 3.1.0 did with counts when each of these came by ``ovs-ofctl``."""
    added, modified = Reset(True, 0, 7, MATCH), Reset(False, 0, None, MATCH)
    if version == "1.0":
        assert list(resets(flow_mod(version, "ADD"))) == [added]
        assert not list(resets(flow_mod(version, "MODIFY")))
        return
    assert not list(resets(flow_mod(version, "ADD"))) and not list(resets(flow_mod(version, "MODIFY")))
    assert not list(resets(flow_mod(version, "DELETE", reset=True)))
    assert list(resets(flow_mod(version, "ADD", reset=True))) == [added]
    assert list(resets(flow_mod(version, "MODIFY", reset=True))) == [modified]
    assert list(resets(flow_mod(version, "MODIFY_STRICT", reset=True))) == [modified._replace(priority=7)]


def test_openflow_1_1_begins_at_zero_too() -> None:
    message = bytearray(flow_mod("1.2", "ADD"))
    message[0] = 2
    assert list(resets(bytes(message))) == [Reset(True, 0, 7, MATCH)]


def test_bundles() -> None:
    inner = flow_mod("1.4", "ADD", reset=True)
    whole = bytearray(bundle([inner[8:]], 5))
    assert [r for message in openflow.split(whole) for r in resets(message)] == [Reset(True, 0, 7, MATCH)]
    inner = flow_mod("1.3", "ADD", reset=True)
    head = struct.pack("!BBHIIIIHH", 4, 4, 24 + len(inner), 1, 0x4F4E4600, 2301, 1, 0, 0)
    assert list(resets(head + inner)) == [Reset(True, 0, 7, MATCH)]


def test_nicira_s_extension() -> None:
    fields = struct.pack("!HBBHHBB6s", 0, 0, 2, 1, 0, 2, 6, ONE)
    head = struct.pack("!BBHIII", 1, 4, 64, 1, 0x2320, 13)
    message = head + struct.pack("!QHHHHIHHH6x", 0, 0, 0, 0, 7, 0, 0, 0, len(fields)) + fields
    assert list(resets(message)) == [Reset(True, 0, 7, MATCH)]


def changed(event: int, output: int | None = 2) -> FlowUpdate:
    match = SimpleMatch(in_port=1, eth_dst=ONE)
    return FlowUpdate(event, 0, 7, 5, b"match", match, output)


def test_counts_of_flows_that_replace_others() -> None:
    slots = FakeForwarder(1)
    tables = FlowTables("s1", (1, 2), slots)

    def count() -> Counts:
        tables.commit()
        return tables.counts_of(0, 7, 1, ONE)

    tables.reset(Reset(True, 0, 7, MATCH))
    tables.update(changed(openflow.ADDED))
    slots.counted[1] = 3
    assert count() == (3, 300)
    tables.update(changed(openflow.ADDED, 1))
    assert count() == (3, 300), "a flow keeps the counts of the one that it replaces"
    tables.reset(Reset(True, 0, 7, MATCH))
    assert count() == (3, 300), "until Open vSwitch has replaced it"
    tables.update(changed(openflow.ADDED))
    slots.counted[1] = 4
    assert count() == (1, 100)
    tables.update(changed(openflow.MODIFIED, -1))
    assert count() == (1, 100), "also if Open vSwitch forwards for it from now on"
    tables.reset(Reset(False, 0, 8, MATCH))
    assert count() == (1, 100)
    tables.reset(Reset(False, 0, None, SimpleMatch(in_port=1)))
    assert count() == (0, 0)
    slots.counted[1] = 6
    tables.update(changed(openflow.REMOVED))
    assert count() == (0, 0)
    assert [tables.removed_counts(0, 7, 1, ONE, 5) for _ in range(2)] == [(2, 200)] * 2, "every client is told"


COMMIT, DISCARD, CLOSE = 4, 6, 2
BUNDLE, XID = 3, 9


def control(version: int, step: int) -> bytes:
    body = struct.pack("!IHH", BUNDLE, step, 1)
    if version >= 5:
        return openflow.message(openflow.BUNDLE_CONTROL, XID, body)
    return struct.pack("!BBHIII", version, 4, 24, XID, 0x4F4E4600, 2300) + body


def added_to_bundle(version: int) -> bytes:
    inner = flow_mod("1.4" if version >= 5 else "1.3", "MODIFY", reset=True)
    head = struct.pack("!IHH", BUNDLE, 0, 1)
    if version >= 5:
        return openflow.message(34, XID - 1, head + inner)
    return struct.pack("!BBHIII", version, 4, 24 + len(inner), XID - 1, 0x4F4E4600, 2301) + head + inner


def refusal(xid: int) -> bytes:
    return openflow.message(openflow.ERROR, xid, bytes(4))


class Counted:
    """A client's connection to a bridge with one flow, for which the fast path counted 3 packets."""

    def __init__(self) -> None:
        self.slots = FakeForwarder(1)
        self.tables = FlowTables("s1", (1, 2), self.slots)
        self.tables.update(changed(openflow.ADDED))
        self.slots.counted[1] = 3
        self.client = Statistics(self.tables)

    @property
    def packets(self) -> int:
        return self.tables.counts_of(0, 7, 1, ONE).packets


@pytest.mark.parametrize("command", ["MODIFY", "MODIFY_STRICT"])
def test_a_refused_flow_mod_leaves_counts_as_they_were(command: str) -> None:
    bridge = Counted()
    bridge.client.asked(flow_mod("1.4", command, reset=True))
    assert bridge.packets == 0
    bridge.slots.counted[1] = 4
    assert bridge.client.answered(refusal(2)) == refusal(2) and bridge.packets == 1, "another message is refused"
    bridge.client.answered(refusal(1))
    assert bridge.packets == 4
    bridge.client.asked(flow_mod("1.4", command, reset=True))
    again = flow_mod("1.4", command, reset=True)
    bridge.client.asked(again[:4] + struct.pack("!I", 5) + again[8:])
    bridge.client.answered(refusal(1))
    assert bridge.packets == 0, "it was set to zero again since"


def test_a_refused_flow_is_not_awaited() -> None:
    bridge = Counted()
    bridge.client.asked(flow_mod("1.0", "ADD"))
    bridge.client.answered(refusal(1))
    bridge.tables.update(changed(openflow.ADDED, 1))
    assert bridge.packets == 3
    bridge.client.asked(flow_mod("1.0", "ADD"))
    bridge.tables.update(changed(openflow.ADDED, 1))
    assert bridge.packets == 0


@pytest.mark.parametrize("version", [1, 4, 5])
def test_a_bundle_sets_to_zero_when_it_is_committed(version: int) -> None:
    bridge = Counted()
    for step, before, after in ((DISCARD, 3, 3), (COMMIT, 3, 0)):
        bridge.client.asked(added_to_bundle(version))
        assert bridge.packets == before
        bridge.client.asked(control(version, CLOSE))
        bridge.client.asked(control(version, step))
        assert bridge.packets == after
    bridge.client.answered(refusal(XID - 1))
    assert bridge.packets == 0
    bridge.client.answered(refusal(XID))
    assert bridge.packets == 3, "it was refused"
    bridge.client.asked(control(version, COMMIT))
    assert bridge.packets == 3, "it is empty now"


def test_what_is_remembered_is_bounded() -> None:
    done: list[Reset] = []
    known = OpenResets(lambda reset: partial(done.append, reset))
    mod = flow_mod("1.4", "MODIFY", reset=True)
    for xid in range(5_000):
        known.asked(mod[:4] + struct.pack("!I", xid) + mod[8:])
    for xid in range(5_000):
        known.refused(refusal(xid))
    assert len(done) == 1 << 10
