"""Run of one measurement point on a fabric that is up: starts agents and sampler, reads counters, collects events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from experiments.session import Session
from measure.live.delivery import Delivery, PortCounters, delivery, read_port_counters
from measure.live.sampler import Sampler, host_interfaces, queue_events, switch_events
from measure.metrics.point import Point, within
from railyard.errors import ControlError, RailyardError
from railyard.timeline import Event, read_events
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher

_LAST_MESSAGES_S = 0.5
_START_AFTER_S = 0.2
"""Seconds from the start message to the first step, in which the message must reach every agent."""


class PointRun:
    """One point on a fabric that is up.

    ``template`` is the configuration of an agent, in which rank, job, plan, channel and events file are filled in.
    """

    def __init__(self, session: Session, launcher: AgentLauncher, point: Point, template: AgentConfig) -> None:
        self._session = session
        self._launcher = launcher
        self._point = point
        self._folder = session.folder / f"point{point.number}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._configs = [
            replace(
                template,
                rank=rank,
                job=point.name,
                plan=session.plan,
                channel=session.channel_path,
                events=str(self._folder / f"g{rank}.jsonl"),
            )
            for rank in range(session.plan.ranks)
        ]
        self._other_events: list[Event] = []
        self._counters: list[PortCounters] = []
        self.began = self.ended = time.monotonic()

    def register(self, mode: str, policy: str, cycle: Cycle | None = None) -> None:
        """Register the job with the controller and wait until its starting circuits are up."""
        scale, point = self._point.scale, self._point
        self._session.register(
            Job(
                name=point.name,
                groups=tuple(point.groups.values()),
                mode=mode,
                reconfiguration_delay_s=scale.emulated_s(point.reconfiguration_delay_s),
                link_recovery_s=scale.emulated_s(point.link_recovery_s),
                cycle=cycle,
            ),
            policy,
        )

    def play(self, timeout_s: float, on_step: Callable[[int], None]) -> None:
        """Run all agents to the end of their programs, within ``timeout_s``.

        ``on_step`` is called with the number of steps that all ranks have finished.
        """
        session, fds = self._session, self._session.netns_fds()
        team = self._launcher.launch(self._configs, fds)
        by_rank = dict(enumerate(fds))
        log = self._folder / "sampler.jsonl"
        pids = [session.net.yard.pids["ovs-vswitchd"]]
        sampler = Sampler(log, session.net.yard.netns_fd, host_interfaces(session.plan), pids)
        try:
            team.wait_ready()
            self._count(by_rank)
            with sampler:
                self.began = time.monotonic()
                team.go(self.began + _START_AFTER_S)
                team.wait_done(timeout_s, lambda rank, done: on_step(min(team.steps.values())))
                self.ended = time.monotonic()
            self._count(by_rank)
        except RailyardError as error:
            self.ended = time.monotonic()
            session.check(_LAST_MESSAGES_S)
            raise error
        finally:
            self.ended = max(self.ended, self.began)
            team.stop()
            with suppress(ControlError):
                session.call("finish", job=self._point.name)

    def _count(self, netns_fds: Mapping[int, int]) -> None:
        """Read the counters of queues, switches and rails; called at the start and at the end of a point."""
        session = self._session
        self._other_events += queue_events(netns_fds, session.plan)
        self._other_events += switch_events(session.net.yard.netns_fd, session.plan)
        self._counters.append(read_port_counters(session.plan, [netns_fds[rank] for rank in range(session.plan.ranks)]))

    @property
    def delivered(self) -> Delivery | None:
        """Delivery of the rails while the agents ran; None if the agents did not run to the end."""
        return delivery(*self._counters) if len(self._counters) == 2 else None

    def events(self) -> list[Event]:
        """All recorded events of the point, in order of time."""
        events = list(self._other_events)
        for file in sorted(self._folder.glob("*.jsonl")):
            events += read_events(file)
        controller = [Event.from_line(line) for line in self._session.new_controller_events()]
        events += within(controller, self.began, max(self.ended, time.monotonic()))
        return sorted(events, key=lambda e: e.t)
