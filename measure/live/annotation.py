"""Describes captured packets in text (step, operation, round and chunk), and writes them for Wireshark as pcapng. Pure.

The agents' messages are found in the TCP streams, reassembled by sequence numbers from the SYN on.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from measure.live.packets import End, Packet, Segment, tcp_segment
from measure.metrics.intervals import Interval, union
from railyard.errors import VerifyError
from railyard.ownership import naming, open_binary
from topos.plan import FabricPlan
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Group, Program
from workloads.rank.flows import Flow
from workloads.rank.roll_call import WORDS

_ETHERNET = 1
_INBOUND, _OUTBOUND = 1, 2


def write_pcapng(
    path: Path,
    packets: Sequence[Packet],
    comments: Iterable[Sequence[str]] | None = None,
    *,
    interfaces: Sequence[str] = (),
) -> None:
    """Write ``packets`` in order of time, each with its ``comments`` (see ``measure.live.annotation.annotate``).

    Each of ``interfaces`` gets a block with its name, also if no packet was captured there; other interfaces of packets
    follow. Times are in microseconds, as most readers expect.
    """
    from scapy.utils import RawPcapNgWriter  # imported here, since it is slow and only a capture needs it

    names = list(dict.fromkeys([*interfaces, *(packet.interface for packet in packets)]))
    comments_of = [()] * len(packets) if comments is None else list(comments)

    class Writer(RawPcapNgWriter):
        """Writes a named block for every interface first; scapy's own writer would begin with an unnamed one."""

        def _write_header(self, pkt: object) -> None:
            self.header_present = True
            self.interfaces2id = {name.encode(): number for number, name in enumerate(names)}
            self._write_block_shb()
            for name in names:
                self._write_block_idb(linktype=_ETHERNET, ifname=name.encode())

    make: Any = Writer  # of a descriptor, which it closes, in the place of a name
    with naming(path), open_binary(path, "wb") as file, make(os.dup(file.fileno())) as out:
        out.linktype = _ETHERNET
        out.write_header(None)
        for packet, lines in sorted(zip(packets, comments_of, strict=True), key=lambda pair: pair[0].t_ns):
            out._write_packet(
                packet.data,
                linktype=_ETHERNET,
                sec=Fraction(packet.t_ns, 10**9),  # a float would be off by a fraction of a microsecond
                wirelen=packet.length,
                ifname=packet.interface.encode(),
                direction=_OUTBOUND if packet.outgoing else _INBOUND,
                comments=[line.encode() for line in lines],
            )


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


class TcpStream:
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
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, end - 1)
        return tuple(m for m in self.messages[first:last] if m.end > start)

    @cached_property
    def _starts(self) -> list[int]:
        return [message.start for message in self.messages]


