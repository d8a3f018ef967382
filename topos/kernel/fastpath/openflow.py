"""OpenFlow on the wire, as far as the fast path reads it: flow updates, matches, actions and ports of OpenFlow 1.4.

Layouts: OpenFlow Switch Specification 1.4.0, sections 7.2 (match, port) and 7.3.5.17 (flow monitor).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

VERSION = 5
HEADER = struct.Struct("!BBHI")
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY, SET_CONFIG, FLOW_REMOVED, PORT_STATUS = 0, 1, 2, 3, 6, 9, 11, 12
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY, SET_ASYNC, BUNDLE_CONTROL = 18, 19, 20, 21, 28, 33
MULTIPART_PORTS, MULTIPART_MONITOR = 13, 16
_ANY = 0xFFFFFFFF
_MATCH_ALL = struct.pack("!HH4x", 1, 4)
_WHOLE_TABLES = 0xFF
_MONITOR = struct.Struct("!IIIHBB")
_INITIAL_ADD_REMOVED_MODIFY_INSTRUCTIONS = 0b11111
_PACKET_IN, _PORT_CHANGES, _REMOVED_FLOWS = 1, 3, 5  # OFPACPT_..._MASTER
INITIAL, ADDED, REMOVED, MODIFIED, ABBREVIATED, PAUSED, RESUMED = range(7)
_UPDATE = struct.Struct("!HHBBHHH4xQ")
_IN_PORT, _ETH_DST = 0x80000004, 0x80000606
_WRITE_ACTIONS, _APPLY_ACTIONS = 3, 4
_OUTPUT = 0
_PORT_BYTES = 40
_MOST_PORT = 0xFFFFFF00
"""Numbers above it are reserved: not ports, but ways to forward (flood, normal, controller)."""
PORT_DOWN, PORT_NO_RECV, PORT_NO_FWD = 1 << 0, 1 << 2, 1 << 5


class FlowMatch(NamedTuple):
    """The packets of a flow.

    ``simple``: nothing but ``in_port`` and ``eth_dst`` (6 bytes) is compared, each with one value or not at all. A
    match that is not simple may compare other fields too.
    """

    simple: bool
    in_port: int | None
    eth_dst: bytes | None


class FlowUpdate(NamedTuple):
    """One change of a flow table, as a flow monitor reports it.

    ``output`` is the port to which the flow sends its packets unchanged, None for a flow that drops them, and -1 for
    one that does something else or has an idle time-out.
    """

    event: int
    table: int
    priority: int
    cookie: int
    match_bytes: bytes
    match: FlowMatch
    output: int | None


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, 8 + len(body), xid) + body


def monitor_requests(xid: int) -> bytes:
    """What a connection sends so as to hear of all flows and ports of a switch, and of nothing else."""
    masks = ((_PACKET_IN, 0), (_PORT_CHANGES, 0b111), (_REMOVED_FLOWS, 0))
    asynchronous = b"".join(struct.pack("!HHI", kind, 8, mask) for kind, mask in masks)
    monitor = _MONITOR.pack(1, _ANY, _ANY, _INITIAL_ADD_REMOVED_MODIFY_INSTRUCTIONS, _WHOLE_TABLES, 0) + _MATCH_ALL
    return (
        message(HELLO, xid)
        + message(SET_ASYNC, xid, asynchronous)
        # Open vSwitch reports changes of ports only to connections that want packets, of at least one byte.
        + message(SET_CONFIG, xid, struct.pack("!HH", 0, 1))
        + message(MULTIPART_REQUEST, xid, struct.pack("!HH4x", MULTIPART_PORTS, 0))
        + message(MULTIPART_REQUEST, xid, struct.pack("!HH4x", MULTIPART_MONITOR, 0) + monitor)
    )


def split(buffer: bytearray) -> Iterator[bytes]:
    """The whole messages at the start of ``buffer``, which are removed from it; ``ValueError`` for one too short."""
    start, end = 0, len(buffer)
    try:
        while end - start >= 8:
            length = buffer[start + 2] << 8 | buffer[start + 3]
            if length < 8:
                raise ValueError(f"an OpenFlow message of {length} bytes is shorter than its header")
            if end - start < length:
                break
            yield bytes(buffer[start : start + length])
            start += length
    finally:
        del buffer[:start]


def has_more(reply: bytes) -> bool:
    return bool(reply[11] & 1)


def flow_updates(reply: bytes) -> Iterator[FlowUpdate]:
    """The updates in a multipart reply of a flow monitor; ``PAUSED`` and ``RESUMED`` have only their event."""
    at, end = 16, len(reply)
    while at + 4 <= end:
        length, event = struct.unpack_from("!HH", reply, at)
        if length < 4:
            raise ValueError("a flow update is shorter than its header")
        if event in (INITIAL, ADDED, REMOVED, MODIFIED):
            yield _flow_update(reply[at : at + length])
        else:
            yield FlowUpdate(event, 0, 0, 0, b"", _ALL, None)
        at += length


@lru_cache(maxsize=1 << 14)
def _flow_update(update: bytes) -> FlowUpdate:
    _, event, table, _, idle, _, priority, cookie = _UPDATE.unpack_from(update)
    start = _UPDATE.size
    match_bytes = struct.unpack_from("!H", update, start + 2)[0]
    match = update[start : start + match_bytes]
    instructions = update[start + (match_bytes + 7) // 8 * 8 :]
    return FlowUpdate(
        event, table, priority, cookie, match, read_match(match), -1 if idle else read_instructions(instructions)
    )


@lru_cache(maxsize=1 << 14)
def read_match(match: bytes) -> FlowMatch:
    """A match of OpenFlow 1.2 and later (``ofp_match`` without its padding)."""
    at, end = 4, len(match)
    simple, in_port, eth_dst = True, None, None
    while at + 4 <= end:
        field = int.from_bytes(match[at : at + 4], "big")
        value = match[at + 4 : at + 4 + (field & 0xFF)]
        if field == _IN_PORT:
            in_port = int.from_bytes(value, "big")
        elif field == _ETH_DST:
            eth_dst = value
        else:
            simple = False
        at += 4 + (field & 0xFF)
    return FlowMatch(simple, in_port, eth_dst)


_ALL = FlowMatch(simple=True, in_port=None, eth_dst=None)


@lru_cache(maxsize=1 << 14)
def read_instructions(instructions: bytes) -> int | None:
    """The only port to which packets go unchanged; None if they are dropped, -1 for anything else."""
    if not instructions:
        return None
    if len(instructions) < 8:
        return -1
    kind, length = struct.unpack_from("!HH", instructions)
    if length != len(instructions) or kind not in (_WRITE_ACTIONS, _APPLY_ACTIONS):
        return -1
    if length == 8:
        return None
    if length != 24:
        return -1
    action, size, port = struct.unpack_from("!HHI", instructions, 8)
    return port if (action, size) == (_OUTPUT, 16) and 0 < port <= _MOST_PORT else -1


def ports(reply: bytes) -> Iterator[tuple[int, int]]:
    """(number, configuration) of each port in a multipart reply with port descriptions; ``ValueError`` for one that is
    too short.
    """
    at = 16
    while at + _PORT_BYTES <= len(reply):
        number, length = struct.unpack_from("!IH", reply, at)
        if length < _PORT_BYTES:
            raise ValueError(f"a description of a port of {length} bytes is too short")
        yield number, struct.unpack_from("!I", reply, at + 32)[0]
        at += length


def changed_port(status: bytes) -> tuple[int, int]:
    """(number, configuration) of the port in a port status message."""
    return struct.unpack_from("!I", status, 16)[0], struct.unpack_from("!I", status, 48)[0]
