"""The process of a leaf server: ``LeafServer`` on a port of its host, and its transfers with the root.

A ``railyard.child``. It can be killed at any moment; started again with the same settings, it goes on from its journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.propius.data.actor import EventFile, Orders, run_actor
from experiments.propius.data.data_actor import DataActor, Token
from experiments.propius.data.data_requests import GetRequest, LeafRequest, Mode
from experiments.propius.data.endpoint import PATIENCE_S, Pool
from experiments.propius.data.journal import Journal
from experiments.propius.data.leaf import Actions, LeafServer
from experiments.propius.data.root_actor import check_size
from experiments.propius.data.server_actions import Fetch, Flush, Record, ServerAction
from experiments.propius.data.trunk_gate import LONGEST_WAIT_S, TrunkGate
from experiments.propius.data.update import as_bytes
from experiments.propius.data.wire import EdgeError, Frame, Payload, read
from railyard.validation import from_plain

MODULE = "experiments.propius.data.leaf_actor"


@dataclass(frozen=True)
class LeafSettings:
    """``address`` is one of the namespace ``netns_fd`` (None: that of this process), from where ``root`` is reached.

    Models have ``size`` bytes; times are seconds of the run. ``verify``: updates are float32 numbers that are added.
    ``events`` is the file to append events to. ``journal`` is the folder that outlives the process, in ``fixed`` (None:
    a killed server loses what it held). ``arbiter`` hands out the circuit of an optical trunk (None: there is none).
    """

    leaf: int
    netns_fd: int | None
    address: tuple[str, int]
    root: tuple[str, int]
    mode: Mode
    size: int
    idle_s: float
    events: str
    journal: str | None = None
    retry_s: float = 0.1
    verify: bool = False
    patience_s: float = PATIENCE_S
    arbiter: tuple[str, int] | None = None
    most_connections: int = 256


class LeafActor(DataActor):
    """Serves clients, fetches models from the root and flushes sums to it."""

    def __init__(self, given: LeafSettings) -> None:
        super().__init__(EventFile(given.events), self._of_client)
        fixed = given.mode == "fixed" and given.journal is not None
        self._journal = Journal(Path(given.journal)) if fixed and given.journal else None
        self._size = given.size
        self._zeros = bytes(0 if given.verify else given.size)
        self._root = Pool(given.netns_fd, given.root, most_payload=given.size, patience_s=given.patience_s)
        self._pools = [self._root]
        self._turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        if given.arbiter is not None:
            self._pools.append(Pool(given.netns_fd, given.arbiter, patience_s=LONGEST_WAIT_S))
            self._turn = TrunkGate(self._pools[-1], given.leaf, given.size).turn
        self._timer: asyncio.TimerHandle | None = None
        self._server = LeafServer(
            given.leaf,
            given.mode,
            given.idle_s,
            verify=given.verify,
            retry_s=given.retry_s,
            records=self._journal.read() if self._journal else (),
        )

    def start(self) -> None:
        """Begin the incarnation."""
        self.act(self._server.start(time.monotonic()))

    def stop(self) -> None:
        """Note what is left at the end of the run; ``end`` is next."""
        super().act(self._server.stop(time.monotonic()))

    async def end(self) -> None:
        """Give up what has not ended, as the death of the process does, and close connections and files."""
        if self._timer is not None:
            self._timer.cancel()
        await super().end()
        for pool in self._pools:
            await pool.close()
        if self._journal is not None:
            self._journal.close()

    def _of_client(self, token: Token, frame: Frame, now: float) -> Actions:
        request: Any = read(LeafRequest, frame)
        if isinstance(request, GetRequest):
            return self._server.get(token, request.job, request.round, now)
        check_size(len(frame.payload), self._size)
        return self._server.push(token, request.update, frame.payload, now)

    def act(self, actions: Actions) -> None:
        """Do the actions, then set the timer for what is due next."""
        super().act(actions)
        due = self._server.due()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else asyncio.get_running_loop().call_at(due, self._tick)

    def _tick(self) -> None:
        self.act(self._server.tick(time.monotonic()))

    def more(self, action: ServerAction) -> None:
        """Start a transfer, or write a record to the journal."""
        if isinstance(action, Fetch):
            self.spawn(self._fetch(action))
        elif isinstance(action, Flush):
            self.spawn(self._flush(action))
        elif isinstance(action, Record) and self._journal is not None:
            self._journal.write(action)

    async def _fetch(self, fetch: Fetch) -> None:
        model: Payload | None = None
        why = ""
        try:
            async with self._turn():
                reply = await self._root.call("get", job=fetch.job, round=fetch.round)
            if not reply.fields.get("absent"):
                check_size(len(reply.payload), self._size)
                model = reply.payload
        except EdgeError as error:
            why = str(error)
        self.act(self._server.fetched(fetch.number, model, time.monotonic(), why))

    async def _flush(self, flush: Flush) -> None:
        payload = self._zeros if flush.total is None else as_bytes(flush.total)
        fields = {**flush.sum_id._asdict(), "job": flush.job, **flush.stage._asdict(), "clients": flush.clients}
        outcome: str | None = None
        try:
            async with self._turn():
                reply = await self._root.call("push_sum", payload, **fields)
            outcome = reply.fields["outcome"]
        except EdgeError:
            pass
        self.act(self._server.flushed(flush.sum_id, outcome, time.monotonic()))


async def work(settings: dict[str, Any], orders: Orders) -> None:
    """Serve until the parent says stop."""
    given = from_plain(LeafSettings, settings, "a leaf server")
    await LeafActor(given).serve(given.netns_fd, given.address, given.size, given.most_connections, orders)


if __name__ == "__main__":
    run_actor(work)
