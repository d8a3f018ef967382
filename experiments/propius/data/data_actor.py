"""What the actors of a leaf server and of the root server share: requests wait for their answer, events are written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from experiments.propius.data.actor import EventFile, Orders
from experiments.propius.data.endpoint import Address, Reply, serve
from experiments.propius.data.leaf import Actions
from experiments.propius.data.server_actions import Answer, Note, Refuse, ServerAction
from experiments.propius.data.wire import EdgeRefused, Frame
from railyard.errors import MachineError

Token = asyncio.Future[Reply]


class DataActor:
    """Does what a server decides: ``decide`` turns a request and its token into actions, ``more`` does other actions.

    A failure of a task that ``spawn`` started is raised by ``failed``.
    """

    def __init__(self, events: EventFile, decide: Callable[[Token, Frame, float], Actions]) -> None:
        self._events = events
        self._decide = decide
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(
        self, netns_fd: int | None, address: Address, size: int, most_connections: int, orders: Orders
    ) -> None:
        """Answer requests at ``address`` until the parent says stop; payloads have at most ``size`` bytes.

        Raises what ``failed`` raises.
        """
        listener = await serve(netns_fd, address, self.answer, most_payload=size, most_connections=most_connections)
        try:
            self.start()
            orders.ready()
            await self.failed
        finally:
            await listener.close()
            self.stop()
            await self.end()

    def start(self) -> None:
        """Begin; a server that has nothing to begin with does nothing."""

    def stop(self) -> None:
        """Note what is left at the end of the run; ``end`` is next."""

    async def answer(self, frame: Frame) -> Reply:
        """The answer to a request, once the server has decided it."""
        token: Token = asyncio.get_running_loop().create_future()
        self.act(self._decide(token, frame, time.monotonic()))
        return await token

    def act(self, actions: Actions) -> None:
        """Do the actions in their order; after a ``MachineError``, which ``failed`` raises, none is done any more."""
        try:
            for action in actions:
                if self.failed.done() and not self.failed.cancelled():
                    return
                self._do(action)
        except MachineError as error:
            self._fail(error)

    def _do(self, action: ServerAction) -> None:
        if isinstance(action, Answer):
            _settle(action.token, Reply(action.fields, action.payload))
        elif isinstance(action, Refuse):
            _settle(action.token, EdgeRefused(action.why))
        elif isinstance(action, Note):
            now = time.monotonic()
            if action.began is None:
                self._events.note(action.kind, now, **action.fields)
            else:
                self._events.note(action.kind, action.began, now, **action.fields)
        else:
            self.more(action)

    def more(self, action: ServerAction) -> None:
        """Do an action that is no answer and no event."""
        raise TypeError(f"this server does not do {action}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes time."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    async def end(self) -> None:
        """Give up what was spawned and has not ended, and close the file of events."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._events.close()


def _settle(token: Token, result: Reply | EdgeRefused) -> None:
    """Give a waiting request its result; the connection of the client may be gone."""
    if token.done():
        return
    if isinstance(result, EdgeRefused):
        token.set_exception(result)
    else:
        token.set_result(result)
