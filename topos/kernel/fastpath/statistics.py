"""Statistics of Open vSwitch with what the fast path forwarded added, in the bytes of OpenFlow 1.0 to 1.5.

Open vSwitch does not see the packets that the kernel forwards. The relay between a bridge and its clients therefore
passes each reply through ``Statistics.answered``, which adds the kernel's counts to flow, aggregate, table and port
statistics and to flow-removed messages, and names the ports as Mininet does. Counters of -1 (unknown) stay.

The structures are those of the OpenFlow Switch Specifications 1.0.0 to 1.5.1 and of ``nicira-ext.h`` of Open vSwitch;
all numbers are big-endian. Offsets in this module are bytes from the start of the structure that the comment names.

Some flow-mods set the counts of a flow to zero (``OpenResets``): a flow that is added in place of an equal one begins
at zero in OpenFlow 1.0 and 1.1. Since 1.2 it keeps the counts of the other one, as a modified flow does, unless the
flow-mod has the flag OFPFF_RESET_COUNTS. The changes that a flow monitor reports do not tell the two apart. A flow-mod
takes effect when it is sent, or in a bundle when the bundle is committed. If the bridge answers with an error, what was
set to zero has to be as before.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from topos.kernel.fastpath.openflow import (
    ANY_PORT,
    NICIRA,
    V10,
    V11,
    V12,
    V13,
    V14,
    V15,
    SimpleMatch,
    from_10,
    from_11,
    from_fields,
    wide_port,
)
from topos.kernel.fastpath.rules import Counts
from topos.kernel.fastpath.tables import FlowTables, Reset

_FLOW_MOD, _BUNDLE_CONTROL, _BUNDLE_ADD = 14, 33, 34
_NX_FLOW_MOD, _ONF, _ONF_BUNDLE_CONTROL, _ONF_BUNDLE_ADD = 13, 0x4F4E4600, 2300, 2301
_COMMIT, _DISCARD = 4, 6
_ADD, _MODIFY, _MODIFY_STRICT = 0, 1, 2
_RESET_COUNTS = 1 << 2
_MOST_OPEN = 1 << 10
"""Messages and bundles of one connection that are remembered."""
_MOST_IN_BUNDLE = 1 << 16


def resets(message: bytes, at: int = 0) -> Iterator[Reset]:
    """Flows whose counts the message at ``at``, alone or in a bundle, resets; ``struct.error`` if it is cut short."""
    version, kind = struct.unpack_from("!BB", message, at)
    if kind == _BUNDLE_ADD and at == 0:
        yield from resets(message, 16)
    elif kind == _FLOW_MOD and version == V10:  # match, cookie, table and command, 2 time-outs, priority
        table, command, priority = struct.unpack_from("!BB4xH", message, at + 56)
        yield from _reset(command, command == _ADD, table, priority, from_10(message, at + 8))
    elif kind == _FLOW_MOD:  # cookie, mask, table, command, 2 time-outs, priority, 12 bytes, flags, 2 bytes, match
        table, command, priority, flags = struct.unpack_from("!BB4xH12xH", message, at + 24)
        zero = command == _ADD if version < V12 else bool(flags & _RESET_COUNTS)
        if zero:
            yield from _reset(command, zero, table, priority, from_11(message, at + 48)[0])
    elif kind == _VENDOR and len(message) - at >= 16:
        yield from _vendor(message, at)


def _vendor(message: bytes, at: int) -> Iterator[Reset]:
    vendor = struct.unpack_from("!II", message, at + 8)
    if vendor == (_ONF, _ONF_BUNDLE_ADD) and at == 0:
        yield from resets(message, 24)
    elif vendor == (NICIRA, _NX_FLOW_MOD):  # cookie, table and command, 2 time-outs, priority, 8 bytes, match's length
        table, command, priority, length = struct.unpack_from("!BB4xH8xH", message, at + 24)
        yield from _reset(command, command == _ADD, table, priority, from_fields(message, at + 48, length))


def _reset(command: int, zero: bool, table: int, priority: int, match: SimpleMatch) -> Iterator[Reset]:
    if zero and command in (_ADD, _MODIFY, _MODIFY_STRICT):
        yield Reset(command == _ADD, table, None if command == _MODIFY else priority, match)


class OpenResets:
    """The resets of one connection that the bridge may refuse yet.

    ``reset`` carries one out, and returns a function that takes it back.
    """

    def __init__(self, reset: Callable[[Reset], Callable[[], object]]) -> None:
        self._reset = reset
        self._bundles: OrderedDict[int, list[Reset]] = OrderedDict()
        self._done: OrderedDict[int, list[Callable[[], object]]] = OrderedDict()

    def asked(self, message: bytes) -> None:
        """Carry out what a message of the client sets to zero; ``struct.error`` if it is cut short."""
        bundle, step = _bundle(message)
        zeroed = list(resets(message))
        if bundle is not None and step is None:
            if zeroed:
                held = self._bundles.setdefault(bundle, [])
                held += zeroed[: _MOST_IN_BUNDLE - len(held)]
                _limit(self._bundles)
            return
        if bundle is not None and step in (_COMMIT, _DISCARD):
            zeroed = self._bundles.pop(bundle, [])
        if zeroed and step != _DISCARD:
            self._done[int.from_bytes(message[4:8], "big")] = [self._reset(reset) for reset in zeroed]
            _limit(self._done)

    def refused(self, error: bytes) -> None:
        """Take back what the message that ``error`` answers has set to zero."""
        for take_back in reversed(self._done.pop(int.from_bytes(error[4:8], "big"), [])):
            take_back()


def _bundle(message: bytes) -> tuple[int | None, int | None]:
    """(bundle, what a message does with it): None for no bundle; None for a message that is added to it."""
    kind, at = message[1], 8
    if kind == _VENDOR and len(message) >= 24 and struct.unpack_from("!I", message, 8)[0] == _ONF:
        subtype = struct.unpack_from("!I", message, 12)[0]
        kind, at = {_ONF_BUNDLE_CONTROL: _BUNDLE_CONTROL, _ONF_BUNDLE_ADD: _BUNDLE_ADD}.get(subtype, kind), 16
    if kind not in (_BUNDLE_CONTROL, _BUNDLE_ADD) or (at == 8 and message[0] < V14):
        return None, None
    bundle, step = struct.unpack_from("!IH", message, at)
    return bundle, step if kind == _BUNDLE_CONTROL else None


def _limit(remembered: OrderedDict[int, Any]) -> None:
    if len(remembered) > _MOST_OPEN:
        remembered.popitem(last=False)


_ERROR, _VENDOR, _FEATURES, _REMOVED, _PORT_STATUS = 1, 4, 6, 11, 12
_FLOW, _AGGREGATE, _TABLE, _PORT, _PORT_DESCRIPTION, _EXTENSION = 1, 2, 3, 4, 13, 0xFFFF
_NX_FLOW, _NX_AGGREGATE, _NX_REMOVED = 0, 1, 14
_ALL_TABLES = 255
_OPEN_REQUESTS = 256
"""How many aggregate requests without a reply are remembered; older ones are forgotten."""
_OXS, _OXS_PACKETS, _OXS_BYTES = 0x8002, 4, 5
_UNKNOWN = (1 << 64) - 1
_NAME_LENGTH = 16
_RATES = {10: 1 << 1, 100: 1 << 3, 1_000: 1 << 5, 10_000: 1 << 6, 40_000: 1 << 7, 100_000: 1 << 8, 1_000_000: 1 << 9}
"""Mb/s, full duplex -> its bit among the features of a port. OpenFlow 1.0 knows no more than 10 Gb/s."""
_OTHER_RATE = 1 << 10
_NICIRA_BODY = 24
"""Where the body of a statistics reply of Nicira's begins."""
_LEAST_PORT_ENTRY, _LEAST_DESCRIPTION = 80, 40
_ETHERNET_HEADER = 14


