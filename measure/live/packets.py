"""Packets on the wire: sockets that see them, their format in a spool file, and the TCP segment in a packet."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from topos.kernel.namespaces import inside

ETHERTYPE = 0x88B6
"""EtherType of the frames that measure reachability, IEEE 802 local experimental 2: no host answers it."""
_SHORTEST_FRAME = 60
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_TIMESPEC, _STATISTICS = struct.Struct("=qq"), struct.Struct("=II")
_CONTROL_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_RECORD = struct.Struct("<QHBxII")
_IPV4, _TCP = 0x0800, 6
_ETHERNET_BYTES = 14
_SYN = 0x02
End = tuple[str, int]
"""IPv4 address and TCP port."""


@dataclass(frozen=True)
class Tap:
    """A place to send and receive frames: an interface ("": all of them) and the descriptor of its namespace."""

    netns_fd: int
    interface: str


def open_packets(tap: Tap, ethertype: int, room_bytes: int, *, outgoing: bool = False) -> socket.socket:
    """A packet socket for the frames of ``ethertype`` at ``tap``, with the kernel's stamps; it never waits to read.

    ``room_bytes`` is the size of its buffers. It sees packets that this host sends only if ``outgoing``.
    """
    with inside(tap.netns_fd):
        at_once = 0 if tap.interface else socket.htons(ethertype)  # protocol 0: no packet comes in before the bind
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, at_once)
    for option, value in ((_SO_SNDBUFFORCE, room_bytes), (_SO_RCVBUFFORCE, room_bytes), (_SO_TIMESTAMPNS, 1)):
        opened.setsockopt(socket.SOL_SOCKET, option, value)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, int(not outgoing))
    if tap.interface:
        opened.bind((tap.interface, ethertype))
    return opened


def received(tapped: socket.socket, buffer: memoryview) -> Iterator[tuple[int, int, bool, str]]:
    """Read the packets that wait in a packet socket, one after another, into ``buffer``.

    Yields of each its length in the buffer, when the kernel stamped it (Unix time in ns), whether it was sent here, and
    the interface.
    """
    while True:
        try:
            size, control, _, address = tapped.recvmsg_into([buffer], _CONTROL_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        seconds, ns = next(
            (_TIMESPEC.unpack_from(data) for _, kind, data in control if kind == _SO_TIMESTAMPNS), (0, 0)
        )
        yield size, seconds * 1_000_000_000 + ns, address[2] == socket.PACKET_OUTGOING, address[0]


def missed(tapped: socket.socket) -> int:
    """Packets that found no room in a packet socket since the last call."""
    counters = tapped.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    return int(_STATISTICS.unpack(counters)[1])


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
