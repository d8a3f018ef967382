"""Simulates an edge run in virtual time, by the classes that also run it on packets.

Job manager, client managers, scheduler, policy, devices and jobs are those of ``experiments.propius.control`` and
``experiments.propius.data``; only time, messages and transfers are simulated. Control messages take no time.

A client without an offer asks again by its timers, over and over. As long as no job is open for it, each of these
check-ins only confirms that it is there. So an idle client is left alone until a job opens that it may serve, and
checks in at the time at which its own timers would have made it do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.propius.control.managers import ClientManager, JobManager, LoadBalancer
from experiments.propius.control.policies import (
    EdgePolicy,
    Scheduler,
    Sees,
    load_edge_policy,
    partition,
    plans,
    random_selection_timers,
)
from experiments.propius.data.clients import (
    Accept,
    Action,
    AskForJobs,
    Binding,
    ClientProfile,
    Device,
    DeviceTimers,
    Get,
    Outcome,
    Pause,
    Push,
    Rest,
    Train,
)
from experiments.propius.data.jobs import (
    POLL_S,
    EdgeJob,
    EndRequest,
    FinishJob,
    JobAction,
    JobRounds,
    Poll,
    Put,
    RegisterJob,
    RequestClients,
    Sleep,
    WriteEvent,
)
from experiments.propius.metrics import EdgeMeter, EdgeMetrics
from experiments.propius.model.plane import Clock, Network, Plane
from railyard.timeline import Event


@dataclass(frozen=True)
class VirtualRun:
    """A run to simulate; all times are real seconds.

    ``policy`` is a name of ``experiments.propius.control.policies`` or a user's own. ``until_s`` ends a run
    whose jobs do not all finish.
    """

    jobs: Sequence[EdgeJob]
    clients: Sequence[ClientProfile]
    policy: str = "irs"
    seed: int = 0
    managers: int = 1
    sees: Sees = "all"
    timers: DeviceTimers = field(default_factory=DeviceTimers)
    network: Network = field(default_factory=Network)
    until_s: float = inf


@dataclass(frozen=True)
class VirtualOutcome:
    """The result of a simulated run: its metrics, and its events if they were asked for."""

    metrics: EdgeMetrics
    events: tuple[Event, ...]


class Idle:
    """The idle ones of ``devices``; ``wanted`` tells which of all clients some open job would take."""

    def __init__(self, devices: list[Device], asks: int) -> None:
        count = len(devices)
        self._devices = devices
        self._asks = asks + 1
        self._anchor = np.zeros(count)
        self._offsets = np.zeros((count, self._asks))
        self._period = np.ones(count)
        self._idle = np.zeros(count, dtype=bool)
        self._wanted = np.zeros(count, dtype=bool)
        self._cycles = np.zeros(count, dtype=np.int64)
        self._asked = np.zeros(count, dtype=np.int64)
        self._due = np.full(count, inf)
        self._first: int | None = None

    def park(self, client: int, ask: float) -> None:
        """The client waits and will check in at ``ask``; its waits after that come from its own state machine."""
        waits = [_wait(self._devices[client]) for _ in range(self._asks)]
        self._anchor[client] = ask
        self._offsets[client, 1:] = np.cumsum(waits[:-1])
        self._period[client] = sum(waits)
        self._cycles[client] = self._asked[client] = 0
        self._idle[client] = True
        if self._wanted[client]:
            self._due[client] = ask
            if self._first is not None and ask < self._due[self._first]:
                self._first = client

    def want(self, wanted: npt.NDArray[np.bool_], now: float) -> None:
        """From ``now`` on these are the clients that some open job would take."""
        self._wanted = wanted
        self._first = None
        self._due.fill(inf)
        found = np.flatnonzero(wanted & self._idle)
        if not len(found):
            return
        anchor, period = self._anchor[found], self._period[found]
        cycles = np.maximum(0, np.floor((now - anchor) / period)).astype(np.int64)
        since = now - anchor - cycles * period
        asked = (self._offsets[found] < since[:, None]).sum(axis=1)
        cycles += asked == self._asks
        asked[asked == self._asks] = 0
        self._cycles[found], self._asked[found] = cycles, asked
        self._due[found] = anchor + cycles * period + self._offsets[found, asked]

    def refuse(self, client: int) -> None:
        """Nothing that is open now suits the client after all."""
        self._wanted[client] = False
        if self._due[client] < inf:
            self._due[client] = inf
            self._first = None

    @property
    def next_s(self) -> float:
        """The time of the next check-in that may lead to a binding; infinity if there is none."""
        if self._first is None:
            self._first = int(self._due.argmin())
        return float(self._due[self._first])

    def pop(self) -> tuple[int, list[float]]:
        """The client of ``next_s``, now about to check in; when it did so in vain since its last pause."""
        client = self._first if self._first is not None else int(self._due.argmin())
        device, asked, cycles = self._devices[client], int(self._asked[client]), int(self._cycles[client])
        start = float(self._anchor[client] + cycles * self._period[client])
        lately = [start + float(offset) for offset in self._offsets[client, :asked]]
        for _ in lately:
            _wait(device)
        self._idle[client] = False
        self._due[client] = inf
        self._first = None
        return client, lately


def _wait(device: Device) -> float:
    """One check-in in vain: how long the device then waits before it is about to check in again."""
    (wait,) = device.offered(())
    assert isinstance(wait, Pause), "nothing was offered"
    device.woke()
    return wait.seconds


@dataclass(eq=False)
class SimulatedJob:
    """One job; ``waiting`` are clients bound to a round whose model is not there yet: when they first asked for it."""

    rounds: JobRounds
    number: int = -1
    sleeps: int = 0
    waiting: dict[int, tuple[Binding, float]] = field(default_factory=dict)


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
        self.refresh_s = self.policy.refresh_s if plans(self.policy) else inf
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
        self.jobs: dict[int, SimulatedJob] = {}
        self.finished = 0
        self.plane.counted = self._counted
        self.eligible: dict[int, npt.NDArray[np.bool_]] = {}
        self.plan: Any = None
        self.version = -1

    def _policy(self, number: int) -> EdgePolicy:
        return self.policy if number == 0 else load_edge_policy(self.input.policy, self.input.seed, number)

    def run(self) -> VirtualOutcome:
        for job in self.input.jobs:
            poll_s = inf if self.input.network.topology == "flat" else POLL_S
            self.clock.at(job.arrival_s, self._start, SimulatedJob(JobRounds(job, poll_s=poll_s)))
        for client, device in enumerate(self.devices):
            self._act(client, device.start())
        if self.refresh_s < inf:
            self.clock.at(0.0, self._refresh)
        self._play()
        self._drain()
        return VirtualOutcome(self.meter.result(), tuple(sorted(self.events or (), key=lambda event: event.t)))

    def _play(self) -> None:
        while self.finished < len(self.input.jobs):
            check_in, other = self.idle.next_s, self.clock.next_time
            if min(check_in, other) > self.input.until_s or min(check_in, other) == inf:
                return
            if check_in < other:
                self._wake(check_in)
            else:
                self.clock.step()

    def _drain(self) -> None:
        """Let what is under way when the last job finishes come to its end: no update stays at a leaf unseen."""
        end = self.clock.now + DRAIN_S
        while self.clock.next_time <= min(end, self.input.until_s):
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
        self.clock.now = time
        client, lately = self.idle.pop()
        if self.policy.batch:  # the manager has to know since when the client waits for a batch
            for before in lately:
                self._check_in(client, before)
        self._act(client, (AskForJobs(),))

    def _check_in(self, client: int, now: float) -> Sequence[Any]:
        known = self.ids[client]
        manager = self.managers[self.balancer.manager_of(known)]
        answer = manager.check_in(known, self.devices[client].profile.attributes, now)
        self.ids[client] = answer.client
        self._tell("checkin", client=client, offers=len(answer.offers))
        return answer.offers

    # ---- jobs -------------------------------------------------------------------------------------------------

    def _start(self, job: SimulatedJob) -> None:
        self._do(job, job.rounds.start(self.clock.now))

    def _counted(self, number: int, count: int) -> None:
        """The authors' flat server has ``count`` updates; its job knows at once."""
        job = self.jobs[number]
        if count >= job.rounds.job.demand:
            self._do(job, job.rounds.polled(count, self.clock.now))

    def _answer(self, job: SimulatedJob, method: Callable[..., Iterable[JobAction]], *args: int) -> None:
        """Call ``method`` with an answer at once, but after the actions that are being carried out."""
        self.clock.later(0.0, lambda: self._do(job, method(*args, self.clock.now)))

    def _do(self, job: SimulatedJob, actions: Iterable[JobAction]) -> None:
        for action in actions:
            self._do_one(job, action)
        self._changed()

    def _do_one(self, job: SimulatedJob, action: JobAction) -> None:
        now, number = self.clock.now, job.number
        match action:
            case RegisterJob():
                job.number = self.manager.register(job.rounds.job, now)
                self.jobs[job.number] = job
                self._entered(job.number, job.rounds.job)
                self._tell("registered", job=job.number)
                self._answer(job, job.rounds.registered, job.number)
            case RequestClients(round, demand, attempt):
                self._tell("request", job=number, round=round, demand=demand, attempt=attempt)
                self.manager.request(number, round, demand, now, attempt)
            case EndRequest():
                count = self.manager.end_request(number, now) or 0
                if self.plane.sends_away and count < job.rounds.job.selected:
                    count = 0  # the authors' job gives up a round that has not all clients in time, even the demand
                self._answer(job, job.rounds.ended, count)
            case Put(round, attempt):
                self.plane.put(number, round, attempt)
                self._release(job)
                self._answer(job, job.rounds.put)
            case Poll():
                self._answer(job, job.rounds.polled, self.plane.count(number))
            case Sleep(seconds):
                job.sleeps += 1
                self.clock.later(seconds, self._woke, job, job.sleeps)
            case FinishJob():
                self.manager.finish(number, now)
                self._tell("finished", job=number)
                self.finished += 1
            case WriteEvent(kind, fields, began):
                self._tell(kind, began, **fields)
                if kind in ("round", "timeout"):
                    self.plane.close(number)
                if kind == "timeout" and self.plane.sends_away:
                    self._release(job)

    def _woke(self, job: SimulatedJob, sleep: int) -> None:
        if sleep == job.sleeps:
            self._do(job, job.rounds.woke(self.clock.now))

    # ---- clients ----------------------------------------------------------------------------------------------

    def _act(self, client: int, actions: Sequence[Action]) -> None:
        device, now = self.devices[client], self.clock.now
        for place, action in enumerate(actions):
            match action:
                case Rest(seconds):
                    self.clock.later(seconds, self._act, client, actions[place + 1 :])
                    return
                case Pause(seconds):
                    self._park(client, now + seconds)
                case AskForJobs():
                    self._act(client, device.offered(self._check_in(client, now)))
                case Accept(job):
                    self._act(client, self._accept(client, job))
                case Get():
                    self._get(client)
                case Train(seconds):
                    self.began[client] = now
                    self.clock.later(seconds, self._trained, client)
                case Push():
                    self._push(client)

    def _park(self, client: int, ask: float) -> None:
        self.devices[client].woke()
        self.in_vain[client] += 1
        self.idle.park(client, ask)
        if self.in_vain[client] >= IN_VAIN and not self.policy.per_client:
            self.idle.refuse(client)

    def _accept(self, client: int, number: int) -> tuple[Action, ...]:
        device, now = self.devices[client], self.clock.now
        binding = self.manager.accept(number, client, now)
        if binding is None:
            self._tell("refused", client=client, job=number)
            return device.refused()
        self.in_vain[client] = 0
        self._tell("bound", client=client, job=number, round=binding.round)
        actions = device.accepted(binding)
        self._changed()
        bound = self.manager.bound(number)
        if bound is not None and bound >= self.jobs[number].rounds.job.selected:
            self._answer(self.jobs[number], self.jobs[number].rounds.bound, bound)
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
            self.jobs[binding.job].waiting[client] = (binding, now)
            self.clock.at(now + timers.polls * timers.poll_s, self._give_up, client, binding)

    def _give_up(self, client: int, binding: Binding) -> None:
        """The last poll: a client that still waits for the model of ``binding`` pauses."""
        waiting = self.jobs[binding.job].waiting
        if client in waiting and waiting[client][0] is binding:
            del waiting[client]
            self._tell("gone", client=client, why="the round did not start")
            self._act(client, self.devices[client].failed())

    def _release(self, job: SimulatedJob) -> None:
        """Each client that waits for the model learns at its next poll that it is there, or that the attempt ended."""
        now, waiting, job.waiting = self.clock.now, job.waiting, {}
        for client, (binding, since) in waiting.items():
            device = self.devices[client]
            poll_s = device.timers.poll_s
            polls = max(1, ceil((now - since) / poll_s - 1e-9))
            for _ in range(polls):
                device.absent()
                device.woke()
            self.clock.at(since + polls * poll_s, self._arrive, client, binding)

    def _arrive(self, client: int, binding: Binding) -> None:
        if self.plane.serves(binding):
            self._download(client, binding)
        else:
            self._away(client)

    def _away(self, client: int) -> None:
        """The server sends the client away, since its round is over or starts again: it is free at once."""
        self._tell("gone", client=client, why="the round ended without it")
        self._act(client, self.devices[client].pushed("refused"))

    def _download(self, client: int, binding: Binding) -> None:
        self.began[client] = self.clock.now
        self.plane.get(self.devices[client].profile, binding, lambda hit: self._got(client, binding, hit))

    def _got(self, client: int, binding: Binding, hit: bool | None) -> None:
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("get", self.began[client], bytes=self._bytes, hit=hit, **fields)
        if self._sent_away(binding):
            self._away(client)
        else:
            self._act(client, self.devices[client].got())

    def _trained(self, client: int) -> None:
        binding = self._bound(client)
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("train", self.began[client], late_s=0.0, **fields)
        if self._sent_away(binding):
            self._away(client)
        else:
            self._act(client, self.devices[client].trained())

    def _push(self, client: int) -> None:
        binding = self._bound(client)
        self.began[client] = self.clock.now
        self.plane.push(self.devices[client].profile, binding, lambda outcome: self._pushed(client, binding, outcome))

    def _pushed(self, client: int, binding: Binding, outcome: Outcome) -> None:
        fields = {"client": client, "job": binding.job, "round": binding.round}
        self._tell("push", self.began[client], bytes=self._bytes, outcome=outcome, **fields)
        self._act(client, self.devices[client].pushed(outcome))

    def _sent_away(self, binding: Binding) -> bool:
        return self.plane.sends_away and not self.plane.serves(binding)

    @property
    def _bytes(self) -> int:
        return round(self.input.network.model_bytes)