class _Flow(NamedTuple):
    """Offsets of the numbers of a flow in an entry of flow statistics or in a flow-removed message; 0: it has none.

    Packets are at ``counters`` and bytes behind them; in OpenFlow 1.5 both are in a list behind the match instead.
    """

    priority: int
    match: int
    counters: int = 0
    table: int = 0
    cookie: int = 0
    match_length: int = 0
    """Of Nicira's list of fields, which says its length elsewhere."""


class _Version(NamedTuple):
    """The form of one version: offsets, and lengths of entries (0: an entry says its length itself)."""

    entry: _Flow
    removed: _Flow
    table_length: int = 24
    lookups: int = 8
    port_length: int = 104
    port_number: int = 0
    port_counters: int = 8
    description_length: int = 64
    name: int = 16
    body: int = 16
    """Where the body of a statistics reply begins."""


_ENTRY_11 = _Flow(table=2, priority=12, counters=32, match=48)
_REMOVED_11 = _Flow(cookie=8, priority=16, table=19, counters=32, match=48)
_ENTRY_NICIRA = _Flow(table=2, priority=12, match_length=18, counters=32, match=48)
_REMOVED_NICIRA = _Flow(cookie=16, priority=24, table=27, match_length=38, counters=40, match=56)
_LATE_PORT = {"port_length": 0, "port_number": 4, "port_counters": 16, "description_length": 0}
"""Of OpenFlow 1.4 and later."""
_VERSIONS = {
    V10: _Version(
        entry=_Flow(table=2, match=4, priority=52, counters=72),
        removed=_Flow(match=8, cookie=48, priority=56, counters=72),
        table_length=64,
        lookups=48,
        description_length=48,
        name=8,
        body=12,
    ),
    V11: _Version(_ENTRY_11, _REMOVED_11, table_length=88, lookups=72),
    V12: _Version(_ENTRY_11, _REMOVED_11, table_length=128, lookups=112),
    V13: _Version(_ENTRY_11, _REMOVED_11, port_length=112),
    V14: _Version(_ENTRY_11, _REMOVED_11, **_LATE_PORT),
    V15: _Version(
        entry=_Flow(table=4, priority=6, match=24),
        removed=_Flow(table=8, priority=10, cookie=16, match=24),
        **_LATE_PORT,
    ),
}


