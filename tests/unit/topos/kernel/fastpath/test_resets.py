from __future__ import annotations

import struct
from typing import Any

import pytest
from openflow.decoding import VERSIONS, connection, encode

from controllers.openflow.flows import bundle
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.openflow import FlowUpdate
from topos.kernel.fastpath.resets import Reset, resets
from topos.kernel.fastpath.rules import Counts
from topos.kernel.fastpath.simple_match import Match
from topos.kernel.fastpath.tables import FlowTables

ONE = b"\2\0\0\0\0\1"
MATCH = Match(in_port=1, eth_dst=ONE)


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
    match = openflow.Match(simple=True, in_port=1, eth_dst=ONE)
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
    tables.reset(Reset(False, 0, None, Match(in_port=1)))
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
