"""The servers of models and updates as state machines: the leaf server of a region, and the root server.

As in Propius (arXiv 2510.19617; facts from the authors' public code at commit 73807cc). A job puts a model at the root,
which clears the sum; clients (star) or leaf servers (tree) get the model and push updates or sums of updates; the job
asks until the sum has its demand. Sums of leaf servers come in lumps, so the count may be above the demand: neither
mode has an upper bound.

A leaf server keeps models near the clients and adds up their updates. There is one model and one open sum per job. A
sum that got no update for ``idle_s`` seconds is sent to the root (flushed). Two modes of the leaf server:

========================= ============================================= ============================================
case                      ``authors``                                   ``fixed``
========================= ============================================= ============================================
several misses at once    each fetches the model                        the first fetches it for all
a flush                   updates wait until it has ended               goes on beside
the root refuses a sum    ignored, though its updates were acknowledged noted as late
an answer is lost         ignored                                       the sum is sent again under its identity
a newer round's update    replaces the open sum of the older round      the older sum is noted as late
a round starts again      its updates are added to those there are      each attempt has a sum of its own
an update is sent again   added again                                   counted once
the server is killed      loses what it held                            its next incarnation reads the journal
========================= ============================================= ============================================

And of the root:

============================== ================== ==================================================================
case                           ``authors``        ``fixed``
============================== ================== ==================================================================
an update or sum is sent again added again        recognized by its identity, acknowledged, counted once
an update of an older attempt  added              late
an update of a later attempt   added, cleared     kept until the model of that attempt is put: a leaf server that has
                               when it is put     the model of the round gives it to clients before that
updates after the job's answer added, never used  late
============================== ================== ==================================================================
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.propius.data.jobs import WriteEvent
from experiments.propius.data.messages import MOST_IN_A_SUM, Mode, Payload, RoundAttempt, SumId, UpdateId
from railyard.errors import VerifyError

# ---- numbers ---------------------------------------------------------------------------------------------------------
#
# The sum of float32 numbers depends on the order of addition. A leaf server adds updates in order of arrival, and the
# root adds the sums of leaf servers in order of arrival, so an order is a list of lists of client numbers, by which a
# sum can be checked bit by bit.

Numbers = NDArray[np.float32]
NUMBER_BYTES = 4
_KIND = np.dtype("<f4")


def draw(seed: int, job: int, round: int, client: int, size: int) -> Numbers:
    """The update of a client for a round of a job: ``size`` bytes of float32 numbers, the same in each process."""
    return np.random.default_rng((seed, job, round, client)).standard_normal(size // NUMBER_BYTES, np.float32)


def numbers(payload: Payload) -> Numbers:
    """The numbers in ``payload``, not copied."""
    return np.frombuffer(payload, _KIND)


def add(total: Numbers | None, more: Numbers) -> Numbers:
    """``total`` (changed; None: nothing yet) plus ``more`` (not changed), which is as long."""
    if total is None:
        return more.copy()
    total += more
    return total


def as_bytes(total: Numbers) -> memoryview:
    """The numbers as they go over the wire, not copied."""
    return total.data.cast("B")


def crc(total: Numbers) -> int:
    return zlib.crc32(as_bytes(total))


def expected(order: Sequence[Sequence[int]], seed: int, job: int, round: int, size: int) -> Numbers:
    """The sum of the updates in ``order``: each inner list is added on its own, then the sums of the lists."""
    total: Numbers | None = None
    for clients in order:
        part: Numbers | None = None
        for client in clients:
            part = add(part, draw(seed, job, round, client, size))
        total = total if part is None else add(total, part)
    return np.zeros(size // NUMBER_BYTES, np.float32) if total is None else total


def check_sum(event: Any, seed: int, size: int) -> None:
    """Compare the sum of a ``sum`` event (job, round, crc, order) with the sum of the updates in its order.

    Raises ``VerifyError`` if they differ in one bit.
    """
    job, round, order = event["job"], event["round"], event["order"]
    if (found := crc(expected(order, seed, job, round, size))) != event["crc"]:
        raise VerifyError(
            f"the sum of round {round} of job {job} is wrong: its CRC is {event['crc']}, the sum of the updates of "
            f"clients {order} has {found}"
        )


# ---- what a server does ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Answer the request ``token`` with these fields and this payload."""

    token: Any
    fields: Mapping[str, Any]
    payload: Payload = b""


