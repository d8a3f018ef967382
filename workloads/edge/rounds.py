"""The side of a job as a state machine: it asks for clients, serves a round, polls for the sum, and starts the next."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.edge.job import EdgeJob


@dataclass(frozen=True)
class Register:
    """Send REGISTER to the job manager; its answer, the job's number, goes to ``JobRounds.registered``."""


@dataclass(frozen=True)
class Request:
    """Send REQUEST for a round; no answer is awaited."""

    round: int
    demand: int
    attempt: int


@dataclass(frozen=True)
class EndRequest:
    """Send END_REQUEST; no answer is awaited."""

    round: int


@dataclass(frozen=True)
class Put:
    """Send the model of the round to the root server; then ``JobRounds.put``. This clears the root's sum."""

    round: int


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
    """Event: the round is complete. Both times are seconds of the run, counted from the first REQUEST of the round.

    ``scheduling_s`` is the time until the successful attempt had its clients, ``response_s`` the time from then.
    """

    round: int
    began: float
    scheduling_s: float
    response_s: float
    clients: int
    attempt: int


@dataclass(frozen=True)
class TimedOut:
    """Event: a timer ended before the round had its clients (``scheduling``) or updates (``execution``)."""

    round: int
    phase: str


JobAction = Register | Request | EndRequest | Put | Poll | AskBound | Sleep | Finish | Scheduled | RoundDone | TimedOut


@dataclass(frozen=True)
class JobTimers:
    """The timers of a job in real seconds; ``scaled`` gives those of an emulated run."""

    scheduling_s: float = 100.0
    execution_s: float = 500.0
    poll_s: float = 5.0
    ask_bound_s: float = 1.0

    def scaled(self, time: float) -> JobTimers:
        """The same timers for a run of ``time`` emulated seconds per real second."""
        return JobTimers(self.scheduling_s * time, self.execution_s * time, self.poll_s * time, self.ask_bound_s * time)


class JobRounds:
    """One job from REGISTER to FINISH; rounds count from 0."""

    def __init__(self, job: EdgeJob, timers: JobTimers) -> None:
        raise NotImplementedError

    def start(self, now: float) -> tuple[JobAction, ...]:
        """The job arrives."""
        raise NotImplementedError

    def registered(self, number: int, now: float) -> tuple[JobAction, ...]:
        """The job manager has entered the job."""
        raise NotImplementedError

    def put(self, now: float) -> tuple[JobAction, ...]:
        """The root server holds the model of the round."""
        raise NotImplementedError

    def bound(self, count: int, now: float) -> tuple[JobAction, ...]:
        """The round has ``count`` clients, told by the job manager, asked or not."""
        raise NotImplementedError

    def polled(self, count: int, now: float) -> tuple[JobAction, ...]:
        """The root server has ``count`` updates of the round."""
        raise NotImplementedError

    def woke(self, now: float) -> tuple[JobAction, ...]:
        """A sleep has ended."""
        raise NotImplementedError
