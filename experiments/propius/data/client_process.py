"""The processes of the clients of one region and of the jobs, and the data plane as they see it.

Each client is a ``Device`` with sockets in a namespace of its own. Training is a timer; models and updates are real
bytes. A request whose connection broke is sent again. In mode ``fixed`` an update has an identity, so it is counted
once however often it is sent; in mode ``authors`` it is counted each time it arrives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from experiments.propius.control.servers import ControlClient
from experiments.propius.data import jobs, servers
from experiments.propius.data.clients import (
    Accept,
    Action,
    AskForJobs,
    Binding,
    Device,
    Get,
    Pause,
    Push,
    Rest,
)
from experiments.propius.data.endpoint import PATIENCE_S, Address, Client, Pool
from experiments.propius.data.jobs import EdgeJob, JobAction, JobRounds
from experiments.propius.data.messages import EdgeError, EdgeRefused, Mode, Payload, Reply, RoundAttempt, UpdateId
from experiments.propius.run import CONTROL_PORT, DATA_PORT, Actor, EdgeRun, EventFile, Orders, Role
from topos.edge_plan import ROOT

PushOutcome = Literal["acknowledged", "late", "lost", "refused"]
"""``late``: the round is over. ``lost``: no answer came, so nobody knows whether the update is counted."""


@dataclass(frozen=True)
class Retries:
    """A request is tried ``tries`` times in all, ``pause_s`` seconds after the last failure."""

    pause_s: float
    tries: int

    def scaled(self, time: float) -> Retries:
        return Retries(self.pause_s * time, self.tries)


RETRIES: dict[Mode, Retries] = {"authors": Retries(5.0, 3), "fixed": Retries(1.0, 120)}
"""In real seconds; ``authors`` as in their client."""


class DataClient(Client):
    """The connection from the namespace ``netns_fd`` (None: that of this process) to the server at ``address``.

    ``size`` is that of a model and of an update, in bytes, ``retries`` is in seconds of the run (``RETRIES``, scaled).
    """

    def __init__(
        self,
        netns_fd: int | None,
        address: Address,
        size: int,
        *,
        retries: Retries = Retries(0.1, 120),
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(netns_fd, address, most_payload=size, patience_s=patience_s)
        self._retries = retries

    @staticmethod
    def of(run: EdgeRun, client: int | None) -> DataClient:
        """A client of ``run`` and the server of its region; None: a job, on the root's host, and the root."""
        region = None if client is None else run.plan.region_of(client)
        fd = run.netns_fds[ROOT] if client is None else run.client_fd(client)
        address = (run.plan.root_ip, DATA_PORT) if region is None else run.data_address(region)
        retries = RETRIES[run.mode].scaled(run.time)
        return DataClient(fd, address, run.size, retries=retries, patience_s=run.patience_s(region))

    async def get(self, job: int, round: int) -> tuple[bool, Payload | None]:
        """(whether the server had the model of the round, the model); the model is None before the job has put it.

        Raises ``EdgeRefused`` if the round is over, ``EdgeError`` if the server does not answer.
        """
        reply = await self._repeated("get", job=job, round=round)
        return bool(reply.fields["hit"]), None if reply.fields.get("absent") else reply.payload

    async def push(self, update: UpdateId, payload: Payload) -> PushOutcome:
        """Deliver an update of ``size`` bytes; never raises ``EdgeError``."""
        try:
            reply = await self._repeated(
                "push", payload, job=update.job, **update.stage._asdict(), client=update.client
            )
        except EdgeRefused:
            return "refused"
        except EdgeError:
            return "lost"
        outcome: PushOutcome = reply.fields.get("outcome", "refused")
        return outcome

    async def put(self, job: int, stage: RoundAttempt, demand: int, model: Payload) -> None:
        """Put the model of an attempt of a round at the root. ``EdgeError`` if it fails."""
        await self._repeated("put", model, job=job, **stage._asdict(), demand=demand)

    async def job_get(self, job: int, round: int) -> tuple[int, Payload | None]:
        """(updates in the sum of the round, the sum if there are as many as the demand). ``EdgeError`` if it fails."""
        reply = await self._repeated("job_get", job=job, round=round)
        return int(reply.fields["count"]), reply.payload if reply.fields["ready"] else None

    async def _repeated(self, op: str, payload: Payload = b"", **fields: Any) -> Reply:
        for _ in range(self._retries.tries - 1):
            try:
                return await self.call(op, payload, **fields)
            except EdgeRefused:
                raise
            except EdgeError:
                await asyncio.sleep(self._retries.pause_s)
        return await self.call(op, payload, **fields)


