"""Counters of interfaces and queues, all of a namespace in one netlink dump (``if_link.h``, ``pkt_sched.h``)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from railyard.errors import MachineError
from topos.namespaces import inside

_GETSTATS, _NEWSTATS, _GETQDISC, _NEWQDISC = 94, 92, 38, 36
_ERROR, _DONE = 2, 3
_DUMP_REQUEST = 0x301
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_LINK_STATS = struct.Struct("=8Q")
_RECEIVE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Counters of one interface since it was made, seen from it; a segment of TSO counts as one packet."""

    rx_bytes: int
    tx_bytes: int
    dropped: int
    rx_packets: int = 0
    tx_packets: int = 0


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Counters of the root queue (qdisc) of one interface."""

    bytes: int
    packets: int
    dropped: int
    backlog_bytes: int


class Counters:
    """A netlink socket in one namespace, for reading counters often and cheaply.

    Raises ``MachineError`` where the kernel does not answer.
    """

    def __init__(self, netns_fd: int | None = None) -> None:
        if netns_fd is None:
            self._open()
        else:
            with inside(netns_fd):
                self._open()

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.settimeout(10)
        self.names = dict(socket.if_nameindex())

    def links(self) -> dict[str, LinkCounters]:
        """Counters of every interface, by name; an interface made after this object is left out."""
        found = {}
        body = struct.pack("=BxHII", 0, 0, 0, 1)
        for data, start, end in self._dump(_GETSTATS, _NEWSTATS, body):
            name = self.names.get(struct.unpack_from("=I", data, start + 4)[0])
            place = _find(data, start + 12, end, 1)
            if name is not None and place is not None:
                rx_packets, tx_packets, rx, tx, _, _, rx_dropped, tx_dropped = _LINK_STATS.unpack_from(data, place)
                found[name] = LinkCounters(rx, tx, rx_dropped + tx_dropped, rx_packets, tx_packets)
        return found

    def queues(self) -> dict[str, QueueCounters]:
        """Counters of the root queue of every interface that has one, by name."""
        found = {}
        for data, start, end in self._dump(_GETQDISC, _NEWQDISC, struct.pack("=BxHiIII", 0, 0, 0, 0, 0, 0)):
            _, _, index, _, parent, _ = struct.unpack_from("=BxHiIII", data, start)
            place = _find(data, start + 20, end, 3)
            if parent == 0xFFFFFFFF and place is not None and index in self.names:
                sent, packets, dropped, _, _, _, _, backlog = struct.unpack_from("=QIIIIIII", data, place)
                found[self.names[index]] = QueueCounters(sent, packets, dropped, backlog)
        return found

    def _dump(self, request: int, answer: int, body: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Each answer of a dump, as (buffer, start of its body, its end)."""
        self._socket.send(_HEADER.pack(16 + len(body), request, _DUMP_REQUEST, 1, 0) + body)
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            offset = 0
            while offset + 16 <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", data, offset + 16)[0]
                    raise MachineError(f"reading the interface counters failed ({os.strerror(number)})")
                if kind == answer:
                    yield data, offset + 16, offset + length
                offset += (length + 3) & ~3

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _find(data: bytes, start: int, end: int, wanted: int) -> int | None:
    """Where the value of attribute ``wanted`` begins."""
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if kind & 0x3FFF == wanted:
            return start + 4
        if length < 4:
            return None
        start += (length + 3) & ~3
    return None
