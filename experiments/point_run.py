"""Run of one point on a fabric that is up: starts agents and sampler, reads counters, collects events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from controllers.engine.jobs import Job
from experiments.job_point import JobPoint
from experiments.session import CounterReader, FabricSession, RunningSampler
from experiments.settings import PacketSettings
from measure.live.delivery import Delivery, PortCounters, delivery
from measure.live.interference import wait_for_quiet
from measure.metrics.point import Point
from railyard.errors import ControlError, RailyardError
from railyard.point_folder import NOTES, events_of
from railyard.scale import Scale
from railyard.timeline import Event, write_events
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import Launcher
from workloads.program import Program

_LAST_MESSAGES_S = 0.5
_START_AFTER_S = 0.2
"""Seconds from the start message to the first step, in which the message must reach every agent."""


def agent_config(
    settings: PacketSettings, session: FabricSession, scale: Scale, program: Program, **more: Any
) -> AgentConfig:
    """The configuration that the agents of a job have in common; ``more`` are further fields of it."""
    return AgentConfig(
        **{"rank": 0, "events": "", **more},
        program=program,
        scale=scale,
        plan=session.plan,
        channel=session.channel_path,
        seed=settings.seed,
        verify=settings.verify,
        ack_timeout_s=settings.ack_timeout_s,
    )


@dataclass
class Counted:
    """Readings of all counters of a fabric: events of queues, switches and links, and counters of the rail ports."""

    session: FabricSession
    events: list[Event] = field(default_factory=list)
    ports: list[PortCounters] = field(default_factory=list)
    sampler: RunningSampler | None = None
    """The sampler, while it samples."""

    @cached_property
    def reader(self) -> CounterReader:
        return self.session.counters()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network and of the sampler; ``check`` names one that has ended."""
        return (*self.reader.pids, *([] if self.sampler is None else self.sampler.pids))

    def check(self) -> None:
        """Raise ``MachineError`` if a process of the network, or the sampler, has ended."""
        self.reader.check()
        if self.sampler is not None:
            self.sampler.check()

    def read(self) -> None:
        """Read the counters of queues, switches and rails, and from the second time on the errors of delayed links."""
        events, ports = self.reader.read()
        self.events += events
        self.ports.append(ports)

    @property
    def delivered(self) -> Delivery | None:
        """Delivery of the rails between the first and the last reading; None without two readings."""
        first, last = self.ports[:1], self.ports[1:][-1:]
        return delivery(*first, *last, tunnels=self.reader.tunnels) if last else None


@contextmanager
def counted(session: FabricSession, log: Path, into: Counted | None = None) -> Iterator[Counted]:
    """Read all counters at the start and at the end, and sample links and processors into the file ``log`` between.

    Before that, wait until the machine is quiet, for as long as the settings say.
    ``MachineError`` if a process of the network, or the sampler, has ended by then.
    """
    if waited := wait_for_quiet(session.settings.wait_quiet_s):
        session.say(f"  {waited}")
    found = into or Counted(session)
    found.read()
    with found.reader.sampler(log) as found.sampler:
        try:
            yield found
            found.check()
        finally:
            found.sampler = None
    found.read()


def note_circuits(session: FabricSession, folder: Path) -> None:
    """Note in the ``folder`` of a point the circuits and failed ports of every optical switch, as the controller says.

    One request; none where the fabric has no such switch, and nothing is noted without a controller of ours.
    """
    if all(switch.kind != "ocs" for switch in session.plan.switches):
        return
    switches, now = session.call("circuits").get("switches", []), time.monotonic()
    noted = [
        {
            "rail": switch["name"],
            "circuits": switch["circuits"],
            "failed": [int(port) for port, state in switch["ports"].items() if state == "failed"],
        }
        for switch in switches
        if switch["kind"] == "ocs"
    ]
    write_events(folder / NOTES, [Event(now, "controller", "circuits", None, fields) for fields in noted])


class PointRun:
    """One point on a fabric that is up; ``job`` is what its agents run, which write their events to ``folder``."""

    def __init__(
        self,
        session: FabricSession,
        launcher: Launcher,
        job: JobPoint,
        point: Point,
        settings: PacketSettings,
        folder: Path,
    ) -> None:
        self._session = session
        self._launcher = launcher
        self._job = job
        self._point = point
        self._folder = folder
        template = agent_config(
            settings, session, point.scale, job.program, job=point.name, mode=job.agent_mode, steps=job.steps
        )
        self._configs = [
            replace(template, rank=rank, events=str(self._folder / f"g{rank}.jsonl"))
            for rank in range(session.plan.ranks)
        ]
        self._counted = Counted(session)
        self.began = self.ended = time.monotonic()

    def register(self) -> None:
        """Register the job with the controller, wait until its starting circuits are up, and note all circuits."""
        scale, point = self._point.scale, self._point
        self._session.register(
            Job(
                name=point.name,
                groups=tuple(point.groups.values()),
                mode=self._job.mode,
                reconfiguration_delay_s=scale.emulated_s(point.reconfiguration_delay_s),
                link_recovery_s=scale.emulated_s(point.link_recovery_s),
                cycle=self._job.cycle,
            ),
            self._job.policy,
        )
        note_circuits(self._session, self._folder)

    def play(self, timeout_s: float, on_step: Callable[[int], None]) -> None:
        """Run all agents to the end of their programs, within ``timeout_s``.

        ``on_step`` is called with the number of steps that all ranks have finished.
        """
        session = self._session
        team = self._launcher.launch(self._configs, session.netns_fds())
        try:
            with self._launcher.watching(session.pids, partial(session.check, _LAST_MESSAGES_S)):
                team.wait_ready()
            counters = counted(session, self._folder / "sampler.jsonl", self._counted)
            with counters, self._launcher.watching(self._watched(), self._check):
                self.began = time.monotonic()
                session.record(self._point.number, self.began)
                team.go(self.began + _START_AFTER_S)
                started = Event(self.began, "run", "started", None, {"point": self._point.number})
                write_events(self._folder / NOTES, [started])
                team.wait_done(timeout_s, lambda rank, done: on_step(min(team.steps.values())))
                self.ended = time.monotonic()
        except RailyardError as error:
            self.ended = time.monotonic()
            session.check(_LAST_MESSAGES_S)
            raise error
        finally:
            self.ended = max(self.ended, self.began)
            team.stop()
            with suppress(ControlError):
                session.call("finish", job=self._point.name)
                session.record(None)

    def _watched(self) -> set[int]:
        return {*self._session.pids, *self._counted.pids}

    def _check(self) -> None:
        self._counted.check()
        self._session.check(_LAST_MESSAGES_S)

    @property
    def delivered(self) -> Delivery | None:
        """Delivery of the rails while the agents ran; None if the agents did not run to the end."""
        return self._counted.delivered

    def events(self) -> list[Event]:
        """All recorded events of the point, in order of time."""
        self._session.collect(self._folder)
        return sorted([*events_of(self._folder), *self._counted.events], key=lambda e: e.t)
