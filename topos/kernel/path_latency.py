"""Emulates the latency of light paths through a mesh: tc-netem delays packets where they leave the switch.

A frame that leaves a port of an OCS has crossed the whole circuit, so the delay of the path is set on the switch's
interfaces of both its ports, for outgoing packets. Whether the kernel supports this is found out by trying it on a
separate link.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Mapping

from railyard.errors import MachineError
from topos.kernel import namespaces
from topos.kernel.netlink import Netlink, NetlinkRequest, VethEnd, veth
from topos.kernel.queues import delay_packets, remove_delay

LEAST_US = 1.0
"""Shorter delays, in microseconds, are not emulated: they are lost in the time that forwarding takes."""
NO_NETEM = "this kernel has no netem"
Probe = Callable[[], str | None]
"""Returns why this machine cannot delay packets, None if it can: ``unsupported_reason``, or a fake in tests."""


def unsupported_reason() -> str | None:
    """Why this machine cannot delay packets; None if it can, tried on a link in a namespace of its own."""
    try:
        (fd,) = namespaces.make(1)
    except MachineError as error:
        return str(error)
    try:
        with Netlink(fd) as kernel:
            kernel.run([veth(VethEnd("probe0", 10), VethEnd("probe1", 11), 1500)])
            try:
                kernel.run([delay_packets(10, "probe0", 1000.0)])
            except MachineError as error:
                return NO_NETEM if os.strerror(errno.ENOENT) in str(error) else str(error)
    except MachineError as error:
        return str(error)
    finally:
        os.close(fd)
    return None


def switch_interfaces(switch: str) -> dict[int, tuple[int, str]]:
    """(index, name) of the interface of each port of a switch, in the namespace of the calling thread.

    The names are Mininet's: ``rail0-eth3`` is port 3 of rail0.
    """
    start = f"{switch}-eth"
    interfaces = ((index, name) for index, name in socket.if_nameindex() if name.startswith(start))
    return {int(name[len(start) :]): (index, name) for index, name in interfaces if name[len(start) :].isdecimal()}


class PathLatency:
    """Sets the delays of the ports of one switch; ``interfaces`` maps a port to (index, name) of its interface.

    ``execute`` executes netlink requests in order (``topos.kernel.netlink.Netlink.run``).
    """

    def __init__(
        self, execute: Callable[[Iterable[NetlinkRequest]], None], interfaces: Mapping[int, tuple[int, str]]
    ) -> None:
        self._execute = execute
        self._interfaces = interfaces
        self._held: dict[int, float] = {}

    def set(self, delays_us: Mapping[int, float]) -> None:
        """Delay packets that leave port p by ``delays_us[p]`` microseconds from now on (0 below ``LEAST_US``).

        Other ports keep their delays. Raises ``MachineError`` if the kernel refuses.
        """
        requests = []
        for port, delay_us in sorted(delays_us.items()):
            wanted = delay_us if delay_us >= LEAST_US else 0.0
            if wanted != self._held.get(port, 0.0):
                index, name = self._interface(port)
                requests.append(delay_packets(index, name, wanted) if wanted else remove_delay(index, name))
                self._held[port] = wanted
        if requests:
            self._execute(requests)

    def _interface(self, port: int) -> tuple[int, str]:
        if port not in self._interfaces:
            raise MachineError(f"port {port} has no interface in the namespace of the switches")
        return self._interfaces[port]


def open_path_latency(switch: str) -> PathLatency:
    """The ``PathLatency`` of ``switch``, for a caller in the namespace of its interfaces; else ``MachineError``."""
    interfaces = switch_interfaces(switch)
    if not interfaces:
        raise MachineError(f"no interface of {switch} is in the network namespace of the controller")
    return PathLatency(Netlink().run, interfaces)
