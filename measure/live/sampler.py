"""The sampler: a process of its own that writes link counters and CPU use as events, ten times a second.

It is a process and not a thread, so that no other part of the run can delay it. Per sample it needs one netlink dump
for all interfaces of the yard and two or three files of /proc, and writes one line per counter that changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from measure.live.counters import Counters, LinkCounters
from measure.live.interference import OtherProcesses
from measure.live.processor import Processor
from railyard.errors import MachineError
from railyard.ownership import open_text
from railyard.priority import set_priority
from railyard.process.child import Child
from railyard.process.parent import Parent, writing
from railyard.timeline import Event, read_events
from topos.kernel.fastpath.offload import tap_name
from topos.plan import FabricPlan, HostPort, SwitchPlan

INTERVAL_S = 0.1
_NICE = -10
"""Priority: that of the agents, 64 of which left a sampler of ordinary priority without a processor for 2 s."""
_END_S = 5.0


@dataclass(frozen=True)
class HostInterface:
    """A host's interface, at the other end of the veth pair of a switch port."""

    interface: str
    rank: int
    lane: int


def yard_interface(switch: SwitchPlan, port: HostPort) -> str:
    """Mininet's name for the interface of a switch port."""
    return f"{switch.name}-eth{port.number}"


def host_interfaces(plan: FabricPlan) -> dict[str, HostInterface]:
    """The host interface opposite every switch interface of a fabric, by the name of the switch interface."""
    return {yard_interface(s, p): HostInterface(p.interface, p.rank, p.lane) for s in plan.switches for p in s.ports}


class Changes:
    """Turns samples into events and leaves out samples of unchanged counters.

    The last sample before a change is written too, so that interpolating linearly between events is correct.
    """

    def __init__(self, interfaces: Mapping[str, HostInterface]) -> None:
        self._fields = {name: asdict(interface) for name, interface in interfaces.items()}
        self._last: dict[str, LinkCounters] = {}
        self._waiting: dict[str, float] = {}

    def take(self, t: float, sample: Mapping[str, LinkCounters]) -> list[Event]:
        events = []
        for name, now in sample.items():
            if name not in self._fields:
                continue
            before = self._last.get(name)
            if now == before:
                self._waiting[name] = t
                continue
            skipped = self._waiting.pop(name, None)
            if skipped is not None and before is not None:
                events.append(self._event(skipped, name, before))
            events.append(self._event(t, name, now))
            self._last[name] = now
        return events

    def rest(self) -> list[Event]:
        """Events for the last sample of every counter that was unchanged at the end."""
        return [self._event(t, name, self._last[name]) for name, t in self._waiting.items()]

    def _event(self, t: float, name: str, counters: LinkCounters) -> Event:
        """A ``link bytes`` event of the host's interface; bytes received at the switch are those the host sent."""
        return Event(
            t,
            "link",
            "bytes",
            None,
            {
                **self._fields[name],
                "tx_bytes": counters.rx_bytes,
                "rx_bytes": counters.tx_bytes,
                "dropped": counters.dropped,
            },
        )


class Sampler(Child):
    """The sampler process. ``netns_fd`` is the namespace with the switches' ends of the links.

    Events are written to ``out`` at once, so that they survive a crash of the run; ``stop`` returns them. Raises
    ``MachineError`` if the process does not start.

    >>> with Sampler(path, yard_fd, host_interfaces(plan), [vswitchd_pid]) as sampler:   # doctest: +SKIP
    ...     run()
    ...     events = sampler.stop()
    """

    def __init__(
        self,
        out: Path,
        netns_fd: int,
        interfaces: Mapping[str, HostInterface],
        datapath_pids: Sequence[int] = (),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._out = out
        settings = {
            "out": str(out.absolute()),
            "netns_fd": netns_fd,
            "interfaces": {name: asdict(interface) for name, interface in interfaces.items()},
            "pids": list(datapath_pids),
            "run": os.getpid(),
            "interval_s": interval_s,
        }
        what = "the sampler of link counters"
        super().__init__("measure.live.sampler", settings, [netns_fd], what, patience_s=_END_S)

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.pid,)

    def check(self) -> None:
        if self.has_ended:
            raise MachineError(
                f"the sampler of link counters ended with status {self.status()}; its message is above, if any"
            )

    def stop(self) -> list[Event]:
        self.close()
        return read_events(self._out) if self._out.exists() else []


