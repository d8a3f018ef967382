"""Reads all counters of a fabric that is up on this machine, and samples its links and processors."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from measure.live.counters import Counters
from measure.live.delivery import PortCounters, read_port_counters
from measure.live.sampler import Sampler, host_interfaces, queue_events, switch_events
from railyard.timeline import Event
from topos.kernel.emulation import Emulation
from topos.kernel.link_delays import LinkDelays
from topos.plan import FabricPlan


class LinkDelayLog:
    """Reads the errors and losses of ``delays``; each reading is of the time since the one before.

    The error of netem is not known (None): the kernel does not say how late it is.
    """

    def __init__(self, delays: LinkDelays) -> None:
        self._delays = delays
        self._began = time.monotonic()
        self._overflowed = 0
        self._lost: dict[str, int] = {}

    def read(self) -> list[Event]:
        """A ``link delay`` event if links are delayed, and a ``link lost`` event for each lossy end, since the last.

        Raises ``MachineError`` if the relay of delayed links has ended.
        """
        delays, netns_fd = self._delays, self._delays.netns_fd
        if netns_fd is None:
            return []
        began, self._began = self._began, time.monotonic()
        report = delays.report() or {"frames": None, "late_p50_s": None, "late_p95_s": None, "late_worst_s": None}
        with Counters(netns_fd) as counters:
            lost, overflowed = counters.filter_drops(), sum(counters.queue_drops().values())
        events = []
        if delays.method != "none":
            report = {"overflowed": overflowed - self._overflowed, **report}
            events.append(Event(began, "link", "delay", self._began, {"method": delays.method, **report}))
        for passage in delays.passages:
            if passage.way.loss_percent:
                name = passage.leaves.name
                fields = {"interface": passage.sender.name, "dropped": lost[name] - self._lost.get(name, 0)}
                events.append(Event(began, "link", "lost", self._began, fields))
        self._lost, self._overflowed = lost, overflowed
        return events


class Readings:
    """Reads the counters of ``net``, which is all of the fabric ``plan`` or a part of it."""

    def __init__(self, net: Emulation, plan: FabricPlan) -> None:
        self._net = net
        self._plan = plan
        self._own = replace(plan, switches=tuple(switch for switch in plan.switches if net.part.has(switch.name)))
        self.netns_fds = {rank: net.netns_fd(host) for rank, host in enumerate(plan.hosts) if net.part.has(host)}
        """Descriptors of the namespaces of the ranks on this machine."""
        self._delays: LinkDelayLog | None = None

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports.

        From the second time on the events have the errors of delayed links too. Takes about a millisecond a host.
        """
        self._delays, first = self._delays or LinkDelayLog(self._net.delays), self._delays is None
        delayed = self._delays.read()
        events = [
            *([] if first else delayed),
            *queue_events(self.netns_fds, self._plan),
            *switch_events(self._net.yard.netns_fd, self._own, self._net.datapath),
        ]
        return events, read_port_counters(self._plan, self.netns_fds)

    def sampler(self, log: Path) -> Sampler:
        yard = self._net.yard
        return Sampler(log, yard.netns_fd, host_interfaces(self._own), [yard.pids["ovs-vswitchd"]])
