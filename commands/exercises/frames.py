"""Frames of a check, sent and received at the hosts' ends of a rail, with the port and the number of each in it."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import ExitStack, suppress

from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside

EVERYBODY = "ff:ff:ff:ff:ff:ff"
_TYPE = 0x88B5  # for experiments in a local network, IEEE 802
_FRAME = struct.Struct("!6s6sHHI40x")


class RailPorts(ExitStack):
    """All ports of the first rail of ``net`` by number, with a raw socket at the host's end of each until the end."""

    def __init__(self, net: Emulation) -> None:
        super().__init__()
        self.ports = {port.number: port for port in net.plan.network("rail")[0].ports}
        self._sockets: dict[int, socket.socket] = {}
        for number, port in self.ports.items():
            with inside(net.netns_fd(port.host)):
                self._sockets[number] = self.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
                self._sockets[number].bind((port.interface, _TYPE))

    def send(self, port: int, number: int, to: str, source: str) -> None:
        """Send a frame from a host's port, from and to an address."""
        addresses = (bytes.fromhex(address.replace(":", "")) for address in (to, source))
        with suppress(BlockingIOError):  # a full queue loses it, as a network may
            self._sockets[port].send(_FRAME.pack(*addresses, _TYPE, port, number))

    def arrived(self, longest_s: float) -> set[tuple[int, int, int]]:
        """The frames that arrive within ``longest_s`` seconds: number, port that it left, port that it came to."""
        end, found = time.monotonic() + longest_s, set()
        waiting, by_fd = select.poll(), {sock.fileno(): port for port, sock in self._sockets.items()}
        for fd in by_fd:
            waiting.register(fd, select.POLLIN)
        while (left := end - time.monotonic()) > 0:
            for fd, _ in waiting.poll(left * 1e3):
                *_, sender, number = _FRAME.unpack(self._sockets[by_fd[fd]].recv(_FRAME.size))
                found.add((number, sender, by_fd[fd]))
        return found
