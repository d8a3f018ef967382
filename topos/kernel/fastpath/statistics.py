"""Statistics of Open vSwitch with what the fast path forwarded added, in the bytes of OpenFlow 1.0 to 1.5.

Open vSwitch does not see the packets that the kernel forwards. The relay between a bridge and its clients therefore
passes each reply through ``Statistics.answered``, which adds the kernel's counts to flow, aggregate, table and port
statistics and to flow-removed messages, and names the ports as Mininet does. Counters of -1 (unknown) stay.

The structures are those of the OpenFlow Switch Specifications 1.0.0 to 1.5.1 and of ``nicira-ext.h`` of Open vSwitch;
all numbers are big-endian. Offsets in this module are bytes from the start of the structure that the comment names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

from topos.kernel.fastpath.aggregates import AGGREGATE, EXTENSION, NX_AGGREGATE, Aggregates, Flows, statistics_kind
from topos.kernel.fastpath.resets import OpenResets
from topos.kernel.fastpath.simple_match import (
    NICIRA,
    V10,
    V11,
    V12,
    V13,
    V14,
    V15,
    from_10,
    from_11,
    from_fields,
    wide_port,
)

_ERROR, _VENDOR, _FEATURES, _REMOVED, _PORT_STATUS = 1, 4, 6, 11, 12
_FLOW, _TABLE, _PORT, _PORT_DESCRIPTION = 1, 3, 4, 13
_NX_FLOW, _NX_REMOVED = 0, 14
_OXS, _OXS_PACKETS, _OXS_BYTES = 0x8002, 4, 5
_UNKNOWN = (1 << 64) - 1
_NAME_LENGTH = 16

_TABLE_ENTRIES = {V10: (64, 48), V11: (88, 72), V12: (128, 112)}
"""By version: length of an entry of table statistics, offset of its lookups; matches follow. Later ones: (24, 8)."""
_PORT_ENTRIES = {V10: 104, V11: 104, V12: 104, V13: 112}
"""By version: length of an entry of port statistics; later ones begin with their length."""


class Statistics:
    """Rewrites the replies to one connection of a client to a bridge.

    It remembers the aggregate requests that are open, since their replies do not say what was asked for. Messages are
    whole OpenFlow messages with their header; a message that is cut short or of an unknown form passes unchanged.
    """

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._aggregates = Aggregates()
        self._resets = OpenResets(flows.reset)

    def asked(self, message: bytes) -> None:
        """Take note of a message of the client, before the bridge carries it out."""
        self._aggregates.asked(message)
        with suppress(struct.error):
            self._resets.asked(message)

    def concerns(self, message: bytes) -> bool:
        """Whether a message of the bridge has to wait until the kernel's rules are up to date, and be rewritten."""
        version, kind = message[0], message[1]
        if kind == _FEATURES:
            return version < V13
        if kind == _VENDOR:
            return _is_nicira_removed(message)
        if kind in (_REMOVED, _PORT_STATUS):
            return True
        found = statistics_kind(message, reply=True)
        if found is None:
            return False
        what, subtype = found
        if what == EXTENSION:
            return subtype in (_NX_FLOW, NX_AGGREGATE)
        return what in (_FLOW, AGGREGATE, _TABLE, _PORT, _PORT_DESCRIPTION)

    def answered(self, message: bytes) -> bytes:
        """A message of the bridge as the client is to see it; it has the same length."""
        if message[1] == _ERROR:
            self._resets.refused(message)
        if not self.concerns(message):
            return message
        data = bytearray(message)
        try:
            self._rewrite(data)
        except struct.error:
            return message
        return bytes(data)

    def _rewrite(self, data: bytearray) -> None:
        version, kind = data[0], data[1]
        if kind in (_REMOVED, _VENDOR):
            self._removed(data)
        elif kind == _FEATURES:
            self._ports(data, 32)
        elif kind == _PORT_STATUS:
            self._ports(data, 16)
        else:
            begin = 12 if version == V10 else 16
            (what,) = struct.unpack_from("!H", data, 8)
            if what == _FLOW or (what == EXTENSION and struct.unpack_from("!I", data, 16)[0] == _NX_FLOW):
                self._flow_entries(data, begin if what == _FLOW else 24, what == EXTENSION)
            elif what in (AGGREGATE, EXTENSION):
                self._aggregate(data, begin if what == AGGREGATE else 24)
            elif what == _TABLE:
                self._tables(data, begin)
            elif what == _PORT:
                self._port_entries(data, begin)
            else:
                self._ports(data, begin)

    def _flow_entries(self, data: bytearray, at: int, nicira: bool) -> None:
        """Add to the entries of flow statistics from ``at`` on; NXST_FLOW if ``nicira``."""
        version = data[0]
        for start in _entries(data, at, 48 if version != V15 else 24):
            if version == V15:  # length, 2 pad, table, 1 pad, priority, 2 time-outs, flags, importance, cookie, match
                table, priority = struct.unpack_from("!BxH", data, start + 4)
                match, length = from_11(data, start + 24)
                places = _extended_places(data, start + 24 + length)
            elif version == V10 and not nicira:  # length, table, pad, match, duration (8), priority
                table, priority = data[start + 2], struct.unpack_from("!H", data, start + 52)[0]
                match, places = from_10(data, start + 4), (start + 72, start + 80)
            else:  # length, table, pad, duration (8), priority, 2 time-outs, 6 bytes, cookie, packets, bytes, match
                table, priority, match_length = struct.unpack_from("!2xBx8xH4xH", data, start)
                match = from_fields(data, start + 48, match_length) if nicira else from_11(data, start + 48)[0]
                places = (start + 32, start + 40)
            if match.is_simple:
                _add(data, places, self._flows.counts_of(table, priority, match.in_port, match.eth_dst))

    def _removed(self, data: bytearray) -> None:
        """Add to the counts of a flow-removed message."""
        version, table = data[0], 0
        places: tuple[int, ...]
        if data[1] == _VENDOR:  # header (16), cookie, priority, reason, table + 1, duration (8), idle, match's length
            cookie, priority, table, length = struct.unpack_from("!QHxB8x2xH", data, 16)
            table, match, places = max(table - 1, 0), from_fields(data, 56, length), (40, 48)
        elif version == V10:  # header (8), match, cookie, priority, reason, pad, duration (8), idle, pad (2)
            cookie, priority = struct.unpack_from("!QH", data, 48)
            match, places = from_10(data, 8), (72, 80)
        elif version == V15:  # header (8), table, reason, priority, 2 time-outs, cookie, match, statistics
            table, priority, cookie = struct.unpack_from("!BxH4xQ", data, 8)
            match, length = from_11(data, 24)
            places = _extended_places(data, 24 + length)
        else:  # header (8), cookie, priority, reason, table, duration (8), 2 time-outs, packets, bytes, match
            cookie, priority, table = struct.unpack_from("!QHxB", data, 8)
            match, places = from_11(data, 48)[0], (32, 40)
        if match.is_simple:
            _add(data, places, self._flows.removed_counts(table, priority, match.in_port, match.eth_dst, cookie))

    def _aggregate(self, data: bytearray, at: int) -> None:
        """Add to an aggregate reply the flows that its request selects."""
        selection = self._aggregates.answered(data)
        if selection is not None:
            places = _extended_places(data, at) if data[0] == V15 else (at, at + 8)
            _add(data, places, selection.sum(self._flows))

    def _tables(self, data: bytearray, at: int) -> None:
        """Add to the entry of table 0, in which a flow has matched all that the kernel forwarded or dropped."""
        packets = sum(counts.received.packets for counts in self._flows.port_counts().values())
        length, lookups = _TABLE_ENTRIES.get(data[0], (24, 8))
        for start in range(at, len(data) - length + 1, length):
            if data[start] == 0:
                _add(data, (start + lookups, start + lookups + 8), (packets, packets))

    def _port_entries(self, data: bytearray, at: int) -> None:
        """Add to the entries of port statistics: packets received, packets sent, bytes received, bytes sent."""
        version, counts = data[0], self._flows.port_counts()
        for start in _entries(data, at, 80, _PORT_ENTRIES.get(version)):
            if version == V10:
                number, first = wide_port(struct.unpack_from("!H", data, start)[0]), start + 8
            else:
                late = version >= V14  # length, 2 pad, port, duration (8), counters; before: port, 4 pad, counters
                number, first = struct.unpack_from("!I", data, start + 4 * late)[0], start + 8 + 8 * late
            if number in counts:
                received, sent, _ = counts[number]
                _add(data, (first, first + 16), received)
                _add(data, (first + 8, first + 24), sent)

    def _ports(self, data: bytearray, at: int) -> None:
        """Name the ports in the descriptions from ``at`` on."""
        version = data[0]
        name_at = 8 if version == V10 else 16
        length = 48 if version == V10 else 64 if version < V14 else None
        for start in _entries(data, at, 40, length, length_at=4):
            place = slice(start + name_at, start + name_at + _NAME_LENGTH)
            name = self._flows.port_names.get(data[place].rstrip(b"\0").decode("ascii", "replace"))
            if name is not None:
                data[place] = name.encode()[: _NAME_LENGTH - 1].ljust(_NAME_LENGTH, b"\0")


