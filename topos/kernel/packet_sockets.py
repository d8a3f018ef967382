"""Packet sockets: how frames are read at an interface, with the times at which the kernel saw them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from topos.kernel.namespaces import inside

ETH_P_ALL = 0x0003
"""In place of an EtherType: all of them."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 32, 33, 35
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 6, 15, 23
_TIMESPEC, _STATISTICS = struct.Struct("=qq"), struct.Struct("=II")
_CONTROL_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)


@dataclass(frozen=True)
class Tap:
    """A place to send and receive frames: an interface ("": all of them) and the descriptor of its namespace."""

    netns_fd: int
    interface: str


def open_packets(
    tap: Tap, ethertype: int, room_bytes: int, *, outgoing: bool = False, whole: bool = False
) -> socket.socket:
    """A packet socket for the frames of ``ethertype`` at ``tap``, with the kernel's stamps; it never waits to read.

    ``room_bytes`` is the size of its buffers. It sees packets that this host sends only if ``outgoing``. With ``whole``
    each comes and goes with the kernel's notes about it: segments to be split, a checksum to be filled in.
    """
    with inside(tap.netns_fd):
        at_once = 0 if tap.interface else socket.htons(ethertype)  # protocol 0: no packet comes in before the bind
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, at_once)
    for option, value in ((_SO_SNDBUFFORCE, room_bytes), (_SO_RCVBUFFORCE, room_bytes), (_SO_TIMESTAMPNS, 1)):
        opened.setsockopt(socket.SOL_SOCKET, option, value)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, int(not outgoing))
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, int(whole))
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
