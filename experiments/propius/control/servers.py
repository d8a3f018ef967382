"""The control plane over sockets: its two kinds of processes, and how a client and a job see it.

The control process (job manager, scheduler, load balancer) is reached by jobs, client managers and clients on one port.
A client manager asks it for jobs and plan newer than those it has and is answered when there are such, so a change
reaches it at once. All that a client manager knows is soft: one that is started again has no clients and no jobs until
it hears of them.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from experiments.propius.control.managers import (
    SILENT_S,
    STORE_S,
    TEMPORARY_STORE_S,
    ClientManager,
    JobManager,
    LoadBalancer,
)
from experiments.propius.control.policies import OpenJob, Scheduler, load_edge_policy, plans
from experiments.propius.data.clients import Binding, Offer
from experiments.propius.data.endpoint import PATIENCE_S, Address, Client, Pool, within
from experiments.propius.data.jobs import Attributes, EdgeJob
from experiments.propius.data.messages import (
    MOST_KNOWN,
    Demand,
    EdgeError,
    EdgeRefused,
    Frame,
    Number,
    Reply,
    Text,
    Value,
    Values,
    operation,
)
from experiments.propius.run import CONTROL_PORT, HERE, Actor, EdgeRun, EventFile, Orders, Role
from railyard.protocol import to_json
from topos.edge_plan import CONTROL

HOLD_S = 10.0
"""Longest time for which a request that waits for a change is held."""
MOST_PLAN_BYTES = 32 << 10
_IDS_OF_AN_INCARNATION = 1_000_000
_CLIENT = struct.Struct(f"<{len(Attributes._fields)}d")


class ControlServer(Actor):
    """Answers each request by the pure classes and tells those who wait when something has changed."""

    def __init__(self, run: EdgeRun, events: EventFile) -> None:
        super().__init__(events)
        self._run = run
        self.policy = load_edge_policy(run.policy, run.seed)
        self._jobs = JobManager(SILENT_S * run.time)
        self._scheduler = Scheduler(self.policy, run.sees)
        self._balancer = LoadBalancer(run.managers)
        self._known: list[tuple[Attributes, ...]] = [() for _ in range(run.managers)]
        self._plan: Any = None
        self._plans = 0
        self._news = asyncio.Event()

    def start(self) -> None:
        self.spawn(self.refresh())

    async def handle(self, frame: Frame) -> Reply:
        before = self._version
        reply = await super().handle(frame)
        if self._version != before:
            self._tell()
        return reply

    async def refresh(self) -> None:
        """Make a new plan and forget silent jobs every ``refresh_s`` seconds, for ever."""
        while True:
            await asyncio.sleep(self.policy.refresh_s * self._run.time)
            before = self._version
            self._jobs.prune(time.monotonic())
            if plans(self.policy):
                self._make_plan()
            if self._version != before:
                self._tell()

    def _make_plan(self) -> None:
        plan = self._scheduler.plan(self._jobs.jobs(), self._known, time.monotonic())
        if plan == self._plan:
            return
        if (size := len(to_json(plan))) > MOST_PLAN_BYTES:
            raise EdgeError(
                f"the plan of {type(self.policy).__name__} is {size} bytes of JSON; make it at most {MOST_PLAN_BYTES}"
            )
        self._plan = plan
        self._plans += 1

    @property
    def _version(self) -> int:
        return self._jobs.version + self._plans

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _changed(self, until: float) -> bool:
        """Wait for the next change until ``until``; whether there was one."""
        with suppress(asyncio.TimeoutError):
            return await within(until - time.monotonic(), self._news.wait())
        return False

    # ---- client managers and clients ---------------------------------------------------------------------------------

    @operation
    async def watch(self, seen: Annotated[int, Field(ge=-1, le=2**53)]) -> dict[str, Any]:
        """Wait until jobs or plan are newer than version ``seen``, some seconds at most.

        The answer: version, jobs, plan; jobs is null if nothing is newer.
        """
        until = time.monotonic() + HOLD_S
        while self._version <= seen and await self._changed(until):
            pass
        if self._version <= seen:
            return {"version": seen, "jobs": None, "plan": None}
        return {"version": self._version, "jobs": self._jobs.jobs(), "plan": self._plan}

    @operation
    def known(self, manager: Number, payload: Any = b"") -> dict[str, Any]:
        """Report the ``Attributes`` of all clients that a manager knows, as float64 numbers."""
        if manager >= len(self._known):
            raise EdgeRefused(f"manager: must be below {len(self._known)}, not {manager}")
        if len(payload) % _CLIENT.size:
            raise EdgeRefused(f"the payload must have {_CLIENT.size} bytes for each client, not {len(payload)}")
        self._known[manager] = tuple(Attributes(*values) for values in _CLIENT.iter_unpack(payload))
        return {}

    @operation
    def balance(self, client: Number | None = None) -> dict[str, Any]:
        """Ask the load balancer for a client manager. The answer: manager, port."""
        manager = self._balancer.manager_of(client)
        return {"manager": manager, "port": self._run.manager_ports[manager]}

    @operation
    def bind(self, job: Number, device: Number) -> dict[str, Any]:
        """Bind a client to the job's round. The answer: bound; if true also round and attempt."""
        now = time.monotonic()
        binding = self._jobs.accept(job, device, now)
        if binding is None:
            self.events.note("refused", now, client=device, job=job)
            return {"bound": False}
        self.events.note("bound", now, client=device, job=job, round=binding.round)
        return {"bound": True, "round": binding.round, "attempt": binding.attempt}

    # ---- jobs --------------------------------------------------------------------------------------------------------

    @operation
    def register(
        self,
        name: Text,
        demand: Demand,
        bounds: Values,
        private_bound: Value,
        rounds: Demand,
        over_selection: Annotated[float, Field(ge=1, le=100)] = 1.0,
    ) -> dict[str, Any]:
        """Enter a job, which has arrived. The answer: job (its number)."""
        job = EdgeJob(name, demand, Attributes(*bounds), private_bound, rounds, over_selection=over_selection)
        now = time.monotonic()
        number = self._jobs.register(job, now)
        self.events.note("registered", now, job=number, name=name)
        return {"job": number}

    @operation
    def request(self, job: Number, round: Number, demand: Demand, attempt: Number = 0) -> dict[str, Any]:
        """Ask for ``demand`` clients for a round. The answer: known (whether there is such a job)."""
        now = time.monotonic()
        known = self._jobs.request(job, round, demand, now, attempt)
        if known:
            self.events.note("request", now, job=job, round=round, demand=demand, attempt=attempt)
        return {"known": known}

    @operation
    def end_request(self, job: Number) -> dict[str, Any]:
        """Close the job's round to more clients. The answer: bound (how many it has), null if there is no such job."""
        return {"bound": self._jobs.end_request(job, time.monotonic())}

    @operation
    async def bound(self, job: Number) -> dict[str, Any]:
        """Wait until the job's round takes no more clients, some seconds at most.

        The answer: bound (how many clients it has, null if there is no such job), open (whether it takes more).
        """
        until = time.monotonic() + HOLD_S
        self._jobs.heard(job, time.monotonic())
        while self._is_open(job) and await self._changed(until):
            pass
        return {"bound": self._jobs.bound(job), "open": self._is_open(job)}

    def _is_open(self, number: int) -> bool:
        return any(job.number == number and job.open for job in self._jobs.jobs())

    @operation
    def finish(self, job: Number) -> dict[str, Any]:
        """The job is complete. The answer: known."""
        now = time.monotonic()
        known = self._jobs.finish(job, now)
        if known:
            self.events.note("finished", now, job=job)
        return {"known": known}


