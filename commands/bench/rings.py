"""Goodput in a ring of hosts on any Mininet network: every host sends to the next one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from commands.bench import NotMeasured
from measure.live.machine_benchmark import connected_ring, ring_goodputs
from railyard.errors import MachineError
from topos.kernel.namespaces import HostEnd

_WARM_UP_S = 0.5


def ring_goodput(hosts: Sequence[Any], rate_mbps: float, seconds: float) -> list[float]:
    """Goodput in Mb/s that each host sends to the next one over ``seconds``, on links of ``rate_mbps``.

    The same code measures Railyard and stock Mininet. ``NotMeasured`` if hosts cannot connect, or one has no goodput.
    """
    with ExitStack() as stack:
        ends = []
        for host in hosts:
            namespace = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, namespace)
            ends.append(HostEnd(namespace, host.defaultIntf().name, host.IP()))
        try:
            found = ring_goodputs(stack.enter_context(connected_ring(ends)), rate_mbps, _WARM_UP_S, seconds)
        except MachineError as error:
            raise NotMeasured(f"the goodput of a ring: {error}") from None
    silent = [host.name for host, goodput in zip(hosts, found, strict=True) if not goodput]
    if silent:
        raise NotMeasured(f"the goodput of host {silent[0]}: nothing that it sent was received")
    return found
