"""The processes of the root server and of a leaf server, and the journal of the latter.

A leaf server can be killed at any moment; started again with the same settings, it goes on from its journal: what it
has acknowledged and the root does not have yet, in a folder of the run. A record is written before the action that
comes after it, so it survives the death of the process. It is not forced to the disk, so it does not survive a loss of
power: ``fdatasync`` of an update of 0.9 MB took 8 ms, during which the server would do nothing else, and the write
alone 0.3 ms. ``records.log`` has a line for each record; the numbers of an update are a file of their own, which is
deleted when the root has counted or refused them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from experiments.propius.control.trunk_server import LONGEST_WAIT_S, turn
from experiments.propius.data.endpoint import Pool
from experiments.propius.data.jobs import WriteEvent
from experiments.propius.data.messages import (
    MOST_IN_A_SUM,
    EdgeError,
    EdgeRefused,
    Number,
    Payload,
    Reply,
    RoundAttempt,
    SumId,
    UpdateId,
    operation,
)
from experiments.propius.data.servers import (
    Actions,
    Added,
    Answer,
    Closed,
    Fetch,
    Flush,
    LeafServer,
    Record,
    RefuseRequest,
    RootServer,
    Sealed,
    ServerAction,
    Started,
    as_bytes,
)
from experiments.propius.run import DATA_PORT, TRUNK_PORT, Actor, EdgeRun, EventFile, Orders, Role
from railyard.errors import MachineError
from railyard.ownership import make_folder, open_binary, remove_file
from railyard.protocol import from_json, to_json
from topos.edge_plan import ROOT


class Journal:
    """The journal in ``folder``, which is made if it does not exist. Call ``read`` before the first ``write``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_folder(self._folder)
        self._path = folder / "records.log"
        with open_binary(self._path, "ab", permissions=0o600) as file:
            self._fd = os.dup(file.fileno())
        self._count = 0
        self._open: dict[int, list[int]] = {}
        """Job -> numbers of the updates in its open sum."""
        self._sealed: dict[SumId, list[int]] = {}

    def read(self) -> list[Record]:
        """The records of earlier incarnations; updates that the root has counted or refused come without numbers.

        Raises ``MachineError``, naming the line, for a journal with anything else in it.
        """
        whole, _, cut_short = self._path.read_bytes().rpartition(b"\n")
        if cut_short:
            os.truncate(self._fd, len(whole) + 1 if whole else 0)
        records = []
        for number, line in enumerate(whole.split(b"\n") if whole else (), 1):
            try:
                records.append(self._decoded(from_json(line)))
            except (ValueError, TypeError, KeyError):
                raise MachineError(
                    f"line {number} of {self._path} is no record of a leaf server's journal; begin a new run"
                ) from None
        kept = {number for numbers in (*self._open.values(), *self._sealed.values()) for number in numbers}
        for file in self._folder.glob("*.update"):
            if int(file.stem) not in kept:  # written when the process died, before its record, or closed
                remove_file(file)
        return records

    def write(self, record: Record) -> None:
        """Append a record; when this returns, the record survives the death of the process.

        Raises ``MachineError`` if it cannot be written; then nothing more may be written by this process.
        """
        try:
            if isinstance(record, Added) and record.payload:
                with open_binary(self._file(self._count), "wb") as file:
                    file.write(record.payload)
            line = to_json(self._encoded(record)) + b"\n"
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            raise MachineError(
                f"the journal of a leaf server cannot be written to {self._folder}: {error.strerror}; "
                "make room there and start it again"
            ) from None
        for number in self._follow(record):
            remove_file(self._file(number))

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.update"

    def _follow(self, record: Record) -> list[int]:
        """Keep track of which updates are in which sum; returns those that are needed no more."""
        if isinstance(record, Added):
            self._open.setdefault(record.update.job, []).append(self._count)
            self._count += 1
        elif isinstance(record, Sealed):
            self._sealed[record.sum_id] = self._open.pop(record.job)
        elif isinstance(record, Closed):
            return self._sealed.pop(record.sum_id)
        return []

    def _encoded(self, record: Record) -> dict[str, Any]:
        if isinstance(record, Added):
            return {"added": [record.update.job, *record.update.stage, record.update.client]}
        if isinstance(record, Sealed):
            return {"sealed": record.sum_id, "job": record.job}
        return {"closed": record.sum_id} if isinstance(record, Closed) else {"started": record.incarnation}

    def _decoded(self, entry: dict[str, Any]) -> Record:
        record: Record
        if "added" in entry:
            job, round, attempt, client = entry["added"]
            file = self._file(self._count)
            payload = file.read_bytes() if file.exists() else b""
            record = Added(UpdateId(job, RoundAttempt(round, attempt), client), payload)
        elif "sealed" in entry:
            record = Sealed(SumId(*entry["sealed"]), entry["job"])
        elif "closed" in entry:
            record = Closed(SumId(*entry["closed"]))
        else:
            record = Started(entry["started"])
        self._follow(record)
        return record

    def close(self) -> None:
        os.close(self._fd)


_RETRY_S = 1.0
"""Real seconds after which a leaf sends a sum again whose answer was lost."""
Token = asyncio.Future[Reply]


