"""Our messages inside TCP streams: each direction put together by sequence numbers, from its SYN on. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from measure.live.packets import End, Packet, Segment, tcp_segment
from railyard.errors import VerifyError
from workloads.agent.transport.message import HEADER_BYTES, Header

_MODULUS = 1 << 32


@dataclass(frozen=True)
class StreamMessage:
    """A message that begins ``start`` bytes into its stream."""

    start: int
    header: Header

    @property
    def body(self) -> int:
        """Where its payload begins."""
        return self.start + HEADER_BYTES

    @property
    def end(self) -> int:
        """Where the next message begins."""
        return self.body + self.header.length


class Stream:
    """One direction of a connection. Offsets count the payload from 0, over any number of wraps of the sequence."""

    def __init__(self, src: End, dst: End, initial: int) -> None:
        self.src, self.dst, self.initial = src, dst, initial
        self._highest = 0
        self._pieces: list[tuple[int, bytes]] = []

    def add(self, segment: Segment) -> int:
        """Take in a segment; the offset of its payload. Any order will do, and the same bytes any number of times."""
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
        """All messages in order, up to the first header that no packet holds (ask when all segments are in)."""
        whole = _disjoint(self._pieces)
        starts = [start for start, _ in whole]
        found: list[StreamMessage] = []
        at = 0
        while (head := _read(whole, starts, at)) is not None:
            try:
                message = StreamMessage(at, Header.unpack(head))
            except VerifyError:  # not a stream of ours
                break
            found.append(message)
            at = message.end
        return tuple(found)

    def within(self, start: int, end: int) -> tuple[StreamMessage, ...]:
        """The messages that have bytes in ``start`` to ``end``."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, end - 1)
        return tuple(m for m in self.messages[first:last] if m.end > start)

    @cached_property
    def _starts(self) -> list[int]:
        return [message.start for message in self.messages]


def _disjoint(pieces: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The same bytes, each once, in order."""
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
    """The header's bytes at offset ``at``; None if one of them is missing."""
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
    """Where a packet stands: bytes ``start`` to ``end`` of a stream, seen at its port before or not."""

    stream: Stream
    start: int
    end: int
    again: bool = False


@dataclass
class _Seen:
    """The bytes of a stream that passed one port in one direction, as disjoint intervals in order."""

    intervals: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int) -> bool:
        """Take in an interval; whether all of it had passed before."""
        before = any(a <= start and end <= b for a, b in self.intervals)
        touching = [(a, b) for a, b in self.intervals if a <= end and start <= b]
        apart = [(a, b) for a, b in self.intervals if not (a <= end and start <= b)]
        merged = (min([start, *(a for a, _ in touching)]), max([end, *(b for _, b in touching)]))
        self.intervals = sorted([*apart, merged])
        return before


def places(packets: Iterable[Packet]) -> list[Place | None]:
    """For each packet its place; None for one without payload or of a stream whose SYN was not captured.

    The same packet may have been captured at both ends. A connection that opens again between the same ports is a new
    stream.
    """
    ordered = list(packets)
    streams: dict[tuple[End, End], Stream] = {}
    seen: dict[tuple[Stream, str, bool], _Seen] = {}
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
        port = seen.setdefault((stream, packet.interface, packet.outgoing), _Seen())
        found[number] = Place(stream, start, end, port.add(start, end))
    return found
