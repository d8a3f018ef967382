"""The processes of an edge run: their roles, and what they have in common.

That are settings, readiness, orders of the parent, and an event file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from experiments.propius.data.endpoint import serve
from experiments.propius.data.messages import Frame, Reply, perform
from experiments.propius.run import EVERYWHERE, EdgeRun
from railyard.errors import MachineError, RailyardError
from railyard.process.parent import Parent
from railyard.timeline import Event, NumberedLog
from railyard.validation import from_plain

_STOP_WITHIN_S = 0.3
"""All processes of a run are told to stop at once, so an error shortly before that is the end of another process."""


class EventFile(NumberedLog):
    """The events of one process, each written as it happens, so that they outlive the process if it is killed."""

    def note(self, kind: str, t: float | None = None, end: float | None = None, **fields: Any) -> None:
        """Write an event at ``t`` (default: now) until ``end``, if it lasts, in monotonic seconds.

        Raises ``MachineError`` if it cannot be written.
        """
        try:
            self.add(Event(time.monotonic() if t is None else t, "edge", kind, end, fields))
        except OSError as error:
            raise MachineError(f"events cannot be written to {error.filename}: {error.strerror}; make room") from None


class Orders:
    """The orders that the parent gives: ``go``, and ``stop`` or its end. ``ready`` tells it that this process works."""

    def __init__(self, parent: Parent) -> None:
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        self.ready = parent.ready
        parent.operations = {"go": self.go.set}
        parent.on_stop(self.stop.set)


class Actor:
    """What a process does: it answers frames by its operations, has tasks and one timer, and writes ``events``.

    ``failed`` raises the first error of a task or of ``fail``.
    """

    def __init__(self, events: EventFile) -> None:
        self.events = events
        self.loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def serve(
        self, netns_fd: int | None, port: int, ready: Callable[[], None] = lambda: None, **bounds: Any
    ) -> None:
        """Answer at ``port`` within ``bounds`` (``endpoint.serve``), tell so by ``ready``, until ``failed`` raises."""
        listener = await serve(netns_fd, (EVERYWHERE, port), self.handle, **bounds)
        try:
            self.start()
            ready()
            await self.failed
        finally:
            await listener.close()
            self.stop()
            await self.end()

    async def handle(self, frame: Frame) -> Reply:
        return await perform(self, frame)

    def start(self) -> None:
        """Begin; what has nothing to begin with does nothing."""

    def stop(self) -> None:
        """Note what is left at the end of the run; ``end`` is next."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def call_at(self, due: float | None, call: Callable[[], None]) -> None:
        """Call at the time ``due`` (None: never), in place of what the timer was to call before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self.loop.call_at(due, call)

    async def end(self) -> None:
        """Give up what has not ended, and close the file of events."""
        await self.give_up()
        self.events.close()

    async def give_up(self) -> None:
        self.call_at(None, self.stop)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


MODULE = "experiments.propius.process"
_WORK = {
    "control": "experiments.propius.control.servers:control_work",
    "manager": "experiments.propius.control.servers:manager_work",
    "trunk": "experiments.propius.control.trunk_server:trunk_work",
    "root": "experiments.propius.data.server_process:root_work",
    "leaf": "experiments.propius.data.server_process:leaf_work",
    "clients": "experiments.propius.data.client_process:clients_work",
    "jobs": "experiments.propius.data.client_process:jobs_work",
}


@dataclass(frozen=True)
class Role:
    """The part of a process in a run: number ``number`` of its ``kind``, in its ``incarnation``; both count from 0.

    It appends its events to the file ``events``.
    """

    kind: str
    number: int
    incarnation: int
    events: str


def main() -> None:
    """Take the role in the run that the parent names in the settings of this process, which is a ``Child``."""
    parent = Parent()
    run = from_plain(EdgeRun, parent.settings["run"], "an edge run")
    role = from_plain(Role, parent.settings["role"], "a process of an edge run")
    module, _, work = _WORK[role.kind].partition(":")
    run_actor(parent, partial(getattr(import_module(module), work), run, role))


def run_actor(parent: Parent, work: Callable[[Orders], Awaitable[None]]) -> None:
    """Do ``work`` until it returns or the parent says stop.

    An error of Railyard's own is printed as one sentence, and the exit status is its.
    """
    try:
        asyncio.run(_until_stopped(parent, work))
    except RailyardError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)


async def _until_stopped(parent: Parent, work: Callable[[Orders], Awaitable[None]]) -> None:
    orders = Orders(parent)
    working = asyncio.ensure_future(work(orders))
    stopping = asyncio.ensure_future(orders.stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    if working.done() and not stopping.done():
        await asyncio.wait((stopping,), timeout=_STOP_WITHIN_S)
    if stopping.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    else:
        stopping.cancel()
        working.result()
