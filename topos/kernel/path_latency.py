"""What light takes through a mesh, on the links: packets are held back (tc-netem) where a switch sends them on.

A frame that leaves a port of an OCS has come over the whole circuit, so the delay of the path stands at the switch's
end of both its ports, on what leaves there. Whether the kernel can do that is found out by doing it, on a link nobody
uses.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC, TC_H_ROOT

from railyard.errors import MachineError
from topos.kernel import namespaces
from topos.kernel.netlink import Netlink, NetlinkRequest, VethEnd, veth

LEAST_US = 1.0
"""Delays below this are none: timers of the kernel do not tell them from the time that forwarding takes."""
NO_NETEM = "this kernel has no netem"
_HANDLE = 0x7B0000
_KIND, _OPTIONS, _LATENCY64 = 1, 2, 10  # TCA_... of linux/rtnetlink.h, TCA_NETEM_LATENCY64 of linux/pkt_sched.h
_TICK_NS, _MOST_32 = 64, 0xFFFFFFFF
_LIMIT_PACKETS = 100_000
"""More than are under way on any link here: the delay must not be the place of a loss."""


Probe = Callable[[], str | None]
"""Says why this machine cannot hold packets back, or None if it can: ``missing``, or what stands for it in a test."""


class Kernel(Protocol):
    """What carries out requests (``topos.kernel.netlink.Netlink``)."""

    def run(self, requests: Iterable[NetlinkRequest]) -> None:
        """Do all of them, in order; ``MachineError`` for the first that failed."""


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _message(kind: int, flags: int, index: int, body: bytes) -> bytes:
    content = struct.pack("=BxxxiIII", 0, index, _HANDLE, TC_H_ROOT, 0) + body
    return struct.pack("=IHHII", 16 + len(content), kind, NLM_F_REQUEST | flags, 0, 0) + content


def hold_back(index: int, name: str, delay_us: float) -> NetlinkRequest:
    """What leaves interface ``index`` does so ``delay_us`` microseconds later; replaces the delay of before."""
    delay_ns = round(delay_us * 1e3)
    ticks = min(delay_ns // _TICK_NS, _MOST_32)
    options = struct.pack("=6I", ticks, _LIMIT_PACKETS, 0, 0, 0, 0) + _attribute(
        _LATENCY64, struct.pack("=q", delay_ns)
    )
    body = _attribute(_KIND, b"netem\0") + _attribute(_OPTIONS, options)
    packed = _message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, index, body)
    return NetlinkRequest(packed, f"holding packets of {name} back by {delay_us:g} us")


def let_pass(index: int, name: str) -> NetlinkRequest:
    """What leaves interface ``index`` is no longer held back."""
    return NetlinkRequest(_message(RTM_DELQDISC, 0, index, b""), f"letting packets of {name} pass")


def missing() -> str | None:
    """Why this machine cannot hold packets back; None if it can. Tried on a link in a namespace of its own."""
    try:
        (fd,) = namespaces.make(1)
    except MachineError as error:
        return str(error)
    try:
        with Netlink(fd) as kernel:
            kernel.run([veth(VethEnd("probe0", 10), VethEnd("probe1", 11), 1500)])
            try:
                kernel.run([hold_back(10, "probe0", 1000.0)])
            except MachineError as error:
                return NO_NETEM if os.strerror(errno.ENOENT) in str(error) else str(error)
    except MachineError as error:
        return str(error)
    finally:
        os.close(fd)
    return None


def switch_interfaces(switch: str) -> dict[int, tuple[int, str]]:
    """Index and name of the switch's end of each of its ports, in the namespace of the calling thread.

    As Mininet names them: ``rail0-eth3`` is port 3 of rail0.
    """
    start = f"{switch}-eth"
    found = ((index, name) for index, name in socket.if_nameindex() if name.startswith(start))
    return {int(name[len(start) :]): (index, name) for index, name in found if name[len(start) :].isdecimal()}


class PathLatency:
    """The delays of the ports of one switch: ``interfaces`` are index and name of each port's end at the switch."""

    def __init__(self, kernel: Kernel, interfaces: Mapping[int, tuple[int, str]]) -> None:
        self._kernel = kernel
        self._interfaces = interfaces
        self._held: dict[int, float] = {}

    def set(self, delays_us: Mapping[int, float]) -> None:
        """From now on what leaves port p is held back by ``delays_us[p]`` (not at all below ``LEAST_US``).

        Ports that are not named stay as they are. ``MachineError`` if the kernel does not do it.
        """
        requests = []
        for port, delay_us in sorted(delays_us.items()):
            wanted = delay_us if delay_us >= LEAST_US else 0.0
            if wanted != self._held.get(port, 0.0):
                index, name = self._interface(port)
                requests.append(hold_back(index, name, wanted) if wanted else let_pass(index, name))
                self._held[port] = wanted
        if requests:
            self._kernel.run(requests)

    def _interface(self, port: int) -> tuple[int, str]:
        if port not in self._interfaces:
            raise MachineError(f"port {port} has no interface in the namespace of the switches")
        return self._interfaces[port]


def reach(switch: str) -> PathLatency:
    """The ports of ``switch``, from inside the namespace of its interfaces; ``MachineError`` where they are not."""
    interfaces = switch_interfaces(switch)
    if not interfaces:
        raise MachineError(f"no interface of {switch} is in the network namespace of the controller")
    return PathLatency(Netlink(), interfaces)