@dataclass(frozen=True)
class RefuseRequest:
    """Refuse the request ``token``."""

    token: Any
    why: str


@dataclass(frozen=True)
class Fetch:
    """Ask the root for the model of a round; then ``LeafServer.fetched`` with the number of this fetch."""

    number: int
    job: int
    round: int


@dataclass(frozen=True)
class Flush:
    """Send a sum to the root; then ``LeafServer.flushed``. ``total`` None: the numbers are not added in this run."""

    sum_id: SumId
    job: int
    stage: RoundAttempt
    clients: tuple[int, ...]
    total: Numbers | None = field(compare=False)


@dataclass(frozen=True)
class Started:
    """Record: an incarnation of the leaf server begins."""

    incarnation: int


@dataclass(frozen=True)
class Added:
    """Record: an update is in the sum of its job. ``payload`` is empty if the numbers are not added in this run."""

    update: UpdateId
    payload: Payload = field(default=b"", compare=False)


@dataclass(frozen=True)
class Sealed:
    """Record: the sum of ``job`` has got an identity and takes no more updates."""

    sum_id: SumId
    job: int


@dataclass(frozen=True)
class Closed:
    """Record: the root has counted or refused the sum, so its updates are needed no more."""

    sum_id: SumId


Record = Started | Added | Sealed | Closed
"""What a leaf server writes to its journal before the action that comes after it."""
ServerAction = Answer | RefuseRequest | Fetch | Flush | WriteEvent | Record


Actions = tuple[ServerAction, ...]

_STAGES_REMEMBERED = 4
"""Attempts of rounds of a job whose updates a leaf server recognizes when they are sent again."""


@dataclass
class _OpenSum:
    """The sum of one round of a job that still takes updates."""

    stage: RoundAttempt
    last: float
    clients: list[int] = field(default_factory=list)
    total: Numbers | None = None


@dataclass
class _SealedSum:
    """A sum on its way to the root; ``retry`` is when it is sent again, None while an answer is awaited."""

    flush: Flush
    began: float
    retry: float | None = None


@dataclass
class _Fetching:
    job: int
    round: int
    tokens: list[Any]