def _disjoint(pieces: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
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
class StreamSpan:
    """Position of a packet: bytes ``start`` to ``end`` of a stream; ``again`` if its port saw them before."""

    stream: TcpStream
    start: int
    end: int
    again: bool = False


def places(packets: Iterable[Packet]) -> list[StreamSpan | None]:
    """The position of each packet; None for one without payload or of a stream whose SYN was not captured.

    A packet may have been captured at both ends. A connection that is opened again between the same ports is a new
    stream.
    """
    ordered = list(packets)
    streams: dict[tuple[End, End], TcpStream] = {}
    seen: dict[tuple[TcpStream, str, bool], list[Interval]] = defaultdict(list)
    found: list[StreamSpan | None] = [None] * len(ordered)
    for number in sorted(range(len(ordered)), key=lambda n: ordered[n].t_ns):
        packet = ordered[number]
        segment = tcp_segment(packet)
        if segment is None:
            continue
        key = segment.src, segment.dst
        stream = streams.get(key)
        if segment.syn and (stream is None or stream.initial != segment.sequence):
            stream = streams[key] = TcpStream(*key, segment.sequence)
        if stream is None or not segment.length:
            continue
        start = stream.add(segment)
        end = start + segment.length
        at = stream, packet.interface, packet.outgoing
        again = any(first <= start and end <= last for first, last in seen[at])
        seen[at] = union([*seen[at], (start, end)])
        found[number] = StreamSpan(stream, start, end, again)
    return found


def annotate(packets: Sequence[Packet], program: Program, plan: FabricPlan) -> list[tuple[str, ...]]:
    """For each packet one comment per message that has bytes in it; none for acks and packets of other programs.

    ``packets`` may be in any order and from any number of ports. A stream is followed from its SYN on until a message
    header is missing in the capture; packets after that get no comment.
    """
    names = Names(program, plan)
    return [() if place is None else tuple(_comments(place, names)) for place in places(packets)]


def _comments(place: StreamSpan, names: Names) -> list[str]:
    again = "sent again: " if place.again else ""
    src, dst = names.rank_of(place.stream.src[0]), names.rank_of(place.stream.dst[0])
    return [
        again + names.message(message.header, src, dst) + _bytes(message, place)
        for message in place.stream.within(place.start, place.end)
    ]


def _bytes(message: StreamMessage, place: StreamSpan) -> str:
    """Text for the bytes of the message in the packet, counted from 0, both ends included."""
    first, last = max(place.start, message.body), min(place.end, message.end) - 1
    if message.header.kind != "data":
        return ""
    if first > last:
        return f", header of {message.header.length} bytes"
    return f", bytes {first - message.body}-{last - message.body} of {message.header.length}"


class Names:
    """Translates the numbers in a message header into names of ranks, groups, operations and transfers."""

    def __init__(self, program: Program, plan: FabricPlan) -> None:
        self._program = program
        self._groups = tuple(program.groups.values())
        self._ranks = {port.ip.split("/")[0]: port.rank for switch in plan.switches for port in switch.ports}
        self._collectives: dict[str, tuple[Collective, ...]] = {}

    def rank_of(self, address: str) -> str:
        """The rank with this address as text, ``rank 3``, or the address itself if it is no rank's."""
        rank = self._ranks.get(address)
        return address if rank is None else f"rank {rank}"

    def message(self, header: Header, src: str, dst: str) -> str:
        """Text for the operation and the transfer of a message from ``src`` to ``dst``."""
        flow = header.flow
        if flow.group >= len(self._groups):
            return f"step {flow.step}, group {flow.group} (unknown to the program)"
        group = self._groups[flow.group]
        op = None if flow.point_to_point else self._collective(group, flow)
        kind = "send" if flow.point_to_point else "collective" if op is None else op.kind.replace("_", "-")
        what = f"step {flow.step}, {kind} {group.name} #{flow.sequence}"
        if header.kind == "ready":
            rounds = "" if flow.point_to_point else f", up to round {header.transfer}"
            return f"{what}: {src} is ready to receive from {dst}{rounds}"
        if header.kind == "told":
            word = WORDS[header.length] if header.length < len(WORDS) else "nothing"
            return f"{what}: {src} tells {dst} {word} {header.transfer}"
        if op is None:
            return f"{what}: {src} -> {dst}"
        return f"{what}, transfer {header.transfer}: " + self._transfer(op, group, header.transfer)

    def _collective(self, group: Group, flow: Flow) -> Collective | None:
        """The collective that ``flow`` belongs to, found by its number in the group; None if it is unknown."""
        if group.name not in self._collectives:
            mine = self._program.communications(group.members[0])
            self._collectives[group.name] = tuple(
                op for op in mine if isinstance(op, Collective) and op.group == group.name
            )
        known = self._collectives[group.name]
        return known[flow.sequence] if flow.sequence < len(known) else None

    def _transfer(self, op: Collective, group: Group, number: int) -> str:
        schedule = schedule_of(self._program, op)
        if schedule.pieces:
            return "of a schedule on which its members agree as it runs"
        transfers = schedule.transfers
        if number >= len(transfers):
            return f"beyond the {len(transfers)} transfers of its schedule"
        t = transfers[number]
        slot = f" into slot {t.slot}" if t.slot != t.chunk else ""
        ends = f"rank {group.members[t.src]} -> rank {group.members[t.dst]}"
        return f"round {t.round}, chunk {t.chunk} {t.op}{slot}, {ends}"