class Selection(NamedTuple):
    """The flows that an aggregate request selects."""

    match: SimpleMatch
    table: int
    out_port: int
    out_group: int = ANY_PORT
    cookie: int = 0
    cookie_mask: int = 0

    def sum(self, flows: FlowTables) -> Counts:
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


class Statistics:
    """Rewrites the replies to one connection of a client to a bridge.

    It remembers the aggregate requests that are open, since their replies do not say what was asked for. Messages are
    whole OpenFlow messages with their header; a message that is cut short or of an unknown form passes unchanged.
    """

    def __init__(self, flows: FlowTables) -> None:
        self._flows = flows
        self._aggregates: deque[tuple[int, Selection]] = deque(maxlen=_OPEN_REQUESTS)
        """The aggregate requests that have no reply yet."""
        self._resets = OpenResets(flows.reset)

    def asked(self, message: bytes) -> None:
        """Take note of a message of the client, before the bridge carries it out."""
        kind = statistics_kind(message, reply=False)
        if kind in ((_AGGREGATE, None), (_EXTENSION, _NX_AGGREGATE)):
            with suppress(struct.error):
                self._aggregates.append((_xid(message), selection(message)))
        with suppress(struct.error):
            self._resets.asked(message)

    def concerns(self, message: bytes) -> bool:
        """Whether a message of the bridge has to wait until the kernel's rules are up to date, and be rewritten."""
        version, kind = message[0], message[1]
        if version not in _VERSIONS:
            return False
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
        if what == _EXTENSION:
            return subtype in (_NX_FLOW, _NX_AGGREGATE)
        return what in (_FLOW, _AGGREGATE, _TABLE, _PORT, _PORT_DESCRIPTION)

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
        kind, form = data[1], _VERSIONS[data[0]]
        if kind == _VENDOR:
            self._removed(data, _REMOVED_NICIRA)
        elif kind == _REMOVED:
            self._removed(data, form.removed)
        elif kind == _FEATURES:
            self._ports(data, 32, form)
        elif kind == _PORT_STATUS:
            self._ports(data, 16, form)
        else:
            self._statistics(data, form)

    def _statistics(self, data: bytearray, form: _Version) -> None:
        (kind,) = struct.unpack_from("!H", data, 8)
        if kind == _EXTENSION and struct.unpack_from("!I", data, 16)[0] == _NX_FLOW:
            self._flow_entries(data, _NICIRA_BODY, _ENTRY_NICIRA)
        elif kind == _EXTENSION:
            self._aggregate(data, _NICIRA_BODY)
        elif kind == _FLOW:
            self._flow_entries(data, form.body, form.entry)
        elif kind == _AGGREGATE:
            self._aggregate(data, form.body)
        elif kind == _TABLE:
            self._tables(data, form)
        elif kind == _PORT:
            self._port_entries(data, form)
        else:
            self._ports(data, form.body, form)

    def _flow_entries(self, data: bytearray, at: int, form: _Flow) -> None:
        for start in _entries(data, at, max(form.match, form.counters)):
            table, priority, match, _, places = _flow_at(data, start, form)
            if match.is_simple:
                _add(data, places, self._flows.counts_of(table, priority, match.in_port, match.eth_dst))

    def _removed(self, data: bytearray, form: _Flow) -> None:
        table, priority, match, cookie, places = _flow_at(data, 0, form)
        if form is _REMOVED_NICIRA:
            table = max(table - 1, 0)
        if match.is_simple:
            _add(data, places, self._flows.removed_counts(table, priority, match.in_port, match.eth_dst, cookie))

    def _aggregate(self, data: bytearray, at: int) -> None:
        """Add to an aggregate reply the flows that its request selects."""
        number = _xid(data)
        request = next((entry for entry in self._aggregates if entry[0] == number), None)
        if request is not None:
            self._aggregates.remove(request)
            places = _extended_places(data, at) if data[0] == V15 else (at, at + 8)
            _add(data, places, request[1].sum(self._flows))

    def _tables(self, data: bytearray, form: _Version) -> None:
        """Add to the entry of table 0, in which a flow has matched all that the kernel forwarded or dropped."""
        packets = sum(counts.received.packets for counts in self._flows.port_counts().values())
        for start in _entries(data, form.body, form.table_length, form.table_length):
            if data[start] == 0:  # lookups, then matches
                _add(data, (start + form.lookups, start + form.lookups + 8), (packets, packets))

    def _port_entries(self, data: bytearray, form: _Version) -> None:
        counts = self._flows.port_counts()
        for start in _entries(data, form.body, _LEAST_PORT_ENTRY, form.port_length):
            number, first = _port_number(data, start + form.port_number), start + form.port_counters
            if number in counts:
                if self._flows.counts_exchanged:
                    _exchange(data, first)
                received, sent, _ = counts[number]
                _add(data, (first, first + 16), received)
                _add(data, (first + 8, first + 24), sent)

    def _ports(self, data: bytearray, at: int, form: _Version) -> None:
        for start in _entries(data, at, _LEAST_DESCRIPTION, form.description_length, length_at=4):
            place = slice(start + form.name, start + form.name + _NAME_LENGTH)
            tap = data[place].rstrip(b"\0").decode("ascii", "replace")
            name, kbps = self._flows.port_names.get(tap), self._flows.port_speeds.get(tap)
            if kbps is not None:
                _set_speed(data, start, kbps)
            if name is not None:
                data[place] = name.encode()[: _NAME_LENGTH - 1].ljust(_NAME_LENGTH, b"\0")


