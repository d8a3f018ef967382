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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from experiments.propius.control.managers import (
    SILENT_S,
    STORE_S,
    TEMPORARY_STORE_S,
    ClientManager,
    JobManager,
    LoadBalancer,
)
from experiments.propius.control.policies import EdgePolicy, OpenJob, Scheduler, load_edge_policy
from experiments.propius.data import messages
from experiments.propius.data.clients import Binding, Offer
from experiments.propius.data.endpoint import PATIENCE_S, Address, Client, Pool, Reply, connect_when_up, serve, within
from experiments.propius.data.jobs import Attributes, EdgeJob
from experiments.propius.data.messages import EdgeError, EdgeRefused, Frame
from experiments.propius.process import EventFile, Orders, Role
from experiments.propius.run import CONTROL_PORT, EVERYWHERE, HERE, EdgeRun
from railyard.protocol import to_json
from topos.edge_plan import CONTROL

HOLD_S = 10.0
"""Longest time for which a request that waits for a change is held."""
MOST_PLAN_BYTES = 32 << 10
MOST_CONNECTIONS = 1024
_IDS_OF_AN_INCARNATION = 1_000_000
_CLIENT = struct.Struct(f"<{len(Attributes._fields)}d")


class ControlServer:
    """Answers each request by the pure classes and tells those who wait when something has changed."""

    def __init__(self, run: EdgeRun, events: EventFile) -> None:
        self._run = run
        self._events = events
        self.policy = load_edge_policy(run.policy, run.seed)
        self._jobs = JobManager(SILENT_S * run.time)
        self._scheduler = Scheduler(self.policy, run.sees)
        self._balancer = LoadBalancer(run.managers)
        self._known: list[tuple[Attributes, ...]] = [() for _ in range(run.managers)]
        self._plan: Any = None
        self._plans = 0
        self._news = asyncio.Event()
        self._answers: dict[str, Callable[[Any, Frame], Any]] = {
            "register": self._register,
            "request": self._request,
            "end_request": self._end_request,
            "finish": self._finish,
            "balance": self._balance,
            "known": self._report,
            "bind": self._bind,
        }

    async def handle(self, frame: Frame) -> Reply:
        """Answer one request; ``EdgeRefused`` for one that is wrong."""
        request = messages.read(messages.ControlRequest, frame)
        if isinstance(request, messages.WatchRequest):
            return Reply(await self._watch(request.seen))
        if isinstance(request, messages.BoundRequest):
            return Reply(await self._bound(request.job))
        before = self._version
        answer = self._answers[request.op](request, frame)
        if self._version != before:
            self._tell()
        return Reply(answer)

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

    async def _watch(self, seen: int) -> dict[str, Any]:
        until = time.monotonic() + HOLD_S
        while self._version <= seen and await self._changed(until):
            pass
        if self._version <= seen:
            return {"version": seen, "jobs": None, "plan": None}
        return {"version": self._version, "jobs": self._jobs.jobs(), "plan": self._plan}

    def _report(self, report: messages.KnownReport, frame: Frame) -> dict[str, Any]:
        if report.manager >= len(self._known):
            raise EdgeRefused(f"manager: must be below {len(self._known)}, not {report.manager}")
        if len(frame.payload) % _CLIENT.size:
            raise EdgeRefused(f"the payload must have {_CLIENT.size} bytes for each client, not {len(frame.payload)}")
        self._known[report.manager] = tuple(Attributes(*values) for values in _CLIENT.iter_unpack(frame.payload))
        return {}

    def _balance(self, request: messages.BalanceRequest, _: Frame) -> dict[str, Any]:
        manager = self._balancer.manager_of(request.client)
        return {"manager": manager, "port": self._run.manager_ports[manager]}

    def _bind(self, request: messages.BindRequest, _: Frame) -> dict[str, Any]:
        now = time.monotonic()
        binding = self._jobs.accept(request.job, request.device, now)
        if binding is None:
            self._events.note("refused", now, client=request.device, job=request.job)
            return {"bound": False}
        self._events.note("bound", now, client=request.device, job=binding.job, round=binding.round)
        return {"bound": True, "round": binding.round, "attempt": binding.attempt}

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def _register(self, request: messages.RegisterRequest, _: Frame) -> dict[str, Any]:
        if len(self._jobs.jobs()) >= messages.MOST_JOBS:
            raise EdgeRefused(f"there are {messages.MOST_JOBS} jobs already; register when one has finished")
        now = time.monotonic()
        number = self._jobs.register(request.job, now)
        self._events.note("registered", now, job=number, name=request.name)
        return {"job": number}

    def _request(self, request: messages.ClientsRequest, _: Frame) -> dict[str, Any]:
        now = time.monotonic()
        known = self._jobs.request(request.job, request.round, request.demand, now, request.attempt)
        if known:
            asked = {"job": request.job, "round": request.round, "demand": request.demand, "attempt": request.attempt}
            self._events.note("request", now, **asked)
        return {"known": known}

    def _end_request(self, request: messages.EndRoundRequest, _: Frame) -> dict[str, Any]:
        return {"bound": self._jobs.end_request(request.job, time.monotonic())}

    async def _bound(self, number: int) -> dict[str, Any]:
        until = time.monotonic() + HOLD_S
        self._jobs.heard(number, time.monotonic())
        while self._is_open(number) and await self._changed(until):
            pass
        return {"bound": self._jobs.bound(number), "open": self._is_open(number)}

    def _is_open(self, number: int) -> bool:
        return any(job.number == number and job.open for job in self._jobs.jobs())

    def _finish(self, request: messages.FinishRequest, _: Frame) -> dict[str, Any]:
        now = time.monotonic()
        known = self._jobs.finish(request.job, now)
        if known:
            self._events.note("finished", now, job=request.job)
        return {"known": known}


