from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from fast_path.doubles import flow_match, flow_update, monitor_reply, output
from hypothesis import given
from hypothesis import strategies as st
from openflow.decoding import connection, decode, encode

from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.openflow import FlowUpdate, SimpleMatch

MAC = b"\2\0\0\0\0\7"
MESSAGES = st.builds(openflow.message, st.integers(0, 35), st.integers(0, 2**32 - 1), st.binary(max_size=40))


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(0, 300), max_size=5))
def test_messages_come_whole_and_once_however_the_bytes_come(messages: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(messages)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    buffer = bytearray()
    found: list[bytes] = []
    for start, end in pairwise(places):
        buffer += whole[start:end]
        found += openflow.split(buffer)
    assert found == messages and not buffer


@pytest.mark.parametrize("length", [0, 7])
def test_a_length_below_that_of_the_header_is_an_error_after_what_came_before(length: int) -> None:
    good = openflow.message(openflow.HELLO, 1)
    buffer = bytearray(good + struct.pack("!BBHI", 5, 0, length, 1))
    messages = openflow.split(buffer)
    assert next(messages) == good
    with pytest.raises(ValueError, match=f"an OpenFlow message of {length} bytes"):
        next(messages)


def test_what_a_monitor_asks_for() -> None:
    """The framework reads the requests: asynchronous messages of ports alone, all ports, all flows of all tables."""
    buffer = bytearray(openflow.monitor_requests(3))
    kinds = [(message[1], message[4:8]) for message in openflow.split(buffer)]
    xid = struct.pack("!I", 3)
    assert kinds == [(0, xid), (28, xid), (9, xid), (18, xid), (18, xid)] and not buffer
    parser, ofproto = connection("1.4").ofproto_parser, connection("1.4").ofproto
    flags = ofproto.OFPFMF_INITIAL | ofproto.OFPFMF_ADD | ofproto.OFPFMF_REMOVED | ofproto.OFPFMF_MODIFY
    request = parser.OFPFlowMonitorRequest(
        connection("1.4"),
        0,
        1,
        ofproto.OFPP_ANY,
        ofproto.OFPG_ANY,
        flags | ofproto.OFPFMF_INSTRUCTIONS,
        ofproto.OFPTT_ALL,
        ofproto.OFPFMC_ADD,
        parser.OFPMatch(),
    )
    assert openflow.monitor_requests(3).endswith(encode(request, 3))
    ports = encode(parser.OFPPortDescStatsRequest(connection("1.4"), 0), 3)
    assert ports[:16] in openflow.monitor_requests(3)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, SimpleMatch()),
        ({"in_port": 7}, SimpleMatch(7)),
        ({"eth_dst": MAC}, SimpleMatch(None, MAC)),
        ({"in_port": 7, "eth_dst": MAC}, SimpleMatch(7, MAC)),
        ({"in_port": 7, "eth_type": 0x800}, SimpleMatch(7, others=True)),
    ],
)
def test_matches(fields: dict[str, int | bytes], expected: SimpleMatch) -> None:
    match = flow_match(**fields)  # type: ignore[arg-type]
    assert openflow.read_match(match[: struct.unpack_from("!H", match, 2)[0]]) == expected


def test_a_destination_with_a_mask_is_not_simple() -> None:
    masked = struct.pack("!HHI12s", 1, 20, 0x8000070C, b"\1" + bytes(5) + b"\1" + bytes(5))
    assert not openflow.read_match(masked).is_simple


