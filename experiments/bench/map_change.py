"""Benchmark of the change of the kernel's rules alone: all circuits of a 64-port switch, without Open vSwitch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median

from experiments.bench import Measurement
from experiments.bench.bed import Bed
from experiments.bench.swap import PORTS, circuits
from topos.kernel import namespaces
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.mirred_forwarder import MirredForwarder
from topos.kernel.fastpath.rules import OUT, KernelPort, PortRules, Rule
from topos.kernel.netlink import Netlink, VethEnd, veth

LIMIT_MS = 0.1
CHANGES = 200
_SWITCH = "s"
_MTU = 1500


def map_change(bed: Bed) -> list[Measurement]:
    """Median and longest time in which the rules of 64 ports change, in ms; nothing with ``ovs``. Needs root."""
    if bed.used not in ("bpf", "mirred"):
        return []
    with _ports() as (netns_fd, ports):
        forwarder = BpfForwarder(netns_fd, PORTS) if bed.used == "bpf" else MirredForwarder(netns_fd)
        with closing(forwarder):
            forwarder.add(ports)
            flows = [forwarder.new_flow() for _ in ports]
            took = []
            for shift in range(CHANGES):
                rules = {
                    a: PortRules(Rule(OUT, b, flows[a - 1])) for pair in circuits(shift) for a, b in (pair, pair[::-1])
                }
                began = time.perf_counter()
                forwarder.set(_SWITCH, rules)
                took.append((time.perf_counter() - began) * 1e3)
    return [
        bed.at_most("swap_64_map_change_median", median(took), "ms", LIMIT_MS),
        Measurement("swap_64_map_change_worst", max(took), "ms"),
    ]


@contextmanager
def _ports() -> Iterator[tuple[int, list[KernelPort]]]:
    """A namespace with 64 ports, each a pair of interfaces of which one is the link and one stands for the tap."""
    (fd,) = namespaces.make(1)
    try:
        ports = [KernelPort(_SWITCH, number, 1000 + number, 2000 + number) for number in range(1, PORTS + 1)]
        with Netlink(fd) as kernel:
            kernel.run(
                veth(VethEnd(f"l{port.number}", port.link), VethEnd(f"t{port.number}", port.tap), _MTU)
                for port in ports
            )
        yield fd, ports
    finally:
        os.close(fd)
