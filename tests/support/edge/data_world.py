"""A root, leaf servers and clients of edge learning in one process, with a network that loses and servers that die."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from experiments.propius.data.jobs import WriteEvent
from experiments.propius.data.messages import Mode, RoundAttempt, UpdateId
from experiments.propius.data.servers import (
    Answer,
    Fetch,
    Flush,
    LeafServer,
    Record,
    RefuseRequest,
    RootServer,
    ServerAction,
    as_bytes,
    draw,
)
from railyard.timeline import Event

SEED, SIZE = 7, 32
IDLE_S = 10.0
MODEL = bytes(SIZE)


@dataclass(frozen=True)
class Accounts:
    """What became of the acknowledged updates; in a world each update has a client of its own."""

    acknowledged: int
    counted: int
    late: int
    lost: int
    twice: int


def account(events: list[Event]) -> Accounts:
    acknowledged, counted, known = set(), Counter[int](), set()
    for event in events:
        if event.kind == "push" and event["outcome"] == "acknowledged":
            acknowledged.add(event["client"])
        elif event.kind == "sum":
            counted.update(client for part in event["order"] for client in part)
        elif event.kind == "cleared" or (event.kind == "flush" and event["outcome"] == "late"):
            known.update(event["clients"])
    late = acknowledged & known - counted.keys()
    lost = acknowledged - known - counted.keys()
    twice = sum(count - 1 for count in counted.values())
    return Accounts(len(acknowledged), len(acknowledged & counted.keys()), len(late), len(lost), twice)


@dataclass
class Leaf:
    server: LeafServer | None = None
    journal: list[Record] = field(default_factory=list)
    life: int = 0


@dataclass
class World:
    """``step`` does one random thing; ``end`` lets everything that is under way come to its end."""

    mode: Mode
    choose: random.Random
    demand: int = 3
    now: float = 0.0
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = RootServer(self.mode, verify=True)
        self.leaves = [Leaf(), Leaf()]
        self.stage = [RoundAttempt(0, 0), RoundAttempt(0, 0)]
        self.sending: dict[UpdateId, int] = {}
        """Updates without an answer, with their leaf."""
        self.flights: list[tuple[int, int, Flush | Fetch]] = []
        """What is on its way to the root: leaf, life of the leaf, request."""
        self.clients = 0
        for job in (0, 1):
            self._of_root(self.root.put("put", job, self.stage[job], self.demand, MODEL, 0.0))
        for number in range(len(self.leaves)):
            self.restart(number)

    def step(self) -> None:
        self.now += self.choose.choice((0.0, 0.5, 6.0))
        what = self.choose.choice(
            (self.push, self.push, self.push, self.push, self.send_again, self.get, self.deliver, self.deliver)
            + (self.tick, self.tick, self.poll, self.again, self.kill)
        )
        what()

    def push(self) -> None:
        self.clients += 1
        job = self.choose.randrange(2)
        now = self.stage[job]
        near = (now, now, now, RoundAttempt(max(0, now.round - 1), 0), RoundAttempt(now.round, max(0, now.attempt - 1)))
        update = UpdateId(job, self.choose.choice((*near, RoundAttempt(now.round, now.attempt + 1))), self.clients)
        self.sending[update] = self.choose.randrange(2)
        self._send(update)

    def send_again(self) -> None:
        if self.sending:
            self._send(self.choose.choice(sorted(self.sending)))

    def _send(self, update: UpdateId) -> None:
        number = self.sending[update]
        server = self.leaves[number].server
        if server is not None:
            payload = bytes(as_bytes(draw(SEED, update.job, update.stage.round, update.client, SIZE)))
            actions = server.push(update, update, payload, self.now)
            crash = self.choose.randrange(8)
            self._of_leaf(number, actions[:crash])
            if crash < len(actions):
                self._die(number)

    def get(self) -> None:
        number, job = self.choose.randrange(2), self.choose.randrange(2)
        if (server := self.leaves[number].server) is not None:
            self._of_leaf(number, server.get(None, job, self.stage[job].round, self.now))

    def tick(self) -> None:
        for number, leaf in enumerate(self.leaves):
            if leaf.server is not None:
                self._of_leaf(number, leaf.server.tick(self.now))

    def deliver(self, answers: bool = False) -> None:
        """Something that is under way arrives, perhaps, and its answer too, perhaps."""
        if not self.flights:
            return
        number, life, request = self.flights.pop(self.choose.randrange(len(self.flights)))
        arrives, answered = answers or self.choose.random() < 0.8, answers or self.choose.random() < 0.7
        answer: ServerAction | None = None
        if arrives and isinstance(request, Flush):
            assert request.total is not None
            payload = as_bytes(request.total)
            where = request.job, request.stage, request.clients
            answer = self._of_root(self.root.push_sum(None, request.sum_id, *where, payload, self.now))
        elif arrives and isinstance(request, Fetch):
            answer = self._of_root(self.root.get(None, request.job, request.round, self.now))
        leaf = self.leaves[number]
        if leaf.server is None or leaf.life != life:
            return
        told = answer if answered and isinstance(answer, Answer) else None
        if isinstance(request, Flush):
            outcome = None if told is None else told.fields["outcome"]
            self._of_leaf(number, leaf.server.flushed(request.sum_id, outcome, self.now))
        else:
            model = None if told is None else told.payload
            self._of_leaf(number, leaf.server.fetched(request.number, model, self.now, "no answer"))

    def poll(self) -> None:
        job = self.choose.randrange(2)
        answer = self._of_root(self.root.job_get(None, job, self.stage[job].round, self.now))
        if isinstance(answer, Answer) and answer.fields["ready"]:
            self._put(job, RoundAttempt(self.stage[job].round + 1, 0))

    def again(self) -> None:
        """A round is started again, since a timer of the job has ended."""
        if self.choose.random() < 0.2:
            job = self.choose.randrange(2)
            self._put(job, RoundAttempt(self.stage[job].round, self.stage[job].attempt + self.choose.choice((1, 2))))

    def _put(self, job: int, stage: RoundAttempt) -> None:
        self.stage[job] = stage
        self._of_root(self.root.put(None, job, stage, self.demand, MODEL, self.now))

    def kill(self) -> None:
        number = self.choose.randrange(2)
        if self.leaves[number].server is None:
            self.restart(number)
        elif self.choose.random() < 0.5:
            self._die(number)

    def _die(self, number: int) -> None:
        self.leaves[number].server = None

    def restart(self, number: int) -> None:
        leaf = self.leaves[number]
        leaf.life += 1
        leaf.server = LeafServer(number, self.mode, IDLE_S, verify=True, records=leaf.journal)
        self._of_leaf(number, leaf.server.start(self.now))

    def _of_leaf(self, number: int, actions: tuple[ServerAction, ...]) -> None:
        for action in actions:
            if isinstance(action, (Flush, Fetch)):
                self.flights.append((number, self.leaves[number].life, action))
            elif isinstance(action, Answer) and isinstance(action.token, UpdateId):
                if self.choose.random() < 0.9:
                    self._told(action.token, action.fields["outcome"])
            elif isinstance(action, WriteEvent):
                self._note(action)
            elif not isinstance(action, (Answer, RefuseRequest)):
                assert self.mode == "fixed"
                self.leaves[number].journal.append(action)

    def _told(self, update: UpdateId, outcome: str) -> None:
        if self.sending.pop(update, None) is not None:
            fields = {"client": update.client, "job": update.job, "round": update.stage.round, "outcome": outcome}
            self.events.append(Event(self.now, "edge", "push", None, fields))

    def _of_root(self, actions: tuple[ServerAction, ...]) -> ServerAction:
        for action in actions:
            if isinstance(action, WriteEvent):
                self._note(action)
        return actions[-1]

    def _note(self, note: WriteEvent) -> None:
        self.events.append(Event(note.began or self.now, "edge", note.kind, self.now, dict(note.fields)))

    def end(self) -> Accounts:
        for number, leaf in enumerate(self.leaves):
            if leaf.server is None:
                self.restart(number)
        for update in list(self.sending):
            while self.mode == "fixed" and update in self.sending:
                self._send(update)
                for number, leaf in enumerate(self.leaves):
                    if leaf.server is None:
                        self.restart(number)
        for _ in range(4):
            self.now += 2 * IDLE_S
            self.tick()
            while self.flights:
                self.deliver(answers=True)
        for update in list(self.sending):
            self._told(update, "lost")
        for number, leaf in enumerate(self.leaves):
            assert leaf.server is not None
            self._of_leaf(number, leaf.server.stop(self.now))
        self._of_root((*self.root.stop(self.now), Answer(None, {})))
        return account(self.events)
