"""The root server as a state machine: it holds the model of each job's round and the sum of its updates.

The job puts a model, which clears the sum; clients (star) or leaf servers (tree) get the model and push updates or
sums of updates; the job asks until the sum has its demand. Sums of leaf servers come in lumps, so the count may be
above the demand: neither mode has an upper bound. Facts as in ``experiments.propius.data.leaf``. Two modes:

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

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.propius.data.data_requests import Mode, Stage, SumId, UpdateId
from experiments.propius.data.leaf import MOST_JOBS, Actions
from experiments.propius.data.server_actions import Answer, Note, Refuse
from experiments.propius.data.update import Numbers, add, crc, numbers
from experiments.propius.data.wire import Payload

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

    stage: Stage
    demand: int
    model: Payload
    sum: _Sum
    early: dict[Stage, _Sum] = field(default_factory=dict)


class RootServer:
    """The root server. ``verify``: updates are float32 numbers that are added; else they are only counted.

    The answer to a job is the sum, or a model's size of zeros where numbers are not added.
    """

    def __init__(self, mode: Mode, *, verify: bool = False) -> None:
        self._fixed = mode == "fixed"
        self._verify = verify
        self._rounds: dict[int, _Round] = {}
        self._counted: dict[Hashable, None] = {}

    def put(self, token: Any, job: int, stage: Stage, demand: int, model: Payload, now: float) -> Actions:
        """The job starts a round, or the next attempt of it; a sum that the job has not got is given up.

        A put that is sent again changes nothing in ``fixed``.
        """
        held = self._rounds.get(job)
        if held is None and len(self._rounds) >= MOST_JOBS:
            return (Refuse(token, f"the root server holds at most {MOST_JOBS} jobs"),)
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
            return (Refuse(token, f"round {round} of job {job} is over"),)
        return (Answer(token, {"hit": True}, held.model),)

    def push(self, token: Any, update: UpdateId, payload: Payload, now: float) -> Actions:
        """A client delivers an update without a leaf server."""
        return self._add(token, update, update.job, update.stage, (update.client,), payload)

    def push_sum(
        self, token: Any, sum_id: SumId, job: int, stage: Stage, clients: Sequence[int], payload: Payload, now: float
    ) -> Actions:
        """A leaf server delivers the sum of the updates of ``clients``."""
        return self._add(token, sum_id, job, stage, clients, payload)

    def _add(
        self, token: Any, identity: Hashable, job: int, stage: Stage, clients: Sequence[int], payload: Payload
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

    def _target(self, job: int, stage: Stage) -> _Sum | None:
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
        """The job asks for the sum of a round."""
        held = self._rounds.get(job)
        if held is None or held.stage.round != round:
            return (Refuse(token, f"the root server does not hold round {round} of job {job}"),)
        found = held.sum
        fields = {"count": found.count, "ready": found.count >= held.demand}
        if not fields["ready"]:
            return (Answer(token, fields),)
        payload = bytes(len(held.model)) if found.total is None else found.total.tobytes()
        answer = Answer(token, fields, payload)
        if found.answered:
            return (answer,)
        found.answered = len(found.order)
        return Note("sum", _sum_fields(job, self._stage(held.stage), found)), answer

    def stop(self, now: float) -> Actions:
        """The run is over: note the updates that no job has got."""
        return tuple(note for job, held in self._rounds.items() for note in self._given_up(job, held))

    def _stage(self, stage: Stage) -> Stage:
        """What sums are separated by: the attempt of the round, in ``authors`` the round alone."""
        return stage if self._fixed else Stage(stage.round, 0)

    def _given_up(self, job: int, held: _Round) -> tuple[Note, ...]:
        """The events of the updates of a round that no answer had, one for each attempt with any."""
        notes = []
        for stage, part in ((held.stage, held.sum), *held.early.items()):
            if clients := [client for pushed in part.order[part.answered :] for client in pushed]:
                of = {"job": job, **self._stage(stage)._asdict()}
                notes.append(Note("cleared", {**of, "count": len(clients), "clients": clients}))
        return tuple(notes)


def _sum_fields(job: int, stage: Stage, found: _Sum) -> dict[str, Any]:
    fields = {"job": job, **stage._asdict(), "count": found.count, "order": [list(part) for part in found.order]}
    return {**fields, "crc": None if found.total is None else crc(found.total)}