def plans(policy: EdgePolicy) -> bool:
    """Whether the policy makes plans, so that the scheduler has to know the clients."""
    return type(policy).plan is not EdgePolicy.plan


async def control_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    control = ControlServer(run, EventFile(role.events))
    most = messages.MOST_KNOWN * _CLIENT.size
    address = (EVERYWHERE, CONTROL_PORT)
    server = await serve(
        run.netns_fds[CONTROL], address, control.handle, most_payload=most, most_connections=MOST_CONNECTIONS
    )
    try:
        orders.ready()
        await control.refresh()
    finally:
        await server.close()


MOST_CLIENTS = 16384
_ACCEPTS_AT_ONCE = 8
_JOBS: TypeAdapter[list[OpenJob]] = TypeAdapter(list[OpenJob])


class ManagerServer:
    """Answers check-ins by the pure client manager, and forwards accepts to the job manager at ``control``.

    Ids of clients that it gives begin at ``first_id`` (``ClientManager``).

    ``failed`` has the error of the policy, if it fails.
    """

    def __init__(self, run: EdgeRun, number: int, control: Address, first_id: int = 0) -> None:
        self._number, self._netns_fd, self._control_address = number, run.netns_fds[CONTROL], control
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
        self._control = Pool(self._netns_fd, control)
        self._accepts = asyncio.Semaphore(_ACCEPTS_AT_ONCE)
        self.has_jobs = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, frame: Frame) -> Reply:
        """Answer one request; ``EdgeRefused`` for one that is wrong."""
        request = messages.read(messages.ManagerRequest, frame)
        if isinstance(request, messages.CheckInRequest):
            return Reply(self._check_in(request))
        if isinstance(request, messages.AcceptRequest):
            async with self._accepts:
                return await self._control.call("bind", job=request.job, device=request.device)
        return Reply({})

    def _check_in(self, request: messages.CheckInRequest) -> dict[str, Any]:
        try:
            known = self._manager.check_in(request.client, Attributes(*request.attributes), time.monotonic())
        except Exception as error:  # of the policy, which a user may have written
            if not self.failed.done():
                self.failed.set_exception(error)
            raise EdgeRefused("the policy of the client manager has failed") from error
        offers = [(offer.job, offer.private_bound, offer.name) for offer in known.offers]
        return {"client": known.client, "offers": offers}

    async def follow(self) -> None:
        """Keep jobs and plan as new as the control actor's, for ever. ``EdgeError`` if the control actor is gone."""
        control = await connect_when_up(self._netns_fd, self._control_address, patience_s=2 * HOLD_S)
        seen = -1
        try:
            while True:
                news = (await control.call("watch", seen=seen)).fields
                if news["jobs"] is not None:
                    self._manager.update(_JOBS.validate_python(news["jobs"]), news["plan"], time.monotonic())
                seen = news["version"]
                self.has_jobs.set()
        finally:
            await control.close()

    async def report(self) -> None:
        """Tell the scheduler which clients are known, whenever that has changed, for ever."""
        last: object = None
        while plans(self._policy):
            known = self._manager.known(time.monotonic())
            if known is not last:
                last, newest = known, known[-messages.MOST_KNOWN :]
                packed = struct.pack(f"<{len(Attributes._fields) * len(newest)}d", *chain.from_iterable(newest))
                await self._control.call("known", packed, manager=self._number)
            await asyncio.sleep(self._refresh_s)

    async def close(self) -> None:
        await self._control.close()


