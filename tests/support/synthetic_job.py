"""A synthetic job with exact times: DP2 PP2 on ``servers=4``, TP inside the server, so every number is known by hand.

One step on every rail: the DP all-gather of both stages (0.1 s), a compute window (``WINDOW``), the PP send of
stage 0 to stage 1 (0.2 s), a compute (0.3 s). Both phases change circuits: two reconfigurations a step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from measure.metrics.point import Point
from railyard.scale import Scale, goodput_share
from railyard.timeline import Event
from topos.plan import FabricPlan, HostPort, SwitchPlan
from workloads.program import Group

GATHER, WINDOW, SEND, COMPUTE = 0.1, 0.05, 0.2, 0.3
RATE_MBPS = 100.0


def build_plan(gpus: int = 2, ports: int = 2, fabric: str = "ocs", servers: int = 4) -> FabricPlan:
    """Rails of ``servers`` servers with ``gpus`` GPUs each."""
    kind = "electrical" if fabric == "electrical" else "ocs"
    switches = tuple(
        SwitchPlan(
            f"rail{rail}",
            0x10000 + rail,
            kind,  # type: ignore[arg-type]
            "rail",
            tuple(
                HostPort(
                    s * ports + lane + 1,
                    f"g{s * gpus + rail}",
                    s * gpus + rail,
                    lane,
                    f"g{s * gpus + rail}-r{lane}",
                    f"02:00:00:00:{rail:02x}:{s * ports + lane + 1:02x}",
                    f"10.{rail}.0.{s * ports + lane + 1}",
                    RATE_MBPS,
                )
                for s in range(servers)
                for lane in range(ports)
            ),
        )
        for rail in range(gpus)
    )
    return FabricPlan(fabric, servers, gpus, ports, 9000, switches)


def build_groups(gpus: int = 2) -> dict[str, Group]:
    """Servers 0 and 1 are stage 0, servers 2 and 3 stage 1."""
    groups = {}
    for rail in range(gpus):
        for stage in range(2):
            members = tuple((2 * stage + d) * gpus + rail for d in range(2))
            groups[f"dp{stage}.{rail}"] = Group(f"dp{stage}.{rail}", "dp", members, stage=stage)
        for d in range(2):
            members = (d * gpus + rail, (2 + d) * gpus + rail)
            groups[f"pp{d}.{rail}"] = Group(f"pp{d}.{rail}", "pp", members)
    return groups


def build_point(mode: str = "on-demand", delay_s: float = 0.04, scale: Scale | None = None, **more: Any) -> Point:
    """A point of the synthetic job."""
    gpus = more.pop("gpus", 2)
    fabric = "ocs" if mode in ("on-demand", "provisioned") else "electrical"
    return Point(
        number=more.pop("number", 0),
        mode=mode,
        plan=build_plan(gpus, fabric=fabric),
        groups=build_groups(gpus),
        scale=scale or Scale(1 / 4000),
        reconfiguration_delay_s=delay_s,
        **more,
    )


class Job:
    """Writes the events of the synthetic job; all arguments and times in wall-clock seconds."""

    def __init__(self, point: Point, steps: int = 3, start: float = 1000.0, late_s: float = 0.0002) -> None:
        self.point, self.late_s, self.events = point, late_s, list[Event]()
        self.start = start
        self.t = start
        gpus = point.plan.gpus_per_server
        for step in range(steps):
            ends = [self._rail(rail, gpus, step) for rail in range(gpus)]
            self.t = max(ends)
        for rank in range(point.plan.ranks):
            self.add(self.t, "agent", "sockets", rank=rank, retransmits=0, bytes=10_000_000)
        self.end = self.t

    def add(self, t: float, source: Any, kind: str, end: float | None = None, **fields: Any) -> None:
        self.events.append(Event(t, source, kind, end, fields))

    def _rail(self, rail: int, gpus: int, step: int) -> float:
        t0, dark = self.t, self.point.dark_s
        on_ocs = self.point.plan.fabric == "ocs"
        gap = dark if on_ocs else 0.0
        ranks = [s * gpus + rail for s in range(4)]
        for stage in range(2):
            self._phase(rail, step, f"dp{stage}.{rail}", t0, t0 + gap, on_ocs)
        gathered = t0 + gap + GATHER
        for rank in ranks:
            stage = ranks.index(rank) // 2
            self._communicate(rank, step, "all_gather", f"dp{stage}.{rail}", "dp", 0, t0 + gap, gathered)
            self.add(gathered, "agent", "compute", gathered + WINDOW, rank=rank, step=step, op=1, name="forward",
                     late_s=self.late_s)  # fmt: skip
        need = gathered + WINDOW
        asked = gathered if self.point.mode == "provisioned" else need
        lit = max(need, asked + gap)
        for d in range(2):
            self._phase(rail, step, f"pp{d}.{rail}", asked, asked + gap, on_ocs, need=need)
            up, down = ranks[d], ranks[2 + d]
            self._communicate(up, step, "send", f"pp{d}.{rail}", "pp", 1, lit, lit + SEND)
            self._communicate(down, step, "recv", f"pp{d}.{rail}", "pp", 1, lit, lit + SEND)
        end = lit + SEND + COMPUTE
        for rank in ranks:
            self.add(lit + SEND, "agent", "compute", end, rank=rank, step=step, op=3, name="backward",
                     late_s=self.late_s)  # fmt: skip
            self.add(t0, "agent", "step", end, rank=rank, step=step)
        return end

    def _phase(
        self, rail: int, step: int, group: str, asked: float, lit: float, on_ocs: bool, need: float | None = None
    ) -> None:
        """Ask, go dark, be acknowledged; a member waits from ``need`` on if the light is not there yet."""
        members = self.point.groups[group].members
        need = asked if need is None else need
        switch = self.point.plan.rail_of(members[0])
        ports = sorted(p.number for p in switch.ports if p.rank in members)
        if on_ocs:
            self.add(asked, "controller", "reconfigure", lit, rail=switch.name, ports=ports,
                     circuits=[ports[1:3]], asked=asked, group=group)  # fmt: skip
        self.add(lit, "controller", "ack", group=group, index=step, ranks=list(members), asked=asked, ready=asked)
        phase = 0 if group.startswith("dp") else 1
        if lit > need:
            for rank in members:
                self.add(need, "agent", "wait", lit, rank=rank, step=step, op=2 * phase, group=group, index=step,
                         phase=phase)  # fmt: skip

    def _communicate(
        self, rank: int, step: int, kind: str, group: str, dimension: str, phase: int, t: float, end: float
    ) -> None:
        """Data at exactly line rate: two ports for a gather (each sends half of its output), one for a send."""
        sent = round((end - t) * RATE_MBPS * 1e6 / 8 * goodput_share() * (2 if kind == "all_gather" else 1))
        self.add(t, "agent", "communicate", end, rank=rank, step=step, op=2 * phase, name=f"{kind}{phase}",
                 group=group, dimension=dimension, op_kind=kind, bytes=2 * sent if kind == "all_gather" else sent,
                 sent_bytes=0 if kind == "recv" else sent, phase=phase)  # fmt: skip

    def with_samples(
        self,
        interval_s: float = 0.1,
        busy: float = 0.4,
        steal: float = 0.0,
        other: float = 0.0,
        thread: float = 0.5,
        softirq: float = 0.3,
        datapath: str = "bpf",
    ) -> Job:
        """Counters of every interface and CPU samples, as the sampler writes them, and how packets are forwarded."""
        for t, packets in ((self.start, 100), (self.end, 2100)):
            self.events += counters(self.point.plan, t, packets, datapath)
        moving = [e for e in self.events if e.kind == "communicate" and e["sent_bytes"]]
        t = self.start
        while t <= self.end + interval_s:
            self.add(t, "link", "cpu", t + interval_s, busy=busy, steal=steal, other=other, softirq=softirq,
                     switch_busy=thread, switch_thread=thread, cores=2)  # fmt: skip
            for _, port in ((s, p) for s in self.point.plan.switches for p in s.ports):
                sent = 0.0
                for e in moving:
                    gather = e["op_kind"] == "all_gather"
                    if e["rank"] == port.rank and e.end is not None and (gather or port.lane == 1):
                        done = min(1.0, max(0.0, (t - e.t) / (e.end - e.t)))
                        sent += done * e["sent_bytes"] / (2 if gather else 1)
                self.add(t, "link", "bytes", interface=port.interface, rank=port.rank, lane=port.lane,
                         tx_bytes=round(sent), rx_bytes=0, dropped=0)  # fmt: skip
            t += interval_s
        return self

    def timeline(self) -> list[Event]:
        """All events in order of time, with the numbers that show that none is missing."""
        done = Event(self.end, "controller", "finished", None, {"job": self.point.name})
        return numbered([*self.events, done])


def counters(plan: FabricPlan, t: float, packets: int, datapath: str) -> list[Event]:
    """A reading of all counters that are read before and after a point; a hundredth of the packets went up."""
    found = [Event(t, "link", "forwarding", None, {"datapath": datapath, "packets": packets, "up": packets // 100})]
    for switch in plan.switches:
        moved = {"switch": switch.name, "packets_in": packets, "packets_out": packets}
        found.append(Event(t, "link", "switch", None, moved))
        for port in switch.ports:
            queue = {"interface": port.interface, "rank": port.rank, "lane": port.lane, "dropped": 0}
            found.append(Event(t, "link", "qdisc", None, queue))
    return found


def samples(plan: FabricPlan, start: float, end: float, cpu: Mapping[str, Any], dropped: int = 0) -> list[Event]:
    """Samples of the processors, and the first and the last of each interface, of which one dropped packets."""
    found, t = list[Event](), start
    while t < end:
        found.append(Event(t, "link", "cpu", min(t + 0.1, end), dict(cpu)))
        t += 0.1
    ports = [port for switch in plan.switches for port in switch.ports]
    for when, count in ((start, 0), (end, dropped)):
        for port in ports:
            link = {"interface": port.interface, "rank": port.rank, "lane": port.lane, "tx_bytes": 1, "rx_bytes": 1}
            found.append(Event(when, "link", "bytes", None, {**link, "dropped": count if port is ports[0] else 0}))
    return [*found, *sampler_end(found)]


def numbered(events: Sequence[Event]) -> list[Event]:
    """``events`` in order of time: the controller's numbered, those of agents and sampler counted by their last."""
    counts = Counter(e["rank"] for e in events if e.source == "agent" and e.kind != "sockets")
    numbers, found = itertools.count(), list[Event]()
    for e in sorted(events, key=lambda e: e.t):
        more: dict[str, Any] = {}
        if e.source in ("controller", "switch"):
            more = {"n": next(numbers)}
        elif e.kind == "sockets":
            more = {"events": counts.pop(e["rank"], 0)}
        found.append(replace(e, fields={**e.fields, **more}))
    return found if any(e.kind == "sampled" for e in found) else [*found, *sampler_end(found)]


def sampler_end(events: Sequence[Event]) -> list[Event]:
    """The sampler's last event after ``events``; none if it wrote none of them."""
    times = [e.t for e in events if e.kind in ("bytes", "cpu")]
    return [Event(max(times), "link", "sampled", None, {"events": len(times)})] if times else []


@pytest.fixture
def make_point() -> Callable[..., Point]:
    """``make_point(mode, delay_s, scale)``."""
    return build_point


@pytest.fixture
def make_job() -> Callable[..., Job]:
    """``make_job(point, steps)``."""
    return Job


@pytest.fixture
def make_plan() -> Callable[..., FabricPlan]:
    """``make_plan(gpus, ports, fabric)``."""
    return build_plan