def queue_events(netns_fds: Mapping[int, int], plan: FabricPlan) -> list[Event]:
    """``link qdisc`` events: packets that the queues of every host have dropped so far.

    To be taken at the start and the end of a point. ``netns_fds``: rank -> descriptor of its namespace. Takes about
    0.3 ms per host.
    """
    events = []
    for rank, fd in netns_fds.items():
        lanes = {p.interface: p.lane for _, p in plan.host_ports(rank)}
        with Counters(fd) as counters:
            t = time.monotonic()
            for name, dropped in counters.queue_drops().items():
                if name in lanes:
                    fields = {"interface": name, "rank": rank, "lane": lanes[name], "dropped": dropped}
                    events.append(Event(t, "link", "qdisc", None, fields))
    return events


def switch_events(netns_fd: int, plan: FabricPlan, datapath: str) -> list[Event]:
    """``link switch`` events: packets into and out of every switch so far; the difference was lost in the switch.

    And a ``link forwarding`` event: how packets are forwarded, ``datapath``, and how many of them the kernel has given
    to Open vSwitch. To be taken while no packet is in flight. ``netns_fd`` is the namespace with the switches' ends of
    the links.
    """
    with Counters(netns_fd) as counters:
        t = time.monotonic()
        links = counters.links()
        index = {name: number for number, name in counters.names.items()}
    events, packets, up = [], 0, 0
    for switch in plan.switches:
        names = [name for p in switch.ports if (name := yard_interface(switch, p)) in links]
        ports = [links[name] for name in names]
        into, out = sum(p.rx_packets for p in ports), sum(p.tx_packets for p in ports)
        events.append(Event(t, "link", "switch", None, {"switch": switch.name, "packets_in": into, "packets_out": out}))
        taps = [links[tap] for name in names if (tap := tap_name(index[name])) in links]
        packets, up = packets + into, up + sum(tap.tx_packets for tap in taps)
    forwarding = {"datapath": datapath, "packets": packets, "up": packets if datapath == "ovs" else up}
    return [*events, Event(t, "link", "forwarding", None, forwarding)]


def _write(out: TextIO, events: Sequence[Event]) -> int:
    """Write the events, which are then in the file; returns their number."""
    out.write("".join(e.to_line() + "\n" for e in events))
    out.flush()
    return len(events)


def _sample(parent: Parent, out: TextIO) -> None:
    """Sample until the parent says stop or has ended; ticks count from the start, without drift."""
    settings = parent.settings
    changes = Changes({name: HostInterface(**interface) for name, interface in settings["interfaces"].items()})
    processor, others = Processor(settings["pids"]), OtherProcesses(settings["run"])
    interval = settings["interval_s"]
    with Counters(settings["netns_fd"]) as counters:
        start = before = time.monotonic()
        written = _write(out, changes.take(start, counters.links()))
        parent.ready()
        tick, ended = 1, False
        while not ended:
            ended = parent.stops(start + tick * interval - time.monotonic())
            now = time.monotonic()
            events = changes.take(now, counters.links())
            if now - before > interval / 2:
                load, other = processor.read(now - before), others.read()
                fields: dict[str, Any] = {"busy": load.busy, "cores": load.cores, "steal": load.steal}
                fields |= {"other": other.share, "largest": other.largest}
                fields |= {"softirq": load.softirq, "switch_busy": load.processes, "switch_thread": load.thread}
                events.append(Event(before, "link", "cpu", now, fields))
                before = now
            written += _write(out, events)
            tick = max(tick + 1, int((now - start) / interval) + 1)
        written += _write(out, changes.rest())
        _write(out, [Event(before, "link", "sampled", None, {"events": written})])


def main() -> None:
    parent = Parent()
    set_priority(_NICE)
    with writing(parent.settings["out"]), open_text(parent.settings["out"], "a") as out:
        _sample(parent, out)
