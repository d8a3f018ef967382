"""Captured packets: what one is, how a capture keeps them on disk, and the TCP segment inside one."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("<QHBxII")
_IPV4, _TCP = 0x0800, 6
_ETHERNET_BYTES = 14
_SYN = 0x02
End = tuple[str, int]
"""IPv4 address and TCP port."""


@dataclass(frozen=True)
class Packet:
    """An Ethernet frame seen at a host's port, at ``t_ns`` nanoseconds of Unix time.

    ``length`` is what it was on the wire, ``data`` what was kept of it. Before the kernel cuts it up (TSO) one may be
    longer than the MTU.
    """

    t_ns: int
    interface: str
    outgoing: bool
    length: int
    data: bytes


@dataclass(frozen=True)
class Segment:
    """The TCP segment in a frame. ``payload`` may be shorter than ``length`` where the frame was not kept whole."""

    src: End
    dst: End
    sequence: int
    syn: bool
    length: int
    payload: bytes


def pack_record(t_ns: int, interface: int, outgoing: bool, length: int, kept: int) -> bytes:
    """What precedes the ``kept`` bytes of a packet in a spool; ``interface`` is the number of the tap."""
    return _RECORD.pack(t_ns, interface, outgoing, length, kept)


def read_spool(path: Path, interfaces: Sequence[str]) -> Iterator[Packet]:
    """The packets of a spool, in the order in which they were written; a last one cut short is left out."""
    with path.open("rb") as spool:
        while len(head := spool.read(_RECORD.size)) == _RECORD.size:
            t_ns, interface, outgoing, length, kept = _RECORD.unpack(head)
            data = spool.read(kept)
            if len(data) < kept:
                return
            yield Packet(t_ns, interfaces[interface], bool(outgoing), length, data)


def tcp_segment(packet: Packet) -> Segment | None:
    """The IPv4 TCP segment that ``packet`` carries; None if it carries something else, or headers are missing."""
    data = packet.data
    if len(data) < _ETHERNET_BYTES + 20 or int.from_bytes(data[12:14], "big") != _IPV4:
        return None
    start = _ETHERNET_BYTES
    tcp = start + (data[start] & 15) * 4
    if data[start + 9] != _TCP or len(data) < tcp + 20:
        return None
    source, target, sequence = struct.unpack_from("!HHI", data, tcp)
    body = tcp + (data[tcp + 12] >> 4) * 4
    total = int.from_bytes(data[start + 2 : start + 4], "big")
    # The length in the IP header leaves out what Ethernet padded; it is 0 in a frame of more than 64 kB.
    end = start + total if total else packet.length
    return Segment(
        src=(_dotted(data[start + 12 : start + 16]), source),
        dst=(_dotted(data[start + 16 : start + 20]), target),
        sequence=sequence,
        syn=bool(data[tcp + 13] & _SYN),
        length=max(0, end - body),
        payload=data[body:end],
    )


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))
