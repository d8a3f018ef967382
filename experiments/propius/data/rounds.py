"""The side of a job as a state machine: it asks for clients, serves a round, polls for the sum, and starts the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from experiments.propius.data.job import EdgeJob


@dataclass(frozen=True)
class Register:
    """Send REGISTER to the job manager; its answer, the job's number, goes to ``JobRounds.registered``."""


@dataclass(frozen=True)
class Request:
    """Send REQUEST for a round; ``JobRounds.forgotten`` if the job manager does not know the job (any more)."""

    round: int
    demand: int
    attempt: int


@dataclass(frozen=True)
class EndRequest:
    """Send END_REQUEST; its answer, how many clients the round has, goes to ``JobRounds.ended``."""

    round: int


@dataclass(frozen=True)
class Put:
    """Send the model of the round to the root server; then ``JobRounds.put``. This clears the root's sum."""

    round: int
    attempt: int


@dataclass(frozen=True)
class Poll:
    """Send JOB_GET to the root server, which tells how many updates the round has; then ``JobRounds.polled``."""

    round: int


@dataclass(frozen=True)
class AskBound:
    """Ask the job manager how many clients the round has; then ``JobRounds.bound``."""


@dataclass(frozen=True)
class Sleep:
    """Call ``JobRounds.woke`` after so many seconds of the run; a new Sleep replaces an older one."""

    seconds: float


@dataclass(frozen=True)
class Finish:
    """Send FINISH to the job manager; the job is complete."""


@dataclass(frozen=True)
class Scheduled:
    """Event: the round has ``bound`` clients and takes no more."""

    round: int
    bound: int


@dataclass(frozen=True)
class RoundDone:
    """Event: the round is complete.

    ``began`` is the time of the first REQUEST of the round. ``scheduling_s`` is the time from the REQUEST of the
    attempt that succeeded until it had its ``clients``, ``response_s`` from then until the root had enough updates.
    """

    round: int
    began: float
    scheduling_s: float
    response_s: float
    clients: int
    attempt: int


@dataclass(frozen=True)
class TimedOut:
    """Event: a timer ended before the round had its clients or its updates."""

    round: int
    phase: Literal["scheduling", "execution"]


JobAction = Register | Request | EndRequest | Put | Poll | AskBound | Sleep | Finish | Scheduled | RoundDone | TimedOut


@dataclass(frozen=True)
class JobTimers:
    """The timers of a job in real seconds; ``scaled`` gives those of an emulated run.

    ``ask_bound_s`` is how often the job asks the job manager for its clients; infinity if it is told unasked.
    """

    scheduling_s: float = 100.0
    execution_s: float = 500.0
    poll_s: float = 5.0
    ask_bound_s: float = 1.0

    def scaled(self, time: float) -> JobTimers:
        """The same timers for a run of ``time`` emulated seconds per real second."""
        return JobTimers(self.scheduling_s * time, self.execution_s * time, self.poll_s * time, self.ask_bound_s * time)


def job_timers(job: EdgeJob, time: float = 1.0) -> JobTimers:
    """The timers of ``job`` for a run of ``time`` emulated seconds per real second."""
    return JobTimers(scheduling_s=job.scheduling_s, execution_s=job.execution_s).scaled(time)


Phase = Literal["new", "scheduling", "closing", "putting", "executing", "done"]


class JobRounds:
    """One job from REGISTER to FINISH; rounds and attempts count from 0.

    An answer that comes too late, when the job has gone on, changes nothing and asks for nothing.
    """

    def __init__(self, job: EdgeJob, timers: JobTimers) -> None:
        self.job = job
        self.timers = timers
        self.number: int | None = None
        self.round = 0
        self.attempt = 0
        self.phase: Phase = "new"
        self._began: float | None = None
        self._requested = self._scheduled = self._deadline = 0.0
        self._clients = 0

    def start(self, now: float) -> tuple[JobAction, ...]:
        """The job arrives."""
        return (Register(),)

    def registered(self, number: int, now: float) -> tuple[JobAction, ...]:
        """The job manager has entered the job."""
        self.number = number
        return self._request(now)

    def forgotten(self, now: float) -> tuple[JobAction, ...]:
        """The job manager does not know the job: it was restarted, or the job was silent for too long.

        The job registers anew and starts its round again; completed rounds stay completed.
        """
        if self.phase == "done":
            return ()
        self.attempt += self.phase != "new"
        self.phase = "new"
        return (Register(),)

    def bound(self, count: int, now: float) -> tuple[JobAction, ...]:
        """The round has ``count`` clients, told by the job manager, asked or not."""
        if self.phase == "scheduling" and count >= self.job.selected:
            return self._put(count, now)
        return ()

    def ended(self, count: int, now: float) -> tuple[JobAction, ...]:
        """The answer to END_REQUEST: the round has ``count`` clients and gets no more."""
        if self.phase != "closing":
            return ()
        return self._put(count, now) if count >= self.job.demand else self._again("scheduling", now)

    def put(self, now: float) -> tuple[JobAction, ...]:
        """The root server holds the model of the round."""
        if self.phase != "putting":
            return ()
        self.phase = "executing"
        return (self._sleep(self.timers.poll_s, now),)

    def polled(self, count: int, now: float) -> tuple[JobAction, ...]:
        """The root server has ``count`` updates of the round."""
        if self.phase != "executing":
            return ()
        if count < self.job.demand:
            return (self._sleep(self.timers.poll_s, now),)
        assert self._began is not None, "a round that executes has been requested"
        scheduling, response = self._scheduled - self._requested, now - self._scheduled
        done = RoundDone(self.round, self._began, scheduling, response, self._clients, self.attempt)
        self.round, self.attempt, self._began = self.round + 1, 0, None
        if self.round < self.job.rounds:
            return (done, *self._request(now))
        self.phase = "done"
        return (done, Finish())

    def woke(self, now: float) -> tuple[JobAction, ...]:
        """A sleep has ended."""
        late = now >= self._deadline - 1e-9
        if self.phase == "scheduling":
            if late:
                self.phase = "closing"
                return (EndRequest(self.round),)
            return (AskBound(), self._sleep(self.timers.ask_bound_s, now))
        if self.phase in ("putting", "executing") and late:
            return self._again("execution", now)
        if self.phase != "executing":
            return ()
        return (Poll(self.round), self._sleep(self.timers.execution_s, now))

    def _request(self, now: float) -> tuple[JobAction, ...]:
        self.phase = "scheduling"
        self._requested = now
        self._began = now if self._began is None else self._began
        self._deadline = now + self.timers.scheduling_s
        request = Request(self.round, self.job.selected, self.attempt)
        return (request, self._sleep(self.timers.ask_bound_s, now))

    def _put(self, count: int, now: float) -> tuple[JobAction, ...]:
        self.phase = "putting"
        self._scheduled, self._clients = now, count
        self._deadline = now + self.timers.execution_s
        put = Put(self.round, self.attempt)
        return (Scheduled(self.round, count), put, self._sleep(self.timers.execution_s, now))

    def _again(self, phase: Literal["scheduling", "execution"], now: float) -> tuple[JobAction, ...]:
        timed_out = TimedOut(self.round, phase)
        self.attempt += 1
        return (timed_out, *self._request(now))

    def _sleep(self, seconds: float, now: float) -> Sleep:
        return Sleep(max(0.0, min(seconds, self._deadline - now)))
