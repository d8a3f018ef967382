"""The process of the job manager, the scheduler and the load balancer.

``python -m experiments.propius.control.control_actor``.

Jobs, client managers and clients reach it on one port. A client manager asks for jobs and plan newer than those it has
and is answered when there are such, so a change reaches it at once.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from experiments.propius.control import messages
from experiments.propius.control.catalog import load_edge_policy
from experiments.propius.control.job_manager import SILENT_S, JobManager
from experiments.propius.control.load_balancer import LoadBalancer
from experiments.propius.control.policy import EdgePolicy
from experiments.propius.control.scheduler import Scheduler, Sees
from experiments.propius.data import wire
from experiments.propius.data.actor import EventFile, Orders, run_actor
from experiments.propius.data.attributes import Attributes
from experiments.propius.data.endpoint import Address, Reply, serve
from experiments.propius.data.wire import EdgeError, EdgeRefused, Frame
from railyard.protocol import to_json
from railyard.validation import from_plain

HOLD_S = 10.0
"""Longest time for which a request that waits for a change is held."""
MOST_PLAN_BYTES = 32 << 10
MOST_CONNECTIONS = 1024
_CLIENT = struct.Struct(f"<{len(Attributes._fields)}d")


@dataclass(frozen=True)
class ControlSettings:
    """What the process needs: its namespace, its address, where to write, and the control plane's own settings.

    ``time`` is emulated seconds per real second. ``manager_ports`` has the port of each client manager.
    """

    netns_fd: int | None
    address: Address
    events: str
    policy: str
    seed: int
    sees: Sees
    time: float
    manager_ports: tuple[int, ...]


class ControlServer:
    """Answers each request by the pure classes and tells those who wait when something has changed."""

    def __init__(self, settings: ControlSettings, events: EventFile) -> None:
        self._settings = settings
        self._events = events
        self.policy = load_edge_policy(settings.policy, settings.seed)
        self._jobs = JobManager(SILENT_S * settings.time)
        self._scheduler = Scheduler(self.policy, settings.sees)
        self._balancer = LoadBalancer(len(settings.manager_ports))
        self._known: list[tuple[Attributes, ...]] = [() for _ in settings.manager_ports]
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
        request = wire.read(messages.ControlRequest, frame)
        if isinstance(request, messages.WatchRequest):
            return Reply(await self._watch(request.seen))
        if isinstance(request, messages.BoundRequest):
            return Reply(await self._bound(request.job, request.wait))
        before = self._version
        answer = self._answers[request.op](request, frame)
        if self._version != before:
            self._tell()
        return Reply(answer)

    async def refresh(self) -> None:
        """Make a new plan and forget silent jobs every ``refresh_s`` seconds, for ever."""
        while True:
            await asyncio.sleep(self.policy.refresh_s * self._settings.time)
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
            return await asyncio.wait_for(self._news.wait(), until - time.monotonic())
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
        return {"manager": manager, "port": self._settings.manager_ports[manager]}

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

    async def _bound(self, number: int, wait: bool) -> dict[str, Any]:
        until = time.monotonic() + HOLD_S
        self._jobs.heard(number, time.monotonic())
        while wait and self._is_open(number) and await self._changed(until):
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


async def _work(plain: dict[str, Any], orders: Orders) -> None:
    settings = from_plain(ControlSettings, plain, "the control plane")
    control = ControlServer(settings, EventFile(settings.events))
    most = messages.MOST_KNOWN * _CLIENT.size
    server = await serve(
        settings.netns_fd, settings.address, control.handle, most_payload=most, most_connections=MOST_CONNECTIONS
    )
    try:
        orders.ready()
        await control.refresh()
    finally:
        await server.close()


if __name__ == "__main__":
    run_actor(_work)
