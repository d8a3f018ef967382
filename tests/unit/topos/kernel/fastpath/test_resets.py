from __future__ import annotations

import struct
from functools import partial
from typing import Any

import pytest
from openflow.decoding import VERSIONS, connection, encode

from controllers.openflow.flows import bundle
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.openflow import FlowUpdate, SimpleMatch
from topos.kernel.fastpath.rules import Counts
from topos.kernel.fastpath.statistics import OpenResets, Reset, Statistics, resets
from topos.kernel.fastpath.tables import FlowTables

ONE = b"\2\0\0\0\0\1"
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


class Slots:
    """A forwarder with one slot, whose counts the test sets."""

    def __init__(self) -> None:
        self.counts = Counts()

    def new_flow(self) -> int:
        return 1

    def flow_counts(self, flow: int) -> Counts:
        return self.counts if flow else Counts()

    def free_flow(self, flow: int) -> None:
        self.counts = Counts()

    def set(self, *_: object) -> None: ...


def changed(event: int, output: int | None = 2) -> FlowUpdate:
    match = SimpleMatch(in_port=1, eth_dst=ONE)
    return FlowUpdate(event, 0, 7, 5, b"match", match, output)


def test_counts_of_flows_that_replace_others() -> None:
    slots = Slots()
    tables = FlowTables("s1", (1, 2), slots)  # type: ignore[arg-type]

    def count() -> Counts:
        tables.commit()
        return tables.counts_of(0, 7, 1, ONE)

    tables.reset(Reset(True, 0, 7, MATCH))
    tables.update(changed(openflow.ADDED))
    slots.counts = Counts(3, 300)
    assert count() == (3, 300)
    tables.update(changed(openflow.ADDED, 1))
    assert count() == (3, 300), "a flow keeps the counts of the one that it replaces"
    tables.reset(Reset(True, 0, 7, MATCH))
    assert count() == (3, 300), "until Open vSwitch has replaced it"
    tables.update(changed(openflow.ADDED))
    slots.counts = Counts(4, 400)
    assert count() == (1, 100)
    tables.update(changed(openflow.MODIFIED, -1))
    assert count() == (1, 100), "also if Open vSwitch forwards for it from now on"
    tables.reset(Reset(False, 0, 8, MATCH))
    assert count() == (1, 100)
    tables.reset(Reset(False, 0, None, SimpleMatch(in_port=1)))
    assert count() == (0, 0)
    slots.counts = Counts(6, 600)
    tables.update(changed(openflow.REMOVED))
    assert count() == (0, 0)
    assert [tables.removed_counts(0, 7, 1, ONE, 5) for _ in range(2)] == [(2, 200)] * 2, "every client is told"


def test_a_flow_removed_and_added_again_begins_at_zero() -> None:
    slots = Slots()
    tables = FlowTables("s1", (1, 2), slots)  # type: ignore[arg-type]
    tables.update(changed(openflow.ADDED))
    slots.counts = Counts(3, 300)
    tables.reset(Reset(True, 0, 7, MATCH))
    tables.update(changed(openflow.REMOVED))
    tables.commit()
    assert tables.removed_counts(0, 7, 1, ONE, 5) == (3, 300)
    tables.update(changed(openflow.ADDED))
    slots.counts = Counts(2, 200)
    tables.update(changed(openflow.ADDED, 1))
    assert tables.counts_of(0, 7, 1, ONE) == (2, 200)


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
        self.slots = Slots()
        self.tables = FlowTables("s1", (1, 2), self.slots)  # type: ignore[arg-type]
        self.tables.update(changed(openflow.ADDED))
        self.slots.counts = Counts(3, 300)
        self.client = Statistics(self.tables)

    @property
    def packets(self) -> int:
        return self.tables.counts_of(0, 7, 1, ONE).packets


@pytest.mark.parametrize("command", ["MODIFY", "MODIFY_STRICT"])
def test_a_refused_flow_mod_leaves_counts_as_they_were(command: str) -> None:
    bridge = Counted()
    bridge.client.asked(flow_mod("1.4", command, reset=True))
    assert bridge.packets == 0
    bridge.slots.counts = Counts(4, 400)
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
