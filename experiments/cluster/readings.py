"""Reads the counters of the parts of a fabric on all machines, and samples links and processors of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.cluster.machines import Cluster
from measure.live.counters import LinkCounters
from measure.live.delivery import PortCounters
from measure.metrics.checks import with_machine
from railyard.timeline import Event

_PROBED_S = 30.0
"""How long ago the network may have been probed at the first reading; a later reading always probes it again."""


class ClusterReadings:
    """Reads the counters on the machines of ``cluster``.

    ``underlay`` gives events about the network between them, from a probe that is at most so many seconds old.
    """

    pids: tuple[int, ...] = ()

    def __init__(self, cluster: Cluster, underlay: Callable[[float], list[Event]], *, tunnels: bool) -> None:
        self._cluster = cluster
        self._underlay = underlay
        self.tunnels = tunnels
        self._oldest_s = _PROBED_S
        cluster.ask("begin_readings")

    def check(self) -> None:
        """Raise ``MachineError`` if a machine is gone, or a process of its part or its sampler has ended."""
        self._cluster.ask("check")

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports, of all machines."""
        events, self._oldest_s = self._underlay(self._oldest_s), 0.0
        ports: dict[tuple[int, int], LinkCounters] = {}
        for machine, found in self._cluster.ask("read").items():
            events += with_machine(map(Event.from_line, found["events"]), machine)
            ports |= {(rank, lane): LinkCounters(**counters) for rank, lane, counters in found["ports"]}
        return events, ports

    @contextmanager
    def sampler(self, log: Path) -> Iterator[ClusterReadings]:
        """A sampler on each machine; what they write is collected with the events of the agents, not into ``log``."""
        self._cluster.ask("begin_sampling")
        try:
            yield self
        finally:
            self._cluster.ask("end_sampling")