async def control_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    control, most = ControlServer(run, EventFile(role.events)), MOST_KNOWN * _CLIENT.size
    await control.serve(run.netns_fds[CONTROL], CONTROL_PORT, orders.ready, most_payload=most)


_ACCEPTS_AT_ONCE = 8
_JOBS: TypeAdapter[list[OpenJob]] = TypeAdapter(list[OpenJob])


class ManagerServer(Actor):
    """Answers check-ins by the pure client manager, and forwards accepts to the job manager at ``control``.

    Ids of clients that it gives begin at ``first_id`` (``ClientManager``). ``failed`` has the error of the policy, if
    it fails, or of the connection to the control actor.
    """

    def __init__(self, run: EdgeRun, number: int, control: Address, events: EventFile, first_id: int = 0) -> None:
        super().__init__(events)
        self._number, netns_fd = number, run.netns_fds[CONTROL]
        self._policy = load_edge_policy(run.policy, run.seed, number)
        self._refresh_s = self._policy.refresh_s * run.time
        self._manager = ClientManager(
            number,
            run.managers,
            self._policy,
            store_s=STORE_S * run.time,
            temporary_s=TEMPORARY_STORE_S * run.time,
            refresh_s=self._refresh_s,
            first_id=first_id,
        )
        self._control = Pool(netns_fd, control)
        self._news = Client(netns_fd, control, patience_s=2 * HOLD_S)
        self._seen = -1
        self._accepts = asyncio.Semaphore(_ACCEPTS_AT_ONCE)
        self._checkins, self._processor_s = 0, 0.0

    def start(self) -> None:
        self._processor_s = time.process_time()
        self.spawn(self._follow())
        self.spawn(self._report())

    @operation
    def checkin(self, attributes: Values, client: Number | None = None) -> dict[str, Any]:
        """Check a client in. The answer: client (its id from now on), offers (lists of job, private bound, name)."""
        self._checkins += 1
        try:
            answer = self._manager.check_in(client, Attributes(*attributes), time.monotonic())
        except Exception as error:  # of the policy, which a user may have written
            self.fail(error)
            raise EdgeRefused("the policy of the client manager has failed") from error
        offers = [(offer.job, offer.private_bound, offer.name) for offer in answer.offers]
        return {"client": answer.client, "offers": offers}

    @operation
    async def accept(self, job: Number, device: Number) -> Reply:
        """Accept an offer. The answer is that of ``bind``."""
        async with self._accepts:
            return await self._control.call("bind", job=job, device=device)

    async def learn(self) -> None:
        """Take jobs and plan from the control actor, once it has newer ones. ``EdgeError`` if it is gone."""
        await self._news.connect_when_up()
        news = (await self._news.call("watch", seen=self._seen)).fields
        if news["jobs"] is not None:
            self._manager.update(_JOBS.validate_python(news["jobs"]), news["plan"], time.monotonic())
        self._seen = news["version"]

    async def _follow(self) -> None:
        while True:
            await self.learn()

    async def _report(self) -> None:
        """Tell the scheduler which clients are known, whenever that has changed, for ever."""
        last: object = None
        while plans(self._policy):
            known = self._manager.known(time.monotonic())
            if known is not last:
                last, newest = known, known[-MOST_KNOWN:]
                packed = struct.pack(f"<{len(Attributes._fields) * len(newest)}d", *chain.from_iterable(newest))
                await self._control.call("known", packed, manager=self._number)
            await asyncio.sleep(self._refresh_s)

    def stop(self) -> None:
        spent = time.process_time() - self._processor_s
        self.events.note("served", manager=self._number, checkins=self._checkins, processor_s=spent)

    async def end(self) -> None:
        await super().end()
        await self._news.close()
        await self._control.close()