def _exchange(data: bytearray, at: int) -> None:
    """Exchange received and sent of a port, whose 8 counters begin ``at``: packets, bytes, drops, errors.

    The kernel's device counts what it received, which the switch sent, without the Ethernet header.
    """
    received, sent, received_bytes, sent_bytes, *others = struct.unpack_from("!8Q", data, at)
    counters = sent, received, sent_bytes, received_bytes + _ETHERNET_HEADER * received, *others[1::-1], *others[:1:-1]
    struct.pack_into("!8Q", data, at, *counters)


def _flow_at(data: bytearray, start: int, form: _Flow) -> tuple[int, int, SimpleMatch, int, tuple[int, ...]]:
    """Of the flow at ``start``: table, priority, match, cookie, and where its counters of packets and bytes are."""
    version, at, length = data[0], start + form.match, 0
    if form.match_length:
        match = from_fields(data, at, *struct.unpack_from("!H", data, start + form.match_length))
    elif version == V10:
        match = from_10(data, at)
    else:
        match, length = from_11(data, at)
    (priority,) = struct.unpack_from("!H", data, start + form.priority)
    (cookie,) = struct.unpack_from("!Q", data, start + form.cookie) if form.cookie else (0,)
    table = data[start + form.table] if form.table else 0
    first = start + form.counters
    places = (first, first + 8) if form.counters else _extended_places(data, at + length)
    return table, priority, match, cookie, places