_zeros = cache(bytes)


def update_of(run: EdgeRun, job: int, round: int, client: int) -> Payload:
    """The update of a client: numbers that are drawn with ``verify``, else zeros."""
    return servers.as_bytes(servers.draw(run.seed, job, round, client, run.size)) if run.verify else _zeros(run.size)


class EdgeClient:
    """One client: does what its device decides and tells it what came of it."""

    def __init__(self, run: EdgeRun, number: int, events: EventFile) -> None:
        profile, fd, region = run.clients[number], run.client_fd(number), run.plan.region_of(number)
        self.number = number
        self._run = run
        self._events = events
        self._device = Device(
            profile,
            run.client_timers,
            run.seed,
            train_s=profile.train_s() * run.time,
            assigned=run.assigned.get(number),
        )
        self._control = ControlClient(fd, (run.plan.regions[region].control_ip, CONTROL_PORT), number)
        self._data = DataClient.of(run, number)
        self._vanishing = {fault.round for fault in run.vanishing if fault.client == number}

    async def run(self) -> None:
        try:
            await self._work()
        finally:
            await self._data.close()
            await self._control.close()
        self._events.note("gone", client=self.number, why="vanished before its upload")

    async def _work(self) -> None:
        actions: list[Action] = list(self._device.start())
        while actions:
            action = actions.pop(0)
            if isinstance(action, Push) and action.round in self._vanishing:
                return
            try:
                actions += await self._do(action)
            except EdgeError:
                actions = list(self._device.failed())

    async def _do(self, action: Action) -> tuple[Action, ...]:
        device, began = self._device, time.monotonic()
        if isinstance(action, AskForJobs):
            offers = await self._control.check_in(device.profile.attributes)
            self._events.note("checkin", client=self.number, offers=len(offers))
            return device.offered(offers)
        if isinstance(action, Accept):
            binding = await self._control.accept(action.job)
            return device.refused() if binding is None else device.accepted(binding)
        if isinstance(action, Get):
            hit, model = await self._data.get(action.job, action.round)
            if model is None:
                return device.absent()
            self._worked("get", began, bytes=len(model), hit=hit)
            return device.got()
        if isinstance(action, Push):
            return await self._push(began)
        await asyncio.sleep(action.seconds)
        if isinstance(action, Rest):
            return ()
        if isinstance(action, Pause):
            return device.woke()
        late = max(0.0, time.monotonic() - began - action.seconds)
        self._worked("train", began, late_s=round(late, 6))
        return device.trained()

    async def _push(self, began: float) -> tuple[Action, ...]:
        binding = self._binding
        identity = UpdateId(binding.job, RoundAttempt(binding.round, binding.attempt), self.number)
        payload = update_of(self._run, binding.job, binding.round, self.number)
        outcome = await self._data.push(identity, payload)
        attempt = binding.attempt if self._run.mode == "fixed" else 0
        self._worked("push", began, attempt=attempt, bytes=len(payload), outcome=outcome)
        return self._device.pushed(outcome)

    def _worked(self, kind: str, began: float, **fields: Any) -> None:
        """Note work that ends now for the job that the client serves."""
        of = self._binding
        self._events.note(kind, began, time.monotonic(), client=self.number, job=of.job, round=of.round, **fields)

    @property
    def _binding(self) -> Binding:
        assert self._device.binding is not None, "only a bound client trains and delivers"
        return self._device.binding


async def clients_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    events = EventFile(role.events)
    clients = [EdgeClient(run, client, events) for client in run.plan.regions[role.number].clients]
    orders.ready()
    await orders.go.wait()
    await asyncio.gather(*(client.run() for client in clients))
    await orders.stop.wait()


