"""Simulates an edge run in virtual time, by the classes that also run it on packets.

Job manager, client managers, scheduler, policy, devices and jobs are those of ``experiments.propius.control`` and
``experiments.propius.data``; only time, messages and transfers are simulated. Control messages take no time. Check-ins
that would lead nowhere are left out (``experiments.propius.model.idle``) and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.propius.control.baselines import partition, random_selection_timers
from experiments.propius.control.catalog import load_edge_policy
from experiments.propius.control.client_manager import ClientManager
from experiments.propius.control.job_manager import JobManager
from experiments.propius.control.load_balancer import LoadBalancer
from experiments.propius.control.policy import EdgePolicy
from experiments.propius.control.scheduler import Scheduler
from experiments.propius.data.device import Accept, Action, Binding, CheckIn, Device, Get, Outcome, Push, Train, Wait
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.rounds import JobRounds, job_timers
from experiments.propius.metrics.meter import EdgeMeter
from experiments.propius.model.clock import Clock
from experiments.propius.model.idle import Idle
from experiments.propius.model.jobs import SimulatedJob, SimulatedJobs
from experiments.propius.model.plane import Plane
from experiments.propius.model.run import VirtualOutcome, VirtualRun
from railyard.timeline import Event

IN_VAIN = 3
"""After so many check-ins without a job a client waits until something has changed: a batch policy answers late."""

DRAIN_S = 120.0
"""So many seconds after the last job finished no update is under way any more."""


def simulate(run: VirtualRun, *, keep_events: bool = False) -> VirtualOutcome:
    """Simulate ``run`` until its last job finishes; ``ConfigError`` if its policy cannot be loaded."""
    return _Simulation(run, keep_events).run()


class _Simulation:
    def __init__(self, run: VirtualRun, keep_events: bool) -> None:
        self.input = run
        self.clock = Clock()
        self.events: list[Event] | None = [] if keep_events else None
        self.meter = EdgeMeter()
        self.policy = load_edge_policy(run.policy, run.seed)
        planned = type(self.policy).plan is not EdgePolicy.plan
        self.refresh_s = self.policy.refresh_s if planned else inf
        timers = random_selection_timers(run.timers) if self.policy.blind else run.timers
        mine = partition(run.clients, run.jobs, run.seed) if self.policy.name == "static" else None
        self.devices = [
            Device(client, timers, run.seed, assigned=None if mine is None else mine.get(client.number, ""))
            for client in run.clients
        ]
        self.idle = Idle(self.devices, timers.asks)
        self.manager = JobManager(silent_s=inf)
        self.managers = [
            ClientManager(number, run.managers, self._policy(number), store_s=inf) for number in range(run.managers)
        ]
        self.scheduler = Scheduler(self.policy, run.sees)
        self.balancer = LoadBalancer(run.managers)
        regions = 1 + max(client.region for client in run.clients)
        self.plane = Plane(run.network, self.clock, regions, self._emit)
        self.ids: list[int | None] = [None] * len(run.clients)
        self.began = [0.0] * len(run.clients)
        self.in_vain = np.zeros(len(run.clients), dtype=np.int64)
        self.jobs = SimulatedJobs(
            self.clock,
            self.manager,
            self.plane,
            self._tell,
            entered=self._entered,
            released=self._release,
            changed=self._changed,
        )
        self.plane.counted = self.jobs.counted
        self.eligible: dict[int, npt.NDArray[np.bool_]] = {}
        self.plan: Any = None
        self.version = -1
        self.skipped = 0

    def _policy(self, number: int) -> EdgePolicy:
        return self.policy if number == 0 else load_edge_policy(self.input.policy, self.input.seed, number)

    def run(self) -> VirtualOutcome:
        for job in self.input.jobs:
            timers = replace(job_timers(job), poll_s=self.input.poll_s, ask_bound_s=inf)
            if self.input.network.topology == "flat":
                timers = replace(timers, poll_s=inf)
            self.clock.at(job.arrival_s, self.jobs.start, SimulatedJob(JobRounds(job, timers)))
        for client, device in enumerate(self.devices):
            self._act(client, device.start(0.0))
        if self.refresh_s < inf:
            self.clock.at(0.0, self._refresh)
        self._play()
        self._drain()
        end = min(self.clock.now, self.input.until_s)
        return VirtualOutcome(
            self.meter.result(),
            tuple(sorted(self.events or (), key=lambda event: event.t)),
            self.skipped + self.idle.skipped(end),
            self.plane.down.bytes,
            self.plane.up.bytes,
        )

    def _play(self) -> None:
        while self.jobs.finished < len(self.input.jobs):
            check_in, other = self.idle.next_s, self.clock.next_s
            if min(check_in, other) > self.input.until_s or min(check_in, other) == inf:
                return
            if check_in < other:
                self._wake(check_in)
            else:
                self.clock.step()

    def _drain(self) -> None:
        """Let what is under way when the last job finishes come to its end: no update stays at a leaf unseen."""
        end = self.clock.now + DRAIN_S
        while self.clock.next_s <= min(end, self.input.until_s):
            self.clock.step()

    def _emit(self, event: Event) -> None:
        self.meter.add(event)
        if self.events is not None:
            self.events.append(event)

    def _tell(self, kind: str, began: float | None = None, **fields: Any) -> None:
        now = self.clock.now
        self._emit(Event(now if began is None else began, "edge", kind, None if began is None else now, fields))

    # ---- control plane ----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Plan anew, as the scheduler does every ``refresh_s``, and tell the managers if the plan is another."""
        now = self.clock.now
        known = [manager.known(now) for manager in self.managers]
        plan = self.scheduler.plan(self.manager.jobs(), known, now)
        if plan != self.plan:
            self.plan = plan
            self._publish()
        self.clock.later(self.refresh_s, self._refresh)

    def _changed(self) -> None:
        if self.manager.version != self.version:
            self._publish()

    def _publish(self) -> None:
        """Tell the client managers which jobs there are, and look which idle clients one of them would take."""
        self.version = self.manager.version
        now, jobs = self.clock.now, self.manager.jobs()
        for manager in self.managers:
            manager.update(jobs, self.plan, now)
        self.in_vain.fill(0)
        wanted = np.zeros(len(self.devices), dtype=bool)
        for job in jobs:
            if self.policy.blind:
                wanted[:] = True
            elif job.open:
                wanted |= self.eligible[job.number]
        self.idle.want(wanted, now)

    def _entered(self, number: int, job: EdgeJob) -> None:
        """A job has registered: note which clients would take it."""
        self.eligible[number] = np.array(
            [
                device.assigned in (None, job.name)
                and device.profile.private_size >= job.private_bound
                and device.profile.attributes.meets(job.bounds)
                for device in self.devices
            ],
            dtype=bool,
        )

    def _wake(self, time: float) -> None:
        """An idle client checks in."""
        self.clock.now = time
        client, left_out, lately = self.idle.pop()
        self.skipped += left_out
        if self.policy.batch:  # the manager has to know since when the client waits for a batch
            for before in lately:
                self._check_in(client, before)
            self.skipped -= len(lately)
        self._act(client, (CheckIn(),))

    def _check_in(self, client: int, now: float) -> Sequence[Any]:
        known = self.ids[client]
        manager = self.managers[self.balancer.manager_of(known)]
        answer = manager.check_in(known, self.devices[client].profile.attributes, now)
        self.ids[client] = answer.client
        self._tell("checkin", client=client, offers=len(answer.offers))
        return answer.offers

    # ---- clients ----------------------------------------------------------------------------------------------

    def _act(self, client: int, actions: Iterable[Action]) -> None:
        device, now = self.devices[client], self.clock.now
        for action in actions:
            match action:
                case Wait(seconds):
                    self._park(client, now + seconds)
                case CheckIn():
                    self._act(client, device.offered(self._check_in(client, now), now))
                case Accept(job):
                    self._act(client, self._accept(client, job))
                case Get():
                    self._get(client)
                case Train(seconds):
                    self.began[client] = now
                    self.clock.later(seconds + 2 * self.input.network.pause_s, self._trained, client)
                case Push():
                    self._push(client)

    def _park(self, client: int, ask: float) -> None:
        """The client waits in vain until ``ask``."""
        self.devices[client].woke(ask)
        self.in_vain[client] += 1
        self.idle.park(client, ask, self.clock.now)
        if self.in_vain[client] >= IN_VAIN and not self.policy.per_client:
            self.idle.refuse(client)

    def _accept(self, client: int, number: int) -> tuple[Action, ...]:
        device, now = self.devices[client], self.clock.now
        binding = self.manager.accept(number, client, now)
        if binding is None:
            self._tell("refused", client=client, job=number)
            return device.refused(now)
        self.in_vain[client] = 0
        self._tell("bound", client=client, job=number, round=binding.round)
        actions = device.accepted(binding, now)
        self._changed()
        bound = self.manager.bound(number)
        if bound is not None and bound >= self.jobs.jobs[number].rounds.job.selected:
            self.jobs.full(number, bound)
        return actions

    def _bound(self, client: int) -> Binding:
        binding = self.devices[client].binding
        assert binding is not None, "the client serves a job"
        return binding

    def _get(self, client: int) -> None:
        binding, now = self._bound(client), self.clock.now
        if self.plane.serves(binding):
            self._download(client, binding)
        else:
            timers = self.devices[client].timers
            self.jobs.jobs[binding.job].waiting[client] = (binding, now)
            self.clock.at(now + timers.polls * timers.poll_s, self._give_up, client, binding)

    def _give_up(self, client: int, binding: Binding) -> None:
        """The last poll: a client that still waits for the model of ``binding`` pauses."""
        waiting = self.jobs.jobs[binding.job].waiting
        if client in waiting and waiting[client][0] is binding:
            del waiting[client]
            self._tell("gone", client=client, why="the round did not start")
            self._act(client, self.devices[client].failed(self.clock.now))

    def _release(self, job: SimulatedJob) -> None:
        """Each client that waits for the model learns at its next poll that it is there, or that the attempt ended."""
        now, waiting, job.waiting = self.clock.now, job.waiting, {}
        for client, (binding, since) in waiting.items():
            device = self.devices[client]
            poll_s = device.timers.poll_s
            polls = max(1, ceil((now - since) / poll_s - 1e-9))
            for poll in range(polls):
                device.absent(since + poll * poll_s)
                device.woke(since + (poll + 1) * poll_s)
            self.clock.at(since + polls * poll_s, self._arrive, client, binding)

    def _arrive(self, client: int, binding: Binding) -> None:
        if self.plane.serves(binding):
            self._download(client, binding)
        else:
            self._away(client)

    def _away(self, client: int) -> None:
        """The server sends the client away, since its round is over or starts again: it is free at once."""
        self._tell("gone", client=client, why="the round ended without it")
        self._act(client, self.devices[client].pushed("refused", self.clock.now))

    def _download(self, client: int, binding: Binding) -> None:
        self.began[client] = self.clock.now
        self.plane.get(self.devices[client].profile, binding, lambda hit: self._got(client, binding, hit))

    def _got(self, client: int, binding: Binding, hit: bool | None) -> None:
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("get", self.began[client], bytes=self._bytes, hit=hit, **fields)
        if self._sent_away(binding):
            self._away(client)
        else:
            self._act(client, self.devices[client].got(self.clock.now))

    def _trained(self, client: int) -> None:
        binding = self._bound(client)
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("train", self.began[client], late_s=0.0, **fields)
        if self._sent_away(binding):
            self._away(client)
        else:
            self._act(client, self.devices[client].trained(self.clock.now))

    def _push(self, client: int) -> None:
        binding = self._bound(client)
        self.began[client] = self.clock.now
        self.plane.push(self.devices[client].profile, binding, lambda outcome: self._pushed(client, binding, outcome))

    def _pushed(self, client: int, binding: Binding, outcome: Outcome) -> None:
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("push", self.began[client], bytes=self._bytes, outcome=outcome, **fields)
        self._act(client, self.devices[client].pushed(outcome, self.clock.now))

    def _sent_away(self, binding: Binding) -> bool:
        return self.plane.sends_away and not self.plane.serves(binding)

    @property
    def _bytes(self) -> int:
        return round(self.input.network.model_bytes)
