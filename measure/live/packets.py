"""Packets on the wire: frames of our own, the format of packets in a spool file, and the TCP segment in a packet."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ETHERTYPE = 0x88B6
"""EtherType of the frames that measure reachability, IEEE 802 local experimental 2: no host answers it."""
_SHORTEST_FRAME = 60
_RECORD = struct.Struct("<QHBxII")
_IPV4, _TCP = 0x0800, 6
_ETHERNET_BYTES = 14
_SYN = 0x02
End = tuple[str, int]
"""IPv4 address and TCP port."""


def ethernet_frame(to: str, sender: str, payload: bytes) -> bytes:
    """An Ethernet frame of ``ETHERTYPE`` from one MAC address to another, which ``frame_payload`` reads."""
    addresses = bytes.fromhex((to + sender).replace(":", ""))
    return (addresses + ETHERTYPE.to_bytes(2, "big") + payload).ljust(_SHORTEST_FRAME, b"\0")


def frame_payload(frame: bytes) -> bytes:
    return frame[_ETHERNET_BYTES:]


@dataclass(frozen=True)
class Packet:
    """An Ethernet frame captured at a host's port at ``t_ns`` nanoseconds of Unix time.

    ``length`` is its length on the wire in bytes, ``data`` the captured part. A frame that the kernel has not split yet
    (TSO) may be longer than the MTU.
    """

    t_ns: int
    interface: str
    outgoing: bool
    length: int
    data: bytes


@dataclass(frozen=True)
class Segment:
    """The TCP segment in a frame; ``payload`` is shorter than ``length`` if the frame was captured in part."""

    src: End
    dst: End
    sequence: int
    syn: bool
    length: int
    payload: bytes


def pack_record(t_ns: int, interface: int, outgoing: bool, length: int, kept: int) -> bytes:
    """The header of a packet of ``kept`` bytes in a spool; ``interface`` is the number of the tap."""
    return _RECORD.pack(t_ns, interface, outgoing, length, kept)


def read_spool(path: Path, interfaces: Sequence[str]) -> Iterator[Packet]:
    """The packets of a spool in the order of writing, without a last one that was cut short.

    Raises ``IndexError`` for a packet of an interface that is not among ``interfaces``.
    """
    size = path.stat().st_size
    with path.open("rb") as spool:
        while len(head := spool.read(_RECORD.size)) == _RECORD.size:
            t_ns, interface, outgoing, length, kept = _RECORD.unpack(head)
            if spool.tell() + kept > size:
                return
            yield Packet(t_ns, interfaces[interface], bool(outgoing), length, spool.read(kept))


def tcp_segment(packet: Packet) -> Segment | None:
    """The IPv4 TCP segment in ``packet``; None for other packets, or if headers were not captured."""
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
    # The length in the IP header excludes Ethernet padding; it is 0 in a frame of more than 64 kB.
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