GROUP = struct.pack("!HH4xHHI", 4, 16, 22, 8, 1)
METER = struct.pack("!HHI", 6, 8, 1)
GOTO = struct.pack("!HHB3x", 1, 8, 1)
CLEAR = struct.pack("!HH4x", 5, 8)
TWO = struct.pack("!HH4x", 4, 40) + 2 * output(2)[8:]
SET_DESTINATION = struct.pack("!HH4xHHI6s10x", 4, 32, 25, 24, 0x80000606, MAC)
SET_VLAN = struct.pack("!HH4xHHIH6x", 4, 24, 25, 16, 0x80000C02, 0x1001)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        (b"", None),
        (struct.pack("!HH4x", 4, 8), None),
        (output(7), 7),
        (output(7, kind=3), 7),
        (output(0xFFFFFF00), 0xFFFFFF00),
        *((output(port), -1) for port in (0, 0xFFFFFFF8, 0xFFFFFFFB, 0xFFFFFFFD, 0xFFFFFFFE)),
        *((more, -1) for more in (GROUP, METER, GOTO, CLEAR, TWO, SET_DESTINATION, SET_VLAN)),
        (output(7) + GOTO, -1),
        (METER + output(7), -1),
        (output(7) + output(8, kind=3), -1),
        (b"\0\4\0", -1),
        (output(7)[:20], -1),
    ],
)
def test_instructions(instructions: bytes, expected: int | None) -> None:
    assert openflow.read_instructions(instructions) == expected


def test_updates_of_a_flow_monitor() -> None:
    reply = monitor_reply(
        flow_update(openflow.ADDED, flow_match(1, MAC), output(2), priority=9),
        struct.pack("!HH4x", 8, openflow.PAUSED),
        struct.pack("!HHI", 8, openflow.ABBREVIATED, 5),
        flow_update(openflow.REMOVED, flow_match(), table=3),
        flow_update(openflow.MODIFIED, flow_match(1), output(2), idle=5),
        flow_update(openflow.MODIFIED, flow_match(1), b"", idle=5),
    )
    found = list(openflow.flow_updates(reply))
    assert found[0] == FlowUpdate(openflow.ADDED, 0, 9, 7, flow_match(1, MAC)[:22], SimpleMatch(1, MAC), 2)
    assert [update.event for update in found] == [1, openflow.PAUSED, openflow.ABBREVIATED, 2, 3, 3]
    assert [update.table for update in found] == [0, 0, 0, 3, 0, 0]
    assert [update.output for update in found[3:]] == [None, -1, -1], "an idle time-out needs every packet"


def test_an_update_shorter_than_its_header_is_an_error() -> None:
    with pytest.raises(ValueError, match="a flow update is shorter"):
        list(openflow.flow_updates(monitor_reply(struct.pack("!HH", 0, 1))))


@pytest.mark.parametrize("length", [0, 39])
def test_a_description_of_a_port_that_is_too_short_is_an_error(length: int) -> None:
    description = struct.pack("!IH2x6s2x16sII", 1, length, MAC, b"p", 0, 0)
    reply = openflow.message(openflow.MULTIPART_REPLY, 1, struct.pack("!HH4x", 13, 0) + description)
    with pytest.raises(ValueError, match=f"a description of a port of {length} bytes is too short"):
        list(openflow.ports(reply))


def test_configurations_of_ports() -> None:
    """Descriptions of OpenFlow 1.4 have properties, and so different lengths."""
    data = b""
    for number, configuration, properties in ((3, 1, 1), (4, 0, 0), (0xFFFFFFFE, 0x20, 1)):
        port = struct.pack("!IH2x6s2x16sII", number, 40 + 32 * properties, MAC, b"p", configuration, 0)
        data += port + properties * struct.pack("!HH4x6I", 0, 32, *([0] * 6))
    reply = openflow.message(openflow.MULTIPART_REPLY, 1, struct.pack("!HH4x", 13, 0) + data)
    read = [(port.port_no, port.config) for port in decode("1.4", reply).body]
    assert list(openflow.ports(reply)) == read == [(3, 1), (4, 0), (0xFFFFFFFE, 0x20)]
    status = openflow.message(openflow.PORT_STATUS, 1, struct.pack("!B7x", 2) + data[:72])
    told = decode("1.4", status).desc
    assert openflow.changed_port(status) == (told.port_no, told.config) == (3, 1)