async def manager_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    """A client manager, until the parent says stop; each incarnation gives ids that were never given."""
    manager = ManagerServer(run, role.number, (HERE, CONTROL_PORT), role.incarnation * _IDS_OF_AN_INCARNATION)
    following = asyncio.ensure_future(manager.follow())
    waiting = asyncio.ensure_future(manager.has_jobs.wait())
    await asyncio.wait((following, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if following.done():
        following.result()
    server = await serve(
        run.netns_fds[CONTROL],
        (EVERYWHERE, run.manager_ports[role.number]),
        manager.handle,
        most_connections=MOST_CLIENTS,
    )
    try:
        orders.ready()
        await asyncio.gather(following, manager.report(), manager.failed)
    finally:
        following.cancel()
        await server.close()
        await manager.close()


_T = TypeVar("_T", bound=BaseModel)
_REGISTERED = "name", "demand", "bounds", "private_bound", "rounds", "over_selection"
"""What a job tells the job manager about itself."""
_Number = Annotated[int, Field(ge=0)]


class _Nothing(BaseModel):
    pass


class _Balanced(BaseModel):
    port: Annotated[int, Field(ge=1, le=65535)]


class _CheckedIn(BaseModel):
    client: _Number
    offers: Annotated[list[tuple[_Number, float, str]], Field(max_length=20)]


class _Bound(BaseModel):
    bound: bool
    round: _Number = 0
    attempt: _Number = 0


class _Registered(BaseModel):
    job: _Number


class _Known(BaseModel):
    known: bool


class _Clients(BaseModel):
    bound: _Number | None
    open: bool = False


class ControlClient:
    """The control plane as client ``device`` in the namespace ``netns_fd`` sees it.

    The load balancer at ``address`` names a client manager, which the client stays with. If that one is gone, a call
    raises ``EdgeError``, and the next check-in begins at the load balancer, without an id.
    """

    def __init__(self, netns_fd: int | None, address: Address, device: int, *, patience_s: float = PATIENCE_S) -> None:
        self._netns_fd = netns_fd
        self._address = address
        self._device = device
        self._patience_s = patience_s
        self._manager: Client | None = None
        self._id: int | None = None

    async def check_in(self, attributes: Attributes) -> Sequence[Offer]:
        """Check in; what the client manager offers, best first."""
        manager = self._manager or await self._balanced()
        reply = await self._call(_CheckedIn, manager, "checkin", client=self._id, attributes=attributes)
        self._id = reply.client
        return [Offer(*offer) for offer in reply.offers]

    async def accept(self, job: int) -> Binding | None:
        """Accept an offer; None if the client is refused, since the round has all its clients or has ended."""
        client, manager = self._checked_in()
        reply = await self._call(_Bound, manager, "accept", job=job, client=client, device=self._device)
        return Binding(client, job, reply.round, reply.attempt) if reply.bound else None

    async def nack(self, jobs: Sequence[int]) -> None:
        client, manager = self._checked_in()
        await self._call(_Nothing, manager, "nack", client=client, jobs=jobs)

    async def close(self) -> None:
        manager, self._manager, self._id = self._manager, None, None
        if manager is not None:
            with suppress(EdgeError):
                await manager.close()

    def _checked_in(self) -> tuple[int, Client]:
        if self._id is None or self._manager is None:
            raise EdgeError("a client accepts or declines what it was never offered")
        return self._id, self._manager

    async def _balanced(self) -> Client:
        balancer = await Client.connect(self._netns_fd, self._address, patience_s=self._patience_s)
        try:
            port = _read(_Balanced, (await balancer.call("balance", client=self._id)).fields).port
        finally:
            await balancer.close()
        address = (self._address[0], port)
        self._manager = await Client.connect(self._netns_fd, address, patience_s=self._patience_s)
        return self._manager

    async def _call(self, kind: type[_T], manager: Client, op: str, **fields: Any) -> _T:
        try:
            return _read(kind, (await manager.call(op, **fields)).fields)
        finally:
            if not manager.is_open:
                self._manager = self._id = None


class JobClient:
    """The job manager at ``address`` as the jobs in the namespace ``netns_fd`` see it; ``EdgeError`` if it is gone."""

    def __init__(self, netns_fd: int | None, address: Address) -> None:
        self._manager = Pool(netns_fd, address)
        self._registering = asyncio.Lock()

    async def register(self, job: EdgeJob) -> int:
        """Enter a job; its number. Jobs are numbered in the order of the calls."""
        fields = {key: getattr(job, key) for key in _REGISTERED}
        async with self._registering:
            reply = await self._manager.call("register", **fields)
        return _read(_Registered, reply.fields).job

    async def request(self, job: int, round: int, demand: int, attempt: int) -> bool:
        """Ask for clients; False if the job is not known (any more)."""
        reply = await self._manager.call("request", job=job, round=round, demand=demand, attempt=attempt)
        return _read(_Known, reply.fields).known

    async def end_request(self, job: int) -> int | None:
        """Close the round to more clients; how many it has, None if the job is not known (any more)."""
        return _read(_Clients, (await self._manager.call("end_request", job=job)).fields).bound

    async def bound(self, job: int) -> tuple[int | None, bool]:
        """(clients of the round, whether it takes more), when it takes no more or after some seconds."""
        reply = _read(_Clients, (await self._manager.call("bound", job=job)).fields)
        return reply.bound, reply.open

    async def finish(self, job: int) -> None:
        await self._manager.call("finish", job=job)

    async def close(self) -> None:
        await self._manager.close()


def _read(kind: type[_T], fields: Mapping[str, Any]) -> _T:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise EdgeError(
            f"the control plane answered something else: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
