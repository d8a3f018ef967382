"""Hosts around one switch that a forwarder of the fast path makes, in namespaces of their own; needs root."""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

from topos.kernel import namespaces, tuning
from topos.kernel.fastpath.rules import Forwarder, KernelPort
from topos.kernel.netlink import Netlink, VethEnd, link_up, veth

TYPE = 0x88B5
QUIET_S = 0.05
PORTS = 4
FRAME = 74
"""Bytes of a frame."""


def mac(host: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, host])


def frame(to: int, number: int = 0) -> bytes:
    return mac(to) + mac(99) + struct.pack("!HI", TYPE, number) + bytes(FRAME - 18)


class Yard:
    """Hosts 1 to ``count`` with a raw socket each, the switch's ends of their links, taps in place of Open vSwitch.

    ``make`` gives a forwarder for a namespace and a number of ports, all of which it has; ``stack`` ends everything.
    """

    def __init__(self, stack: ExitStack, make: Callable[[int, int], Forwarder], count: int = PORTS) -> None:
        self.fd, self.hosts_fd = namespaces.make(2)
        for fd in (self.fd, self.hosts_fd):
            stack.callback(os.close, fd)
            with namespaces.inside(fd):
                namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        self.numbers = range(1, count + 1)
        self.kernel = stack.enter_context(Netlink(self.fd))
        self.hosts_kernel = stack.enter_context(Netlink(self.hosts_fd))
        self.kernel.run(
            veth(VethEnd(f"v{n}", 1000 + n), VethEnd(f"h{n}", 10 + n, None, self.hosts_fd), 9000) for n in self.numbers
        )
        self.hosts_kernel.run(link_up(10 + n, f"h{n}") for n in self.numbers)
        self.taps = {n: stack.enter_context(self._tap(n)) for n in self.numbers}
        self.wires = {n: stack.enter_context(self._wire(n)) for n in self.numbers}
        with namespaces.inside(self.fd):
            index = {name: index for index, name in socket.if_nameindex()}
        self.kernel.run(link_up(index[f"tap{n}"], f"tap{n}") for n in self.numbers)
        self.ports = [KernelPort("s", n, 1000 + n, index[f"tap{n}"]) for n in self.numbers]
        self.forwarder = make(self.fd, count)
        stack.callback(self.forwarder.close)
        self.forwarder.add(self.ports)

    def _tap(self, number: int) -> io.FileIO:
        with namespaces.inside(self.fd):
            tap = io.FileIO(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK), "r+")
            fcntl.ioctl(tap, 0x400454CA, struct.pack("=16sH22x", f"tap{number}".encode(), 0x1002))
        return tap

    def _wire(self, number: int) -> socket.socket:
        with namespaces.inside(self.hosts_fd):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
            sock.bind((f"h{number}", TYPE))
        sock.setblocking(False)
        return sock

    def reaches(self, sender: int, to: int) -> set[str]:
        """Where a frame of host ``sender`` to the address of host ``to`` comes out: ``host 2``, ``tap 1``."""
        self.wires[sender].send(frame(to))
        return self.arrivals(sender)

    def arrivals(self, sender: int = 0) -> set[str]:
        """Where a frame comes out, other than at host ``sender``, which sees what it sends."""
        ends: dict[io.FileIO | socket.socket, str] = {self.taps[n]: f"tap {n}" for n in self.numbers}
        ends |= {self.wires[n]: f"host {n}" for n in self.numbers if n != sender}
        select.select(list(ends), [], [], 0.3)
        time.sleep(QUIET_S)
        found = {ends[end] for end in select.select(list(ends), [], [], 0)[0]}
        for wire in self.wires.values():
            while select.select([wire], [], [], 0)[0]:
                wire.recv(2048)
        for tap in self.taps.values():
            while tap.read(2048):
                pass
        return found

    def received(self, number: int) -> int:
        """Packets that host ``number`` has received."""
        with namespaces.inside(self.hosts_fd):
            shown = subprocess.run(["ip", "-j", "-s", "link", "show", f"h{number}"], capture_output=True, check=True)
        return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["packets"])
