"""The process of the jobs, on the host of the root server: ``python -m experiments.propius.data.job_actor``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from experiments.propius.data import rounds
from experiments.propius.data.actor import EventFile, Orders, connect_when_up, run_actor
from experiments.propius.data.control_client import JobClient
from experiments.propius.data.data_client import RETRIES, DataClient
from experiments.propius.data.data_requests import Mode, Stage
from experiments.propius.data.endpoint import PATIENCE_S, Address
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.rounds import JobAction, JobRounds, job_timers
from experiments.propius.data.wire import EdgeError
from railyard.validation import from_plain


@dataclass(frozen=True)
class JobSettings:
    """What the process needs.

    ``control`` is the address of the job manager, ``root`` that of the root server; a model has ``size`` bytes.
    ``time`` is emulated seconds per real second, ``poll_s`` the real seconds between two questions for the sum.
    A transfer may take ``patience_s`` seconds of the run.
    """

    netns_fd: int | None
    control: Address
    root: Address
    events: str
    jobs: tuple[EdgeJob, ...]
    size: int
    mode: Mode
    time: float
    poll_s: float
    patience_s: float = PATIENCE_S


class JobRun:
    """One job: does what its ``JobRounds`` decides. Each call is a task, so a timer may end while it is under way."""

    def __init__(self, job: EdgeJob, settings: JobSettings, manager: JobClient, events: EventFile) -> None:
        self._settings = settings
        timers = replace(job_timers(job), poll_s=settings.poll_s, ask_bound_s=inf)  # the job manager tells it unasked
        self._rounds = JobRounds(job, timers.scaled(settings.time))
        self._manager = manager
        retries = RETRIES[settings.mode].scaled(settings.time)
        self._root = DataClient(
            settings.netns_fd, settings.root, settings.size, retries=retries, patience_s=settings.patience_s
        )
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Work from arrival to the end of the last round. ``EdgeError`` if the job manager is gone."""
        await asyncio.sleep(self._rounds.job.arrival_s * self._settings.time)
        self._do(self._rounds.start(time.monotonic()))
        try:
            await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await self._root.close()

    def _do(self, actions: Iterable[JobAction]) -> None:
        for action in actions:
            if isinstance(action, rounds.Sleep):
                self._sleep(action.seconds)
            elif isinstance(action, (rounds.Scheduled, rounds.RoundDone, rounds.TimedOut)):
                self._note(action)
            elif not isinstance(action, rounds.AskBound):
                self._begin(self._call(action))

    def _sleep(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._woke)

    def _woke(self) -> None:
        self._do(self._rounds.woke(time.monotonic()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._done.done():
            self._done.set_exception(error)

    async def _call(self, action: JobAction) -> None:
        state = self._rounds
        if isinstance(action, rounds.Register):
            self._do(state.registered(await self._manager.register(state.job), time.monotonic()))
        elif isinstance(action, rounds.Request):
            await self._request(action)
        elif isinstance(action, rounds.EndRequest):
            count = await self._manager.end_request(self._number)
            now = time.monotonic()
            self._do(state.forgotten(now) if count is None else state.ended(count, now))
        elif isinstance(action, rounds.Put):
            await self._put(action)
        elif isinstance(action, rounds.Poll):
            await self._poll(action)
        elif isinstance(action, rounds.Finish):
            await self._manager.finish(self._number)
            self._done.set_result(None)

    async def _request(self, action: rounds.Request) -> None:
        """Send REQUEST, then tell the job its clients when it has them all."""
        state, number = self._rounds, self._number
        known = await self._manager.request(number, action.round, action.demand, action.attempt)
        if not known:
            self._do(state.forgotten(time.monotonic()))
        while known and self._is_current(action.round, action.attempt) and state.phase == "scheduling":
            count, is_open = await self._manager.bound(number, wait=True)
            if not self._is_current(action.round, action.attempt):
                return
            if count is None:
                self._do(state.forgotten(time.monotonic()))
            elif not is_open:
                self._do(state.bound(count, time.monotonic()))
                return

    async def _put(self, action: rounds.Put) -> None:
        """Put the model at the root; if that fails, the round's timer ends the round."""
        state = self._rounds
        with suppress(EdgeError):
            stage, model = Stage(action.round, action.attempt), bytes(self._settings.size)
            await self._root.put(self._number, stage, state.job.demand, model)
            if self._is_current(action.round, action.attempt):
                self._do(state.put(time.monotonic()))

    async def _poll(self, action: rounds.Poll) -> None:
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

    def _note(self, event: rounds.Scheduled | rounds.RoundDone | rounds.TimedOut) -> None:
        now, job = time.monotonic(), self._number
        if isinstance(event, rounds.Scheduled):
            self._events.note("scheduled", now, job=job, round=event.round, bound=event.bound)
        elif isinstance(event, rounds.TimedOut):
            self._events.note("timeout", now, job=job, round=event.round, phase=event.phase)
        else:
            self._events.note(
                "round",
                event.began,
                now,
                job=job,
                round=event.round,
                scheduling_s=event.scheduling_s,
                response_s=event.response_s,
                clients=event.clients,
                attempt=event.attempt,
            )


async def _work(plain: dict[str, Any], orders: Orders) -> None:
    settings = from_plain(JobSettings, plain, "the jobs of a run")
    events = EventFile(settings.events)
    for address in (settings.control, settings.root):
        await (await connect_when_up(settings.netns_fd, address)).close()
    manager = JobClient(settings.netns_fd, settings.control)
    jobs = [JobRun(job, settings, manager, events) for job in settings.jobs]
    orders.ready()
    await orders.go.wait()
    try:
        await asyncio.gather(*(job.run() for job in jobs))
        await orders.stop.wait()
    finally:
        await manager.close()


if __name__ == "__main__":
    run_actor(_work)
