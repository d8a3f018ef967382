"""Frames of a check, sent and received at the ports of a rail, with the port and the number of the frame in them."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import NamedTuple

from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside

EVERYBODY = "ff:ff:ff:ff:ff:ff"
_TYPE = 0x88B5  # for experiments in a local network, IEEE 802
_BODY = struct.Struct("!HI")
_LEAST_BYTES, _MOST_BYTES = 60, 2048


class Arrival(NamedTuple):
    """Frame ``number`` left port ``sender`` of the switch's other side and has arrived at ``receiver``'s."""

    sender: int
    receiver: int
    number: int


class RailPorts:
    """The hosts' ends of all ports of the first rail of ``net``, as a context manager."""

    def __init__(self, net: Emulation) -> None:
        self.ports = {port.number: port for port in net.plan.network("rail")[0].ports}
        self._stack = ExitStack()
        self._sockets: dict[int, socket.socket] = {}
        with self._stack as stack:
            for number, port in self.ports.items():
                with inside(net.netns_fd(port.host)):
                    sock = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_TYPE)))
                    sock.bind((port.interface, _TYPE))
                sock.setblocking(False)
                self._sockets[number] = sock
            self._stack = stack.pop_all()

    def __enter__(self) -> RailPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, port: int, number: int, to: str = EVERYBODY, source: str | None = None) -> None:
        """Send a frame from a host's port to an address, as if from ``source`` (its own address)."""
        addresses = (to, source or self.ports[port].mac)
        header = b"".join(bytes.fromhex(address.replace(":", "")) for address in addresses)
        frame = header + _TYPE.to_bytes(2, "big") + _BODY.pack(port, number)
        with suppress(BlockingIOError):  # a full queue loses it, as a network may
            self._sockets[port].send(frame.ljust(_LEAST_BYTES, b"\0"))

    def arrived(self, longest_s: float) -> set[Arrival]:
        """All frames that arrive within ``longest_s`` seconds."""
        end, found = time.monotonic() + longest_s, set[Arrival]()
        waiting = select.poll()
        by_fd = {sock.fileno(): (number, sock) for number, sock in self._sockets.items()}
        for fd in by_fd:
            waiting.register(fd, select.POLLIN)
        while (left := end - time.monotonic()) > 0:
            for fd, _ in waiting.poll(left * 1e3):
                number, sock = by_fd[fd]
                with suppress(BlockingIOError):
                    found.add(Arrival(*_from(sock.recv(_MOST_BYTES), number)))
        return found


def _from(frame: bytes, receiver: int) -> tuple[int, int, int]:
    sender, number = _BODY.unpack_from(frame, 14)
    return sender, receiver, number