async def manager_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    """A client manager, until the parent says stop; each incarnation gives ids that were never given."""
    first_id, events = role.incarnation * _IDS_OF_AN_INCARNATION, EventFile(role.events)
    manager = ManagerServer(run, role.number, (HERE, CONTROL_PORT), events, first_id)
    await manager.learn()
    port = run.manager_ports[role.number]
    await manager.serve(run.netns_fds[CONTROL], port, orders.ready)


class ControlClient:
    """The control plane as client ``device`` in the namespace ``netns_fd`` sees it.

    The load balancer at ``address`` names a client manager, which the client stays with. If that one is gone, a call
    raises ``EdgeError``, and the next check-in begins at the load balancer, without an id.
    """

    def __init__(self, netns_fd: int | None, address: Address, device: int, *, patience_s: float = PATIENCE_S) -> None:
        self._netns_fd, self._address, self._patience_s = netns_fd, address, patience_s
        self._device = device
        self._manager: Client | None = None
        self._id: int | None = None

    async def check_in(self, attributes: Attributes) -> Sequence[Offer]:
        """Check in; what the client manager offers, best first."""
        manager = self._manager or await self._balanced()
        answer = await self._call(manager, "checkin", client=self._id, attributes=attributes)
        self._id = answer["client"]
        return [Offer(*offer) for offer in answer["offers"]]

    async def accept(self, job: int) -> Binding | None:
        """Accept an offer; None if the client is refused, since the round has all its clients or has ended."""
        if self._id is None or self._manager is None:
            raise EdgeError("a client accepts what it was never offered")
        client, answer = self._id, await self._call(self._manager, "accept", job=job, device=self._device)
        return Binding(client, job, answer["round"], answer["attempt"]) if answer["bound"] else None

    async def close(self) -> None:
        manager, self._manager, self._id = self._manager, None, None
        if manager is not None:
            await manager.close()

    async def _balanced(self) -> Client:
        balancer = Client(self._netns_fd, self._address, patience_s=self._patience_s)
        try:
            port = (await balancer.call("balance", client=self._id)).fields["port"]
        finally:
            await balancer.close()
        self._manager = Client(self._netns_fd, (self._address[0], port), patience_s=self._patience_s)
        return self._manager

    async def _call(self, manager: Client, op: str, **fields: Any) -> Mapping[str, Any]:
        try:
            return (await manager.call(op, **fields)).fields
        finally:
            if not manager.is_open:
                self._manager = self._id = None