def _set_speed(data: bytearray, start: int, kbps: int) -> None:
    """Write a rate into the description of a port at ``start``.

    OpenFlow 1.0 has only bits: that of the next lower rate, or of 10 Mb/s.
    """
    if data[0] == V10:
        rate = max([10, *(rate for rate in _RATES if rate <= min(kbps / 1000, 10_000))])
        struct.pack_into("!I", data, start + 32, _RATES[rate])
        return
    late = data[0] >= V14
    if late and (data[start + 5] < 72 or data[start + 40 : start + 42] != b"\0\0"):
        return  # its first property is not that of an Ethernet port
    features = start + (48 if late else 40)  # current, 3 others, current rate, highest rate
    struct.pack_into("!I", data, features, _RATES.get(kbps // 1000, _OTHER_RATE) if kbps % 1000 == 0 else _OTHER_RATE)
    struct.pack_into("!II", data, features + 16, kbps, kbps)


def _port_number(data: bytearray, at: int) -> int:
    if data[0] == V10:
        return wide_port(struct.unpack_from("!H", data, at)[0])
    number: int = struct.unpack_from("!I", data, at)[0]
    return number


def selection(message: bytes) -> Selection:
    """The flows that an aggregate request selects; ``struct.error`` if it is cut short."""
    version, what = message[0], struct.unpack_from("!H", message, 8)[0]
    if what == _EXTENSION:  # after 24 bytes: out_port, match's length, table, 3 pad, match
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
    if what != _EXTENSION:
        return what, None
    if message[0] != V10 or len(message) < 24:
        return None
    vendor, subtype = struct.unpack_from("!II", message, 12)
    return (what, subtype) if vendor == NICIRA else None


def _xid(message: bytes | bytearray) -> int:
    return int(struct.unpack_from("!I", message, 4)[0])


def _is_nicira_removed(message: bytes) -> bool:
    return len(message) >= 16 and struct.unpack_from("!II", message, 8) == (NICIRA, _NX_REMOVED)


def _entries(data: bytearray, at: int, least: int, length: int = 0, length_at: int = 0) -> Iterator[int]:
    """Where the entries begin. Those of no fixed ``length`` have theirs in 2 bytes at ``length_at``."""
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