class LeafServer:
    """Leaf server ``number``. Times are seconds of the run; ``token`` stands for a request until it is answered.

    ``verify``: updates are float32 numbers that are added; else they are only counted. ``records`` is the journal of
    earlier incarnations (``fixed`` only). Call ``start`` first, and ``tick`` at the time that ``due`` names.
    """

    def __init__(
        self,
        number: int,
        mode: Mode,
        idle_s: float,
        *,
        verify: bool = False,
        retry_s: float = 1.0,
        records: Iterable[Record] = (),
    ) -> None:
        self._number = number
        self._fixed = mode == "fixed"
        self._idle_s, self._retry_s = idle_s, retry_s
        self._verify = verify
        self._incarnation = 0
        self._models: dict[int, tuple[int, Payload]] = {}
        self._newest: dict[int, RoundAttempt] = {}
        self._seen: dict[int, dict[RoundAttempt, set[UpdateId]]] = {}
        self._open: dict[int, _OpenSum] = {}
        self._sealed: dict[SumId, _SealedSum] = {}
        self._fetches: dict[int, _Fetching] = {}
        self._fetch_count = self._sum_count = 0
        self._waiting: list[tuple[Any, UpdateId, Payload]] = []
        for record in records:
            self._replay(record)

    def start(self, now: float) -> Actions:
        """Begin this incarnation: what the journal holds is idle from now on, and sealed sums are sent again."""
        for opened in self._open.values():
            opened.last = now
        for sealed in self._sealed.values():
            sealed.began = now
        return (*self._record(Started(self._incarnation)), *(sealed.flush for sealed in self._sealed.values()))

    def _replay(self, record: Record) -> None:
        if isinstance(record, Started):
            self._incarnation = record.incarnation + 1
        elif isinstance(record, Added):
            self._remember(record.update)
            self._add(record.update, record.payload, 0.0)
        elif isinstance(record, Sealed):
            self._sum_count = max(self._sum_count, record.sum_id.number + 1)
            self._seal(record.sum_id, record.job, 0.0)
        else:
            self._sealed.pop(record.sum_id, None)

    def _record(self, *records: Record) -> tuple[Record, ...]:
        """The records, for the journal that only the mode ``fixed`` has."""
        return records if self._fixed else ()

    # ---- models -----------------------------------------------------------------------------------------------------

    def get(self, token: Any, job: int, round: int, now: float) -> Actions:
        """A client asks for the model of a round: answered at once if it is here, else when it was fetched."""
        held = self._models.get(job)
        if held is not None and held[0] >= round:
            return (Answer(token, {"hit": True}, held[1]) if held[0] == round else _over(token, job, round),)
        if self._fixed:
            for fetching in self._fetches.values():
                if (fetching.job, fetching.round) == (job, round):
                    fetching.tokens.append(token)
                    return ()
        self._fetch_count += 1
        self._fetches[self._fetch_count] = _Fetching(job, round, [token])
        return (Fetch(self._fetch_count, job, round),)

    def fetched(self, number: int, model: Payload | None, now: float, why: str = "") -> Actions:
        """Fetch ``number`` has ended with the whole model, or None and ``why`` (empty: the root has none yet)."""
        fetching = self._fetches.pop(number)
        if model is None:
            return tuple(
                RefuseRequest(token, why) if why else Answer(token, {"hit": False, "absent": True})
                for token in fetching.tokens
            )
        held = self._models.get(fetching.job)
        if held is None or held[0] < fetching.round:
            self._models[fetching.job] = fetching.round, model
        self._reached(fetching.job, RoundAttempt(fetching.round, 0))
        return tuple(Answer(token, {"hit": False}, model) for token in fetching.tokens)

    # ---- updates ----------------------------------------------------------------------------------------------------

    def push(self, token: Any, update: UpdateId, payload: Payload, now: float) -> Actions:
        """A client delivers an update; it is acknowledged once it is added."""
        if not self._fixed and self._sealed:  # the flush holds the lock of the authors' store
            self._waiting.append((token, update, payload))
            return ()
        actions, outcome = self._accept(update, payload, now)
        return (*actions, Answer(token, {"outcome": outcome}))

    def _accept(self, update: UpdateId, payload: Payload, now: float) -> tuple[Actions, str]:
        """Add an update, unless it is a copy or its round is over: what to do before the answer, and the outcome."""
        opened, stage = self._open.get(update.job), self._stage(update)
        actions: Actions = ()
        if self._fixed:
            if update in self._seen.get(update.job, {}).get(stage, ()):
                return (), "acknowledged"
            if stage < self._newest.get(update.job, stage):
                return (), "late"
        elif opened is not None and stage < opened.stage:
            return (), "refused"
        if opened is not None and opened.stage < stage:
            actions = self._replaced(update.job, now)
        elif opened is not None and len(opened.clients) >= MOST_IN_A_SUM:
            actions = self._flush(update.job, now)
        self._add(update, payload, now)
        self._remember(update)
        return (*actions, *self._record(Added(update, payload if self._verify else b""))), "acknowledged"

    def _stage(self, update: UpdateId) -> RoundAttempt:
        """The attempt of the round, in ``authors`` the round alone: each has a sum of its own."""
        return update.stage if self._fixed else RoundAttempt(update.stage.round, 0)

    def _reached(self, job: int, stage: RoundAttempt) -> None:
        self._newest[job] = max(stage, self._newest.get(job, stage))

    def _add(self, update: UpdateId, payload: Payload, now: float) -> None:
        opened = self._open.setdefault(update.job, _OpenSum(self._stage(update), now))
        if self._verify and payload:  # without numbers: an update of the journal whose sum is closed
            opened.total = add(opened.total, numbers(payload))
        opened.clients.append(update.client)
        opened.last = now

    def _remember(self, update: UpdateId) -> None:
        stages = self._seen.setdefault(update.job, {})
        stages.setdefault(update.stage, set()).add(update)
        self._reached(update.job, update.stage)
        while len(stages) > _STAGES_REMEMBERED:
            del stages[min(stages)]

    def _replaced(self, job: int, now: float) -> Actions:
        """The open sum of ``job`` belongs to a round that is over: it is given up, and in ``fixed`` that is known."""
        sum_id = self._next_id()
        flush = self._seal(sum_id, job, now)
        del self._sealed[sum_id]
        note = self._note(flush, "late" if self._fixed else "dropped", now)
        return (*self._record(Sealed(sum_id, job)), note, *self._record(Closed(sum_id)))

    # ---- flushes ----------------------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When ``tick`` is to be called next; None: not before another call."""
        if not self._fixed and self._sealed:
            return None
        times = [opened.last + self._idle_s for opened in self._open.values()]
        times += [sealed.retry for sealed in self._sealed.values() if sealed.retry is not None]
        return min(times, default=None)

    def tick(self, now: float) -> Actions:
        """Flush the sums that were idle for long enough, and send again those whose answer was lost."""
        if not self._fixed and self._sealed:
            return ()
        actions: list[ServerAction] = []
        for sealed in self._sealed.values():
            if sealed.retry is not None and sealed.retry <= now:
                sealed.retry = None
                actions.append(sealed.flush)
        for job in [job for job, opened in self._open.items() if opened.last + self._idle_s <= now]:
            actions += self._flush(job, now)
            if not self._fixed:  # one at a time, all while the store is locked
                break
        return tuple(actions)

    def flushed(self, sum_id: SumId, outcome: str | None, now: float) -> Actions:
        """The root has answered a flush with ``outcome``; None: no answer came, and it may or may not be counted."""
        sealed = self._sealed[sum_id]
        if self._fixed:
            if outcome is None:
                sealed.retry = now + self._retry_s
                return ()
            del self._sealed[sum_id]
            return (self._note(sealed.flush, outcome, sealed.began), *self._record(Closed(sum_id)))
        del self._sealed[sum_id]
        note = self._note(sealed.flush, outcome or "dropped", sealed.began)
        if more := self.tick(now):
            return (note, *more)
        waiting, self._waiting = self._waiting, []
        return (note, *(action for request in waiting for action in self.push(*request, now)))

    def stop(self, now: float) -> Actions:
        """The run is over: note the updates that are still here, and those whose flush has no answer yet."""
        for job in list(self._open):
            self._seal(self._next_id(), job, now)
        outcome = "late" if self._fixed else "dropped"
        return tuple(self._note(sealed.flush, outcome, sealed.began) for sealed in self._sealed.values())

    def _flush(self, job: int, now: float) -> Actions:
        sum_id = self._next_id()
        flush = self._seal(sum_id, job, now)
        return (*self._record(Sealed(sum_id, job)), flush)

    def _next_id(self) -> SumId:
        self._sum_count += 1
        return SumId(self._number, self._incarnation, self._sum_count - 1)

    def _seal(self, sum_id: SumId, job: int, now: float) -> Flush:
        opened = self._open.pop(job)
        flush = Flush(sum_id, job, opened.stage, tuple(opened.clients), opened.total)
        self._sealed[sum_id] = _SealedSum(flush, now)
        return flush

    def _note(self, flush: Flush, outcome: str, began: float) -> WriteEvent:
        fields = {"leaf": self._number, "job": flush.job, **flush.stage._asdict(), "count": len(flush.clients)}
        return WriteEvent("flush", {**fields, "clients": list(flush.clients), "outcome": outcome}, began)