class DataActor(Actor):
    """Does what a server decides; ``more`` does actions that are no answer and no event."""

    _server: LeafServer | RootServer

    def __init__(self, size: int, events: EventFile) -> None:
        super().__init__(events)
        self._size = size

    def decided(self, decide: Callable[..., Actions], *args: Any) -> Token:
        """The answer to a request, once the server has decided it by ``decide``."""
        token: Token = self.loop.create_future()
        self.act(decide(token, *args, time.monotonic()))
        return token

    def act(self, actions: Actions) -> None:
        """Do the actions in their order; after a ``MachineError``, which ``failed`` raises, none is done any more."""
        try:
            for action in actions:
                if self.failed.done() and not self.failed.cancelled():
                    return
                self._do(action)
        except MachineError as error:
            self.fail(error)

    def _do(self, action: ServerAction) -> None:
        if isinstance(action, Answer):
            if not action.token.done():  # the connection of the client may be gone
                action.token.set_result(Reply(action.fields, action.payload))
        elif isinstance(action, RefuseRequest):
            if not action.token.done():
                action.token.set_exception(EdgeRefused(action.why))
        elif isinstance(action, WriteEvent):
            self.events.write(action)
        else:
            self.more(action)

    def more(self, action: ServerAction) -> None:
        raise TypeError(f"this server does not do {action}")

    @operation
    def get(self, job: Number, round: Number) -> Token:
        """Ask for the model of a round. The answer: hit (whether the server had it) and the model, or absent."""
        return self.decided(self._server.get, job, round)

    @operation
    def push(self, job: Number, round: Number, client: Number, attempt: Number = 0, payload: Any = b"") -> Token:
        """Deliver a client's update. The answer: outcome (acknowledged, late, refused)."""
        update = UpdateId(job, RoundAttempt(round, attempt), client)
        return self.decided(self._server.push, update, self.sized(payload))

    def sized(self, payload: Payload) -> Payload:
        """``EdgeRefused`` if a payload is not a model or an update of this run."""
        if len(payload) != self._size:
            raise EdgeRefused(f"the payload has {len(payload)} bytes; models and updates of this run have {self._size}")
        return payload


class RootActor(DataActor):
    """The root server of ``run``."""

    def __init__(self, run: EdgeRun, events: EventFile) -> None:
        super().__init__(run.size, events)
        self._server: RootServer = RootServer(run.mode, verify=run.verify)

    @operation
    def push_sum(
        self,
        job: Number,
        round: Number,
        leaf: Number,
        incarnation: Number,
        number: Number,
        clients: Annotated[list[Number], Field(min_length=1, max_length=MOST_IN_A_SUM)],
        attempt: Number = 0,
        payload: Any = b"",
    ) -> Token:
        """Deliver the sum of the updates of ``clients``, in the order of addition. The answer is that of ``push``."""
        sum_id, stage = SumId(leaf, incarnation, number), RoundAttempt(round, attempt)
        return self.decided(self._server.push_sum, sum_id, job, stage, clients, self.sized(payload))

    @operation
    def put(
        self,
        job: Number,
        round: Number,
        demand: Annotated[int, Field(ge=1)],
        attempt: Number = 0,
        payload: Any = b"",
    ) -> Token:
        """Deliver the model of a round that needs ``demand`` updates, which ends the round before it."""
        return self.decided(self._server.put, job, RoundAttempt(round, attempt), demand, self.sized(payload))

    @operation
    def job_get(self, job: Number, round: Number) -> Token:
        """Ask for the sum. The answer: count (of updates), ready (count is the demand), and the sum if ready."""
        return self.decided(self._server.job_get, job, round)

    def stop(self) -> None:
        self.act(self._server.stop(time.monotonic()))


async def root_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    root = RootActor(run, EventFile(role.events))
    await root.serve(run.netns_fds[ROOT], DATA_PORT, orders.ready, most_payload=run.size)


class LeafActor(DataActor):
    """Leaf server ``number`` of ``run``: serves clients, fetches models from the root and flushes sums to it."""

    def __init__(self, run: EdgeRun, number: int, events: EventFile) -> None:
        super().__init__(run.size, events)
        fd = run.netns_fds[run.plan.leaf_rank(number)]
        self._journal = Journal(run.folder / f"journal-leaf{number}") if run.mode == "fixed" else None
        self._zeros = bytes(0 if run.verify else run.size)
        root = (run.plan.root_ip, DATA_PORT)
        self._root = Pool(fd, root, most_payload=run.size, patience_s=run.patience_s())
        self._pools = [self._root]
        self._turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
        if run.turns is not None:
            arbiter = (run.plan.regions[number].control_ip, TRUNK_PORT)
            self._pools.append(Pool(fd, arbiter, patience_s=LONGEST_WAIT_S))
            self._turn = partial(turn, self._pools[-1], number, run.size)
        self._server: LeafServer = LeafServer(
            number,
            run.mode,
            run.idle_s * run.time,
            verify=run.verify,
            retry_s=_RETRY_S * run.time,
            records=self._journal.read() if self._journal else (),
        )

    def start(self) -> None:
        self.act(self._server.start(time.monotonic()))

    def stop(self) -> None:
        super().act(self._server.stop(time.monotonic()))

    async def end(self) -> None:
        """Give up what has not ended, as the death of the process does, and close connections and files."""
        await super().end()
        for pool in self._pools:
            await pool.close()
        if self._journal is not None:
            self._journal.close()

    def act(self, actions: Actions) -> None:
        super().act(actions)
        self.call_at(self._server.due(), self._tick)

    def _tick(self) -> None:
        self.act(self._server.tick(time.monotonic()))

    def more(self, action: ServerAction) -> None:
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
                model = self.sized(reply.payload)
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


async def leaf_work(run: EdgeRun, role: Role, orders: Orders) -> None:
    leaf, fd = LeafActor(run, role.number, EventFile(role.events)), run.netns_fds[run.plan.leaf_rank(role.number)]
    await leaf.serve(fd, DATA_PORT, orders.ready, most_payload=run.size)
