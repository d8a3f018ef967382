"""Finds the agents' messages in captured TCP streams, reassembled by sequence numbers from the SYN on. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from measure.live.packets import End, Packet, Segment, tcp_segment
from measure.metrics.intervals import Interval, union
from railyard.errors import VerifyError
from workloads.agent.transport.message import HEADER_BYTES, Header

_MODULUS = 1 << 32


@dataclass(frozen=True)
class StreamMessage:
    """A message that begins at offset ``start`` of its stream, in bytes."""

    start: int
    header: Header

    @property
    def body(self) -> int:
        """Offset in the stream at which the payload of the message begins."""
        return self.start + HEADER_BYTES

    @property
    def end(self) -> int:
        """Offset in the stream at which the next message begins."""
        return self.body + self.header.length


class Stream:
    """One direction of a connection; offsets count payload bytes from 0, across wraps of the sequence number."""

    def __init__(self, src: End, dst: End, initial: int) -> None:
        self.src, self.dst, self.initial = src, dst, initial
        self._highest = 0
        self._pieces: list[tuple[int, bytes]] = []

    def add(self, segment: Segment) -> int:
        """Add a segment, in any order and any number of times, and return the offset of its payload."""
        ahead = (segment.sequence - self.initial - 1 - self._highest) % _MODULUS
        offset = self._highest + ahead - (_MODULUS if ahead >= _MODULUS // 2 else 0)
        if segment.syn:
            return 0
        if segment.payload:
            self._pieces.append((offset, segment.payload))
        self._highest = max(self._highest, offset)
        return offset

    @cached_property
    def messages(self) -> tuple[StreamMessage, ...]:
        """All messages in order, up to the first missing header; to be read after all segments are added."""
        whole = _disjoint(self._pieces)
        starts = [start for start, _ in whole]
        found: list[StreamMessage] = []
        at = 0
        while (head := _read(whole, starts, at)) is not None:
            try:
                message = StreamMessage(at, Header.unpack(head))
            except VerifyError:  # the stream of another program
                break
            found.append(message)
            at = message.end
        return tuple(found)

    def within(self, start: int, end: int) -> tuple[StreamMessage, ...]:
        """The messages with bytes at offsets from ``start`` to ``end`` (excluded)."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, end - 1)
        return tuple(m for m in self.messages[first:last] if m.end > start)

    @cached_property
    def _starts(self) -> list[int]:
        return [message.start for message in self.messages]


def _disjoint(pieces: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The bytes of overlapping pieces, each byte once, as (offset, data) in order."""
    found: list[tuple[int, bytes]] = []
    covered = 0
    for start, data in sorted(pieces, key=lambda piece: piece[0]):
        fresh = data[max(0, covered - start) :]
        if fresh:
            begin = start + len(data) - len(fresh)
            found.append((begin, fresh))
            covered = begin + len(fresh)
    return found


def _read(pieces: list[tuple[int, bytes]], starts: list[int], at: int) -> bytes | None:
    """The bytes of the header at offset ``at``; None if one of them is missing."""
    read = b""
    place = bisect_right(starts, at) - 1
    while len(read) < HEADER_BYTES:
        if not 0 <= place < len(pieces):
            return None
        start, data = pieces[place]
        skip = at + len(read) - start
        if not 0 <= skip < len(data):
            return None
        read += data[skip : skip + HEADER_BYTES - len(read)]
        place += 1
    return read


@dataclass
class Place:
    """Position of a packet: bytes ``start`` to ``end`` of a stream; ``again`` if its port saw them before."""

    stream: Stream
    start: int
    end: int
    again: bool = False


def places(packets: Iterable[Packet]) -> list[Place | None]:
    """The position of each packet; None for one without payload or of a stream whose SYN was not captured.

    A packet may have been captured at both ends. A connection that is opened again between the same ports is a new
    stream.
    """
    ordered = list(packets)
    streams: dict[tuple[End, End], Stream] = {}
    seen: dict[tuple[Stream, str, bool], list[Interval]] = defaultdict(list)
    found: list[Place | None] = [None] * len(ordered)
    for number in sorted(range(len(ordered)), key=lambda n: ordered[n].t_ns):
        packet = ordered[number]
        segment = tcp_segment(packet)
        if segment is None:
            continue
        key = segment.src, segment.dst
        stream = streams.get(key)
        if segment.syn and (stream is None or stream.initial != segment.sequence):
            stream = streams[key] = Stream(*key, segment.sequence)
        if stream is None or not segment.length:
            continue
        start = stream.add(segment)
        end = start + segment.length
        at = stream, packet.interface, packet.outgoing
        again = any(first <= start and end <= last for first, last in seen[at])
        seen[at] = union([*seen[at], (start, end)])
        found[number] = Place(stream, start, end, again)
    return found