def _over(token: Any, job: int, round: int) -> RefuseRequest:
    return RefuseRequest(token, f"round {round} of job {job} is over")


MOST_EARLY = 8
"""Later attempts of a round whose updates the root keeps before their model is put."""
MOST_REMEMBERED = 1 << 16
"""Identities of updates and sums, the newest, that the root recognizes when they are sent again."""


@dataclass
class _Sum:
    """The updates of an attempt of a round; ``order`` lists the clients of each push in the order of addition."""

    order: list[list[int]] = field(default_factory=list)
    count: int = 0
    total: Numbers | None = None
    answered: int = 0
    """Lists of ``order`` that are in the sum that the job has got; 0 before that."""


@dataclass
class _Round:
    """The present round of a job, and the updates that came for later attempts of it."""

    stage: RoundAttempt
    demand: int
    model: Payload
    sum: _Sum
    early: dict[RoundAttempt, _Sum] = field(default_factory=dict)


class RootServer:
    """The root server. ``verify``: updates are float32 numbers that are added; else they are only counted.

    The answer to a job is the sum, or a model's size of zeros where numbers are not added.
    """

    def __init__(self, mode: Mode, *, verify: bool = False) -> None:
        self._fixed = mode == "fixed"
        self._verify = verify
        self._rounds: dict[int, _Round] = {}
        self._counted: dict[Hashable, None] = {}

    def put(self, token: Any, job: int, stage: RoundAttempt, demand: int, model: Payload, now: float) -> Actions:
        """The job starts a round, or the next attempt of it; a sum that the job has not got is given up.

        A put that is sent again changes nothing in ``fixed``.
        """
        held = self._rounds.get(job)
        if self._fixed and held is not None and held.stage == stage:
            return (Answer(token, {}),)
        begun = _Sum() if held is None else held.early.pop(stage, _Sum())
        self._rounds[job] = _Round(stage, demand, model, begun)
        return (*(self._given_up(job, held) if held else ()), Answer(token, {}))

    def get(self, token: Any, job: int, round: int, now: float) -> Actions:
        """A leaf server or a client asks for the model of a round."""
        held = self._rounds.get(job)
        if held is None or held.stage.round < round:
            return (Answer(token, {"hit": False, "absent": True}),)
        if held.stage.round > round:
            return (_over(token, job, round),)
        return (Answer(token, {"hit": True}, held.model),)

    def push(self, token: Any, update: UpdateId, payload: Payload, now: float) -> Actions:
        return self._add(token, update, update.job, update.stage, (update.client,), payload)

    def push_sum(
        self,
        token: Any,
        sum_id: SumId,
        job: int,
        stage: RoundAttempt,
        clients: Sequence[int],
        payload: Payload,
        now: float,
    ) -> Actions:
        return self._add(token, sum_id, job, stage, clients, payload)

    def _add(
        self, token: Any, identity: Hashable, job: int, stage: RoundAttempt, clients: Sequence[int], payload: Payload
    ) -> Actions:
        if self._fixed and identity in self._counted:
            return (Answer(token, {"outcome": "acknowledged"}),)
        target = self._target(job, stage)
        if target is None:
            return (Answer(token, {"outcome": "late" if self._fixed else "refused"}),)
        if self._verify:
            target.total = add(target.total, numbers(payload))
        target.order.append(list(clients))
        target.count += len(clients)
        if self._fixed:
            self._counted[identity] = None
            if len(self._counted) > MOST_REMEMBERED:
                del self._counted[next(iter(self._counted))]
        return (Answer(token, {"outcome": "acknowledged"}),)

    def _target(self, job: int, stage: RoundAttempt) -> _Sum | None:
        """The sum that takes an update of this stage; None: the stage is over."""
        held = self._rounds.get(job)
        if held is None:
            return None
        if not self._fixed:
            return held.sum if held.stage.round == stage.round else None
        if stage.round == held.stage.round and stage > held.stage:
            full = stage not in held.early and len(held.early) >= MOST_EARLY
            return None if full else held.early.setdefault(stage, _Sum())
        return held.sum if stage == held.stage and not held.sum.answered else None

    def job_get(self, token: Any, job: int, round: int, now: float) -> Actions:
        held = self._rounds.get(job)
        if held is None or held.stage.round != round:
            return (RefuseRequest(token, f"the root server does not hold round {round} of job {job}"),)
        found = held.sum
        fields = {"count": found.count, "ready": found.count >= held.demand}
        if not fields["ready"]:
            return (Answer(token, fields),)
        payload = bytes(len(held.model)) if found.total is None else found.total.tobytes()
        answer = Answer(token, fields, payload)
        if found.answered:
            return (answer,)
        found.answered = len(found.order)
        return WriteEvent("sum", _sum_fields(job, self._stage(held.stage), found)), answer

    def stop(self, now: float) -> Actions:
        """The run is over: note the updates that no job has got."""
        return tuple(note for job, held in self._rounds.items() for note in self._given_up(job, held))

    def _stage(self, stage: RoundAttempt) -> RoundAttempt:
        """The attempt of the round, in ``authors`` the round alone: each has a sum of its own."""
        return stage if self._fixed else RoundAttempt(stage.round, 0)

    def _given_up(self, job: int, held: _Round) -> tuple[WriteEvent, ...]:
        """The events of the updates of a round that no answer had, one for each attempt with any."""
        notes = []
        for stage, part in ((held.stage, held.sum), *held.early.items()):
            if clients := [client for pushed in part.order[part.answered :] for client in pushed]:
                of = {"job": job, **self._stage(stage)._asdict()}
                notes.append(WriteEvent("cleared", {**of, "count": len(clients), "clients": clients}))
        return tuple(notes)


def _sum_fields(job: int, stage: RoundAttempt, found: _Sum) -> dict[str, Any]:
    fields = {"job": job, **stage._asdict(), "count": found.count, "order": [list(part) for part in found.order]}
    return {**fields, "crc": None if found.total is None else crc(found.total)}