def _is_nicira_removed(message: bytes) -> bool:
    return len(message) >= 16 and struct.unpack_from("!II", message, 8) == (NICIRA, _NX_REMOVED)


def _entries(data: bytearray, at: int, least: int, length: int | None = None, length_at: int = 0) -> Iterator[int]:
    """Where each entry begins. Entries of no fixed ``length`` have theirs in 2 bytes at ``length_at``."""
    while at + least <= len(data):
        taken = length or struct.unpack_from("!H", data, at + length_at)[0]
        if taken < least or at + taken > len(data):
            return
        yield at
        at += taken


def _extended_places(data: bytearray, at: int) -> tuple[int, ...]:
    """Where the counters of packets and bytes are in the statistics of OpenFlow 1.5 at ``at``; 0 for none."""
    places, end = [0, 0], at + struct.unpack_from("!H", data, at + 2)[0]
    at += 4
    while at + 4 <= end:
        group, field, size = struct.unpack_from("!HBB", data, at)
        if group == _OXS and size == 8 and field >> 1 in (_OXS_PACKETS, _OXS_BYTES):
            places[field >> 1 == _OXS_BYTES] = at + 4
        at += 4 + size
    return tuple(places)


def _add(data: bytearray, places: Iterable[int], amounts: Iterable[int]) -> None:
    """Add to the 64-bit counters at ``places``."""
    for place, amount in zip(places, amounts, strict=True):
        if place and amount:
            (value,) = struct.unpack_from("!Q", data, place)
            if value != _UNKNOWN:
                struct.pack_into("!Q", data, place, (value + amount) & _UNKNOWN)
