"""Reads a packet capture (pcap, pcapng) as a program: which host sent how many bytes to which, and when.

Hosts are ranks, in the order in which their IP addresses appear. The packets of a flow (protocol, addresses, ports; one
direction) that follow one another within ``GAP_S`` are a message of their payload. Bytes of TCP are counted once, by
their sequence numbers, so that retransmissions and packets that were captured twice add nothing. The time that passed
at a host before it sent a message, since it last received or sent something, is its compute. So each message leaves as
long after what came before it as in the capture: on a faster network all is over sooner.
"""

from __future__ import annotations

import logging
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from railyard.errors import ConfigError
from railyard.reading import read_bytes
from workloads.formats.reading import Reading
from workloads.program import Compute, Group, Operation, Program, Recv, Send, check_size

GAP_S = 0.01
"""A flow that is silent for so long has ended a message."""
MOST_BYTES, MOST_PACKETS = 64 << 20, 500_000
MAGICS = frozenset(map(bytes.fromhex, ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")))
"""First bytes of a pcap in microseconds or nanoseconds, of both byte orders, and of a pcapng."""
_MOST_SHOWN = 8
_TCP, _UDP, _SYN, _ETHERNET = 6, 17, 2, 1
_IP_AT = {0: 4, 1: 14, 12: 0, 14: 0, 101: 0, 108: 4, 113: 16, 228: 0, 229: 0, 276: 20}
"""Where the IP header begins by type of link (tcpdump.org/linktypes.html); 1 is Ethernet, 113 Linux's "any"."""
_MOST_HOLE_BYTES = 1 << 24
"""More bytes than this cannot be missing between two packets: a new connection has the ports of an old one."""


class Endpoints(NamedTuple):
    """One direction of a conversation; ports are 0 where the protocol is neither TCP nor UDP."""

    protocol: int
    src: bytes
    src_port: int
    dst: bytes
    dst_port: int

    def __str__(self) -> str:
        name = {_TCP: "TCP", _UDP: "UDP"}.get(self.protocol, f"protocol {self.protocol}")
        return f"{name} {ip_address(self.src)} port {self.src_port} to {ip_address(self.dst)} port {self.dst_port}"


class SentPayload(NamedTuple):
    """The payload of an IP packet; ``sequence`` is the number of its first byte, None but for TCP."""

    t_ns: int
    flow: Endpoints
    bytes: int
    sequence: int | None = None
    syn: bool = False


@dataclass
class Message:
    """Bytes that a flow sent without a long gap, from its first packet to its last."""

    flow: Endpoints
    start_ns: int
    end_ns: int
    bytes: int


def read_pcap(path: Path) -> Reading:
    """The program in a capture; ``ConfigError`` naming the file for what is none, is cut off, or has no two hosts."""
    data = read_bytes(path, MOST_BYTES, "a packet capture")
    if data[:4] not in MAGICS:
        raise ConfigError("is not a packet capture; tcpdump -w and Wireshark write them", source=str(path))
    messages = messages_of(_payloads(data, str(path)))
    if not messages:
        raise ConfigError(
            "has no IP packets with payload from one host to another; capture where they pass, not on lo",
            source=str(path),
        )
    addresses = dict.fromkeys(address for each in messages for address in (each.flow.src, each.flow.dst))
    hosts = {address: rank for rank, address in enumerate(addresses)}
    check_size(len(hosts), 3 * len(messages), "ranks", str(path))
    return Reading("packet capture", program_of(path.stem, hosts, messages), tuple(_notes(hosts, messages)))


def _notes(hosts: dict[bytes, int], messages: Sequence[Message]) -> Iterator[str]:
    flows: dict[Endpoints, list[Message]] = defaultdict(list)
    for message in messages:
        flows[message.flow].append(message)
    names = [f"rank {rank} is {ip_address(address)}" for address, rank in hosts.items()]
    yield ", ".join(names[:_MOST_SHOWN]) + (
        f", and {more} more hosts." if (more := len(names) - _MOST_SHOWN) > 0 else "."
    )
    began, ended = min(each.start_ns for each in messages), max(each.end_ns for each in messages)
    total = sum(each.bytes for each in messages)
    yield (
        f"{len(flows)} flows sent {total:,} bytes of payload in {len(messages)} messages (a flow that is silent for "
        f"{GAP_S * 1e3:g} ms has ended one) within {(ended - began) / 1e9:.6g} s."
    )
    sizes = {flow: sum(each.bytes for each in sent) for flow, sent in flows.items()}
    for flow in sorted(sizes, key=lambda flow: -sizes[flow])[:_MOST_SHOWN]:
        yield f"{flow}: {sizes[flow]:,} bytes, messages: {len(flows[flow])}."


class _CutOff(Exception):
    """The file ends within a packet or another block."""


class _Whole(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if 0 < len(found) < (size or 0):
            raise _CutOff
        return found


def _payloads(data: bytes, source: str) -> Iterator[SentPayload]:
    """The payload of every IP packet of a capture that one host sent to one other, in the order of the file."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapNgReader

    logging.getLogger("scapy").setLevel(logging.ERROR)  # it warns of what is not needed here
    number = 0
    try:
        reader: Any = RawPcapNgReader(_Whole(data))  # type: ignore[arg-type]
        for number, (frame, about) in enumerate(reader, 1):
            if number > MOST_PACKETS:
                raise ConfigError(f"has more than {MOST_PACKETS} packets, the most that are read", source=source)
            if hasattr(about, "sec"):
                t_ns, linktype = about.sec * 10**9 + about.usec * (1 if reader.nano else 1000), reader.linktype
            elif about.tshigh is None:
                raise ConfigError(f"says no time of packet {number}; capture it as pcap", source=source)
            else:
                t_ns = ((about.tshigh << 32) + about.tslow) * 10**9 // about.tsresol
                linktype = about.linktype
            if (found := payload_of(frame, linktype, about.wirelen, t_ns)) is not None:
                yield found
    except _CutOff:
        keep = f", or keep these with editcap -r FILE NEW 1-{number}" if number else ""
        raise ConfigError(f"is cut off behind {number} packets; capture again{keep}", source=source) from None
    except (Scapy_Exception, struct.error) as error:
        raise ConfigError(f"cannot be read behind packet {number} ({error})", source=source) from None


def payload_of(frame: bytes, linktype: int, wire_bytes: int, t_ns: int) -> SentPayload | None:
    """The payload of a frame of which the headers at least were captured; None for others, and if it has none."""
    at = _IP_AT.get(linktype)
    if at is None or (linktype == _ETHERNET and frame[:1] and frame[0] & 1):
        return None
    while linktype == _ETHERNET and frame[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):  # VLANs
        at += 4
    if linktype in (_ETHERNET, 113) and frame[at - 2 : at] not in (b"\x08\x00", b"\x86\xdd"):
        return None
    ip = frame[at:]
    if len(ip) >= 20 and ip[0] >> 4 == 4:
        header, said, protocol = (ip[0] & 15) * 4, int.from_bytes(ip[2:4], "big"), ip[9]
        src, dst, later = ip[12:16], ip[16:20], ip[6] & 0x1F or ip[7]
    elif len(ip) >= 40 and ip[0] >> 4 == 6:
        header, said, protocol = 40, int.from_bytes(ip[4:6], "big"), ip[6]
        said, src, dst, later = said and said + 40, ip[8:24], ip[24:40], 0
    else:
        return None
    # The length in the header is 0 in a frame that the sender's kernel had not split yet (TSO) and is above 64 kB.
    size, ports, sequence, syn = (said or wire_bytes - at) - header, (0, 0), None, False
    if protocol in (_TCP, _UDP) and not later and len(ip) >= header + (20 if protocol == _TCP else 8):
        ports = struct.unpack_from("!HH", ip, header)
        size -= 8 if protocol == _UDP else (ip[header + 12] >> 4) * 4
        if protocol == _TCP:
            sequence, syn = int.from_bytes(ip[header + 4 : header + 8], "big"), bool(ip[header + 13] & _SYN)
    to_one = dst[0] < 0xE0 if len(dst) == 4 else dst[0] != 0xFF
    if src == dst or not to_one or (size <= 0 and not syn):
        return None
    return SentPayload(t_ns, Endpoints(protocol, src, ports[0], dst, ports[1]), max(size, 0), sequence, syn)


def messages_of(payloads: Iterable[SentPayload]) -> list[Message]:
    """The messages of all flows by their beginning. Bytes of TCP that were sent again count once."""
    messages: list[Message] = []
    last: dict[Endpoints, Message] = {}
    due: dict[Endpoints, int] = {}
    for payload in payloads:
        flow, size = payload.flow, payload.bytes
        if payload.sequence is not None:
            expected = payload.sequence if payload.syn else due.get(flow, payload.sequence)
            ahead = (payload.sequence + size - expected) % (1 << 32)
            if ahead >= 1 << 31:
                continue
            size = ahead if ahead < _MOST_HOLE_BYTES else size
            due[flow] = payload.sequence + payload.bytes + payload.syn
        if not size:
            continue
        message = last.get(flow)
        if message is None or payload.t_ns - message.end_ns >= GAP_S * 1e9:
            message = last[flow] = Message(flow, payload.t_ns, payload.t_ns, 0)
            messages.append(message)
        message.end_ns = max(message.end_ns, payload.t_ns)
        message.bytes += size
    return sorted(messages, key=lambda each: each.start_ns)


def program_of(name: str, hosts: Mapping[bytes, int], messages: Sequence[Message]) -> Program:
    """The program that sends ``messages``, which are in order of their beginning; ``hosts`` has the rank by address."""
    of = _groups([(hosts[each.flow.src], hosts[each.flow.dst]) for each in messages], messages)
    began = [(each.start_ns, 0, number) for number, each in enumerate(messages)]
    moments = sorted([*began, *((each.end_ns, 1, number) for number, each in enumerate(messages))])
    ranks: list[list[Operation]] = [[] for _ in hosts]
    clock: dict[int, tuple[int, tuple[int, ...]]] = dict.fromkeys(hosts.values(), (messages[0].start_ns, ()))
    sends: dict[int, int] = {}
    for t_ns, ended, number in moments:
        message = messages[number]
        src, dst = hosts[message.flow.src], hosts[message.flow.dst]
        if ended:
            clock[src] = t_ns, (sends[number],)
            ranks[dst].append(Recv(len(ranks[dst]), f"from {src}", of[number].name, src, message.bytes))
            clock[dst] = t_ns, (len(ranks[dst]) - 1,)
            continue
        (since_ns, after), mine = clock[src], ranks[src]
        if t_ns > since_ns:
            mine.append(Compute(len(mine), "gap", (t_ns - since_ns) / 1e9, after))
            after = (len(mine) - 1,)
        clock[src], sends[number] = (t_ns, after), len(mine)
        mine.append(Send(len(mine), f"to {dst}", of[number].name, dst, message.bytes, after))
    return Program(name, tuple(map(tuple, ranks)), {group.name: group for group in of}, eager=True)


def _groups(pairs: Sequence[tuple[int, int]], messages: Sequence[Message]) -> list[Group]:
    """The group of each message: one for its pair of ranks, and another where messages of one direction overlap."""
    groups: list[Group] = []
    busy: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pair, message in zip(pairs, messages, strict=True):
        ends = busy[pair]
        stream = next((n for n, end_ns in enumerate(ends) if end_ns <= message.start_ns), len(ends))
        ends[stream : stream + 1] = [message.end_ns]
        members = min(pair), max(pair)
        groups.append(Group(f"p{members[0]}-{members[1]}" + (f".{stream}" if stream else ""), "pp", members))
    return groups
