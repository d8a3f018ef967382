"""Requests for statistics: their types, and what the requests for sums (aggregate statistics) select."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from topos.kernel.fastpath.resets import Reset
from topos.kernel.fastpath.rules import Counts, PortCounts
from topos.kernel.fastpath.simple_match import (
    ANY_PORT,
    NICIRA,
    V10,
    SimpleMatch,
    from_10,
    from_11,
    from_fields,
    wide_port,
)

AGGREGATE, EXTENSION = 2, 0xFFFF
NX_AGGREGATE = 1
_ALL_TABLES = 255
_OPEN_REQUESTS = 256
"""How many requests without a reply are remembered; older ones are forgotten."""


class Flows(Protocol):
    """One bridge as its fast path sees it. A flow is simple if its match is on in_port and eth_dst, or on nothing."""

    @property
    def port_names(self) -> Mapping[str, str]:
        """The name that clients are to see, by the name that Open vSwitch has for a port."""

    def counts_of(self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None) -> Counts:
        """What the kernel forwarded by the live flow with exactly this simple match; zeros if there is none."""

    def removed_counts(
        self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None, cookie: int
    ) -> Counts:
        """What the kernel forwarded by a flow that is just removed; every client that hears of it asks."""

    def reset(self, reset: Reset) -> Callable[[], object]:
        """Take note of a flow-mod, which the bridge has yet to carry out, that sets counts to zero.

        Returns a function for the case that the bridge refuses it: counts are then as before.
        """

    def each(self) -> Iterable[tuple[int, int, int | None, bytes | None, int, int | None, Counts]]:
        """All live simple flows: table, priority, in_port, eth_dst, cookie, port of its output or None, counts."""

    def port_counts(self) -> Mapping[int, PortCounts]:
        """What the kernel forwarded, by port."""


class Selection(NamedTuple):
    """The flows that an aggregate request selects."""

    match: SimpleMatch
    table: int
    out_port: int
    out_group: int = ANY_PORT
    cookie: int = 0
    cookie_mask: int = 0

    def sum(self, flows: Flows) -> Counts:
        """The counts of all selected flows together."""
        total = Counts()
        for table, _, in_port, eth_dst, cookie, out_port, counts in flows.each():
            if (
                self.table in (table, _ALL_TABLES)
                and self.out_port in (out_port, ANY_PORT)
                and self.out_group == ANY_PORT
                and (cookie ^ self.cookie) & self.cookie_mask == 0
                and self.match.covers(in_port, eth_dst)
            ):
                total += counts
        return total


class Aggregates:
    """The aggregate requests of one connection that have no reply yet."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, Selection]] = deque(maxlen=_OPEN_REQUESTS)

    def asked(self, message: bytes) -> None:
        """Remember ``message`` if it is an aggregate request."""
        kind = statistics_kind(message, reply=False)
        if kind in ((AGGREGATE, None), (EXTENSION, NX_AGGREGATE)):
            try:
                self._open.append((xid(message), selection(message)))
            except struct.error:
                return

    def answered(self, reply: bytes | bytearray) -> Selection | None:
        """What was asked for by the request that ``reply`` answers; None if that is not known. Forgets it."""
        number = xid(reply)
        found = next((entry for entry in self._open if entry[0] == number), None)
        if found is None:
            return None
        self._open.remove(found)
        return found[1]


def selection(message: bytes) -> Selection:
    """What an aggregate request selects; ``struct.error`` if it is cut short."""
    version, what = message[0], struct.unpack_from("!H", message, 8)[0]
    if what == EXTENSION:  # after 24 bytes: out_port, match's length, table, 3 pad, match
        out_port, length, table = struct.unpack_from("!HHB", message, 24)
        match = from_fields(message, 32, length)
        return Selection(match, table, wide_port(out_port), ANY_PORT, match.cookie, match.cookie_mask)
    if version == V10:  # match, table, pad, out_port
        table, out_port = struct.unpack_from("!BxH", message, 52)
        return Selection(from_10(message, 12), table, wide_port(out_port))
    table, out_port, out_group, cookie, mask = struct.unpack_from("!B3xII4xQQ", message, 16)
    return Selection(from_11(message, 48)[0], table, out_port, out_group, cookie, mask)


def statistics_kind(message: bytes | bytearray, reply: bool) -> tuple[int, int | None] | None:
    """The type of a statistics message and, if it is Nicira's, its subtype; None for another message."""
    if message[1] != (16 if message[0] == V10 else 18) + reply or len(message) < 12:
        return None
    (what,) = struct.unpack_from("!H", message, 8)
    if what != EXTENSION:
        return what, None
    if message[0] != V10 or len(message) < 24:
        return None
    vendor, subtype = struct.unpack_from("!II", message, 12)
    return (what, subtype) if vendor == NICIRA else None


def xid(message: bytes | bytearray) -> int:
    """The number by which a reply names its request."""
    return int(struct.unpack_from("!I", message, 4)[0])