class JobRun(Actor):
    """One job: does what its ``JobRounds`` decides. Each call is a task, so a timer may end while it is under way.

    ``manager`` leads to the job manager, which numbers the jobs in the order in which they hold ``registering``.
    """

    def __init__(self, job: EdgeJob, run: EdgeRun, manager: Pool, registering: asyncio.Lock, events: EventFile) -> None:
        super().__init__(events)
        self._run = run
        self._rounds = JobRounds(job, run.time)
        self._manager, self._registering = manager, registering
        self._root = DataClient.of(run, None)

    async def run(self) -> None:
        """Work from arrival to the end of the last round. ``EdgeError`` if the job manager is gone."""
        await asyncio.sleep(self._rounds.job.arrival_s * self._run.time)
        self._do(self._rounds.start(time.monotonic()))
        try:
            await self.failed
        finally:
            await self.give_up()
            await self._root.close()

    def _do(self, actions: Iterable[JobAction]) -> None:
        for action in actions:
            if isinstance(action, jobs.Sleep):
                self.call_at(self.loop.time() + action.seconds, self._woke)
            elif isinstance(action, jobs.WriteEvent):
                self.events.write(action)
            else:
                self.spawn(self._call(action))

    def _woke(self) -> None:
        self._do(self._rounds.woke(time.monotonic()))

    async def _ask(self, op: str, **fields: Any) -> Mapping[str, Any]:
        return (await self._manager.call(op, **fields)).fields

    async def _call(self, action: JobAction) -> None:
        state = self._rounds
        if isinstance(action, jobs.RegisterJob):
            async with self._registering:
                number = (await self._ask("register", **{key: getattr(state.job, key) for key in _REGISTERED}))["job"]
            self._do(state.registered(number, time.monotonic()))
        elif isinstance(action, jobs.RequestClients):
            await self._request(action)
        elif isinstance(action, jobs.EndRequest):
            count = (await self._ask("end_request", job=self._number))["bound"]
            now = time.monotonic()
            self._do(state.forgotten(now) if count is None else state.ended(count, now))
        elif isinstance(action, jobs.Put):
            await self._put(action)
        elif isinstance(action, jobs.Poll):
            await self._poll(action)
        elif isinstance(action, jobs.FinishJob):
            await self._ask("finish", job=self._number)
            self.failed.set_result(None)

    async def _request(self, action: jobs.RequestClients) -> None:
        """Send REQUEST, then tell the job its clients when it has them all."""
        state, number = self._rounds, self._number
        fields = {"round": action.round, "demand": action.demand, "attempt": action.attempt}
        known = (await self._ask("request", job=number, **fields))["known"]
        if not known:
            self._do(state.forgotten(time.monotonic()))
        while known and self._is_current(action.round, action.attempt) and state.phase == "scheduling":
            answer = await self._ask("bound", job=number)
            if not self._is_current(action.round, action.attempt):
                return
            if answer["bound"] is None:
                self._do(state.forgotten(time.monotonic()))
            elif not answer["open"]:
                self._do(state.bound(answer["bound"], time.monotonic()))
                return

    async def _put(self, action: jobs.Put) -> None:
        """Put the model at the root; if that fails, the round's timer ends the round."""
        state = self._rounds
        with suppress(EdgeError):
            stage, model = RoundAttempt(action.round, action.attempt), bytes(self._run.size)
            await self._root.put(self._number, stage, state.job.demand, model)
            if self._is_current(action.round, action.attempt):
                self._do(state.put(time.monotonic()))

    async def _poll(self, action: jobs.Poll) -> None:
        count, attempt = 0, self._rounds.attempt
        with suppress(EdgeError):
            count, _ = await self._root.job_get(self._number, action.round)
        if self._is_current(action.round, attempt):
            self._do(self._rounds.polled(count, time.monotonic()))

    def _is_current(self, round: int, attempt: int) -> bool:
        return (self._rounds.round, self._rounds.attempt) == (round, attempt)

    @property
    def _number(self) -> int:
        assert self._rounds.number is not None, "a job asks for clients after it has registered"
        return self._rounds.number


_REGISTERED = "name", "demand", "bounds", "private_bound", "rounds", "over_selection"
"""What a job tells the job manager about itself."""


async def jobs_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    events = EventFile(role.events)
    fd, control = run.netns_fds[ROOT], (run.plan.control_ip, CONTROL_PORT)
    for address in (control, (run.plan.root_ip, DATA_PORT)):
        client = Client(fd, address)
        await client.connect_when_up()
        await client.close()
    manager, registering = Pool(fd, control), asyncio.Lock()
    jobs = [JobRun(job, run, manager, registering, events) for job in run.jobs]
    orders.ready()
    await orders.go.wait()
    try:
        await asyncio.gather(*(job.run() for job in jobs))
        await orders.stop.wait()
    finally:
        await manager.close()
