"""Carries out what the jobs of a simulated run ask for (``experiments.propius.data.rounds``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from experiments.propius.control.job_manager import JobManager
from experiments.propius.data.device import Binding
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.rounds import (
    AskBound,
    EndRequest,
    Finish,
    JobAction,
    JobRounds,
    Poll,
    Put,
    Register,
    Request,
    RoundDone,
    Scheduled,
    Sleep,
    TimedOut,
)
from experiments.propius.model.clock import Clock
from experiments.propius.model.plane import Plane


class Tell(Protocol):
    """Function that records an event of the source "edge"."""

    def __call__(self, kind: str, began: float | None = None, **fields: object) -> None:
        """Record an event of kind ``kind``, which ends now: a moment, or an interval since ``began``."""


@dataclass(eq=False)
class SimulatedJob:
    """One job; ``waiting`` are clients bound to a round whose model is not there yet: when they first asked for it."""

    rounds: JobRounds
    number: int = -1
    sleeps: int = 0
    waiting: dict[int, tuple[Binding, float]] = field(default_factory=dict)


class SimulatedJobs:
    """The jobs of a run, by number in ``jobs``.

    ``entered`` is told of a job that registers, ``released`` of one whose waiting clients get an answer, ``changed``
    after each step.
    """

    def __init__(
        self,
        clock: Clock,
        manager: JobManager,
        plane: Plane,
        tell: Tell,
        *,
        entered: Callable[[int, EdgeJob], None],
        released: Callable[[SimulatedJob], None],
        changed: Callable[[], None],
    ) -> None:
        self.jobs: dict[int, SimulatedJob] = {}
        self.finished = 0
        self._clock, self._manager, self._plane, self._tell = clock, manager, plane, tell
        self._entered, self._released, self._changed = entered, released, changed

    def start(self, job: SimulatedJob) -> None:
        """The job arrives."""
        self._do(job, job.rounds.start(self._clock.now))

    def full(self, number: int, bound: int) -> None:
        """The job manager tells a job that its round has all the clients it asked for."""
        self._answer(self.jobs[number], self.jobs[number].rounds.bound, bound)

    def counted(self, number: int, count: int) -> None:
        """The authors' flat server has ``count`` updates; its job knows at once."""
        job = self.jobs[number]
        if count >= job.rounds.job.demand:
            self._do(job, job.rounds.polled(count, self._clock.now))

    def _answer(self, job: SimulatedJob, method: Callable[..., Iterable[JobAction]], *args: int) -> None:
        """Call ``method`` with an answer at once, but after the actions that are being carried out."""
        self._clock.later(0.0, lambda: self._do(job, method(*args, self._clock.now)))

    def _do(self, job: SimulatedJob, actions: Iterable[JobAction]) -> None:
        for action in actions:
            self._do_one(job, action)
        self._changed()

    def _do_one(self, job: SimulatedJob, action: JobAction) -> None:
        now, number = self._clock.now, job.number
        match action:
            case Register():
                job.number = self._manager.register(job.rounds.job, now)
                self.jobs[job.number] = job
                self._entered(job.number, job.rounds.job)
                self._tell("registered", job=job.number)
                self._answer(job, job.rounds.registered, job.number)
            case Request(round, demand, attempt):
                self._tell("request", job=number, round=round, demand=demand, attempt=attempt)
                self._manager.request(number, round, demand, now, attempt)
            case EndRequest():
                count = self._manager.end_request(number, now) or 0
                if self._plane.sends_away and count < job.rounds.job.selected:
                    count = 0  # the authors' job gives up a round that has not all clients in time, even the demand
                self._answer(job, job.rounds.ended, count)
            case AskBound():
                self._answer(job, job.rounds.bound, self._manager.bound(number) or 0)
            case Put(round, attempt):
                self._plane.put(number, round, attempt)
                self._released(job)
                self._answer(job, job.rounds.put)
            case Poll():
                self._answer(job, job.rounds.polled, self._plane.count(number))
            case Sleep(seconds):
                job.sleeps += 1
                self._clock.later(seconds, self._woke, job, job.sleeps)
            case Finish():
                self._manager.finish(number, now)
                self._tell("finished", job=number)
                self.finished += 1
            case _:
                self._event(job, action)

    def _event(self, job: SimulatedJob, action: JobAction) -> None:
        match action:
            case Scheduled(round, bound):
                self._tell("scheduled", job=job.number, round=round, bound=bound)
            case RoundDone():
                fields = {"scheduling_s": action.scheduling_s, "response_s": action.response_s}
                fields |= {"clients": action.clients, "attempt": action.attempt}
                self._tell("round", action.began, job=job.number, round=action.round, **fields)
                self._plane.close(job.number)
            case TimedOut(round, phase):
                self._tell("timeout", job=job.number, round=round, phase=phase)
                self._plane.close(job.number)
                if self._plane.sends_away:
                    self._released(job)

    def _woke(self, job: SimulatedJob, sleep: int) -> None:
        if sleep == job.sleeps:
            self._do(job, job.rounds.woke(self._clock.now))
