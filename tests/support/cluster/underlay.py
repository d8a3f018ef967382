"""The network between the machines of a test: a bridge in an anonymous namespace, with a delay."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass

from topos.kernel import namespaces, queues, tuning
from topos.kernel.delay_relay import DelayRelay
from topos.kernel.netlink import Netlink, NetlinkRequest, link_down

_ROOM_BYTES = 16 << 20


@dataclass(frozen=True)
class Underlay:
    """MTU in bytes and delay of one way in ms.

    With a delay frames cross it one by one, as on a wire: the relay knows no VXLAN segments.
    """

    mtu: int = 9100
    delay_ms: float = 0.0


def batch(lines: list[str], *before: str) -> None:
    """Run lines of ``ip``, by a command that may begin with others."""
    subprocess.run([*before, "ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


class Wires:
    """The bridge and a wire to each machine (name -> process id); ``stack`` removes all of it.

    With a delay a relay process of the project holds what goes to a machine (``topos.kernel.delay_relay``), on any
    kernel; the other way the kernel forwards.
    """

    def __init__(self, underlay: Underlay, machines: dict[str, int], stack: ExitStack) -> None:
        (self.fd,) = namespaces.make(1)
        stack.callback(os.close, self.fd)
        mtu = underlay.mtu
        lines = [f"link add bridge0 mtu {mtu} type bridge", "link set bridge0 up"]
        bridged = "mid" if underlay.delay_ms else "to"
        for name, pid in machines.items():
            lines.append(f"link add to-{name} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}")
            if underlay.delay_ms:
                lines.append(f"link add in-{name} mtu {mtu} type veth peer name mid-{name} mtu {mtu}")
                lines += [f"link set in-{name} up", f"link set mid-{name} up"]
            lines += [f"link set {bridged}-{name} master bridge0", f"link set to-{name} up"]
        with namespaces.inside(self.fd):
            namespaces.write_sysctls(tuning.YARD_SYSCTLS)
            batch(lines)
            self._index = {name: index for index, name in socket.if_nameindex()}
        self._kernel = stack.enter_context(Netlink(self.fd))
        self._kernel.run(request for name in machines for request in self._requests(name, underlay))
        if underlay.delay_ms:
            held = {"delay_s": underlay.delay_ms / 1e3, "jitter_s": 0.0, "room_bytes": _ROOM_BYTES}
            passages = [{"enters": f"in-{name}", "leaves": f"to-{name}", **held} for name in machines]
            stack.enter_context(DelayRelay(self.fd, passages))

    def _requests(self, name: str, underlay: Underlay) -> list[NetlinkRequest]:
        index, port = self._index, f"to-{name}"
        filters = queues.filters(index[port], port)
        return [filters, queues.redirect(index[port], port, index[f"in-{name}"])] if underlay.delay_ms else [filters]

    def unplug(self, name: str) -> None:
        """Pull the cable of a machine."""
        port = f"to-{name}"
        self._kernel.run([link_down(self._index[port], port)])
