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
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, SET_CONFIG, FLOW_REMOVED, PORT_STATUS = 0, 1, 2, 3, 9, 11, 12
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY, SET_ASYNC, BUNDLE_CONTROL = 18, 19, 20, 21, 28, 33
MULTIPART_PORTS, MULTIPART_MONITOR = 13, 16
_ANY = 0xFFFFFFFF
_MATCH_ALL = struct.pack("!HH4x", 1, 4)
_WHOLE_TABLES = 0xFF
_MONITOR = struct.Struct("!IIIHBB")
_INITIAL_ADD_REMOVED_MODIFY_INSTRUCTIONS = 0b11111
_PACKET_IN, _PORT_CHANGES, _REMOVED_FLOWS = 1, 3, 5  # OFPACPT_..._MASTER
INITIAL, ADDED, REMOVED, MODIFIED, ABBREVIATED, PAUSED, RESUMED = range(7)
_UPDATE_HEAD = struct.Struct("!HH")
_UPDATE = struct.Struct("!HHBBHHH4xQ")
_WRITE_ACTIONS, _APPLY_ACTIONS = 3, 4
_OUTPUT = 0
_PORT_BYTES = 40
_MOST_PORT = 0xFFFFFF00
"""Numbers above it are reserved: not ports, but ways to forward (flood, normal, controller)."""
PORT_DOWN, PORT_NO_RECV, PORT_NO_FWD = 1 << 0, 1 << 2, 1 << 5


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
    match: SimpleMatch
    output: int | None


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, 8 + len(body), xid) + body


def monitor_requests(xid: int) -> bytes:
    """The messages after which a connection hears of all flows and ports of a switch, and of nothing else."""
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
        length, event = _UPDATE_HEAD.unpack_from(reply, at)
        if length < 4:
            raise ValueError("a flow update is shorter than its header")
        if event in (INITIAL, ADDED, REMOVED, MODIFIED):
            yield _flow_update(reply[at : at + length])
        else:
            yield FlowUpdate(event, 0, 0, 0, b"", SimpleMatch(), None)
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
def read_match(match: bytes) -> SimpleMatch:
    """A match of OpenFlow 1.2 and later (``ofp_match`` without its padding)."""
    return from_fields(match, 4, len(match) - 4)


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


V10, V11, V12, V13, V14, V15 = 1, 2, 3, 4, 5, 6
"""Version in the header of OpenFlow 1.0, 1.1, ..., 1.5."""
NICIRA = 0x2320
ALL_ONES = b"\xff" * 6
ANY_PORT = 0xFFFFFFFF
"""The port number that stands for all ports in a filter, in the numbering of OpenFlow 1.1 and later."""

_NXM_IN_PORT, _OXM_IN_PORT = (0x0000, 0), (0x8000, 0)
_ETH_DST = {(0x0000, 1), (0x8000, 3)}
_COOKIE = (0x0001, 30)
_MATCH_11_LENGTH = 88
_STANDARD_11 = 0


class SimpleMatch(NamedTuple):
    """A match: ``None`` matches every value; ``others`` says that it is on further fields too.

    ``cookie`` and ``cookie_mask`` are a filter inside the match, which only requests of Nicira's extension have.
    """

    in_port: int | None = None
    eth_dst: bytes | None = None
    eth_dst_mask: bytes = ALL_ONES
    others: bool = False
    cookie: int = 0
    cookie_mask: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether a flow with this match may be in the fast path."""
        return not self.others and (self.eth_dst is None or self.eth_dst_mask == ALL_ONES)

    def covers(self, in_port: int | None, eth_dst: bytes | None) -> bool:
        """Whether every packet of a flow with this simple match fits here too (the non-strict match of OpenFlow)."""
        if self.others or (self.in_port is not None and self.in_port != in_port):
            return False
        if self.eth_dst is None:
            return True
        if eth_dst is None:
            return not any(self.eth_dst_mask)
        return all(a & mask == b & mask for a, b, mask in zip(self.eth_dst, eth_dst, self.eth_dst_mask, strict=True))


def wide_port(number: int) -> int:
    """The 32-bit number of a port of OpenFlow 1.0, which has 16 bits; reserved ports are the highest in both."""
    return number if number < 0xFF00 else number | 0xFFFF0000


def from_10(data: bytes | bytearray, at: int) -> SimpleMatch:
    """The match at ``at`` in the structure of OpenFlow 1.0 (40 bytes)."""
    wildcards, in_port = struct.unpack_from("!IH", data, at)
    eth_dst = _slice(data, at + 12, 6)
    addresses_wild = (wildcards >> 8) & 63 >= 32 and (wildcards >> 14) & 63 >= 32
    return SimpleMatch(
        in_port=None if wildcards & 1 else wide_port(in_port),
        eth_dst=None if wildcards & 8 else eth_dst,
        others=wildcards & 0x3000F6 != 0x3000F6 or not addresses_wild,
    )


def from_11(data: bytes | bytearray, at: int) -> tuple[SimpleMatch, int]:
    """The match at ``at`` in the form of OpenFlow 1.1 and later, and the length that it takes with its padding."""
    kind, length = struct.unpack_from("!HH", data, at)
    if kind != _STANDARD_11:
        return from_fields(data, at + 4, length - 4), (length + 7) // 8 * 8
    in_port, wildcards = struct.unpack_from("!II", data, at + 4)
    eth_dst, unmasked = _slice(data, at + 24, 6), _slice(data, at + 30, 6)  # in 1.1 ones of a mask are wild
    wild_masks = _slice(data, at + 18, 6), _slice(data, at + 48, 4), _slice(data, at + 56, 4), _slice(data, at + 80, 8)
    match = SimpleMatch(
        in_port=None if wildcards & 1 else in_port,
        eth_dst=None if unmasked == ALL_ONES else eth_dst,
        eth_dst_mask=bytes(byte ^ 0xFF for byte in unmasked),
        others=wildcards & 0x3FE != 0x3FE or any(mask.strip(b"\xff") for mask in wild_masks),
    )
    return match, _MATCH_11_LENGTH


def from_fields(data: bytes | bytearray, at: int, length: int) -> SimpleMatch:
    """The match in the ``length`` bytes from ``at``, a list of OXM or NXM fields."""
    match, end = SimpleMatch(), at + length
    while at + 4 <= end:
        group, field, size = struct.unpack_from("!HBB", data, at)
        value, key, masked = _slice(data, at + 4, size), (group, field >> 1), field & 1
        at += 4 + size
        if key == _OXM_IN_PORT and size == 4:
            match = match._replace(in_port=int.from_bytes(value, "big"))
        elif key == _NXM_IN_PORT and size == 2:
            match = match._replace(in_port=wide_port(int.from_bytes(value, "big")))
        elif key in _ETH_DST and size == 6 * (1 + masked):
            match = match._replace(eth_dst=value[:6], eth_dst_mask=value[6:] or ALL_ONES)
        elif key == _COOKIE and size == 8 * (1 + masked):
            mask = int.from_bytes(value[8:], "big") if masked else (1 << 64) - 1
            match = match._replace(cookie=int.from_bytes(value[:8], "big"), cookie_mask=mask)
        else:
            match = match._replace(others=True)
    return match


def _slice(data: bytes | bytearray, at: int, length: int) -> bytes:
    found: bytes = struct.unpack_from(f"{length}s", data, at)[0]
    return found
