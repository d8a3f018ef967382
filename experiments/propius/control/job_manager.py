"""The job manager: it knows every job and its current round, and binds clients, never more than a round asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.propius.control.policy import OpenJob
from experiments.propius.data.device import Binding
from experiments.propius.data.job import EdgeJob

SILENT_S = 1800.0
"""A job that has sent nothing for so many real seconds is forgotten."""


@dataclass
class _Entry:
    number: int
    job: EdgeJob
    registered_s: float
    heard_s: float
    round: int = 0
    attempt: int = 0
    demand: int = 0
    open: bool = False
    requested_s: float = 0.0
    scheduling_s: float = 0.0
    served: int = 0
    clients: set[int] = field(default_factory=set)


class JobManager:
    """Jobs and bindings. ``version`` grows whenever a job or round comes, closes or goes, not with each binding.

    All state is soft. A job manager that is started again knows no job and no binding: it answers REQUEST as for an
    unknown job, upon which the job registers anew, and refuses ACCEPT until then. ``first`` is its first number for a
    job; one above those given before keeps late messages from reaching another job. Each method runs to its end
    before another begins, so ACCEPT is one compare-and-increment.
    """

    def __init__(self, silent_s: float = SILENT_S, first: int = 0) -> None:
        self.version = 0
        self._silent_s = silent_s
        self._next = first
        self._jobs: dict[int, _Entry] = {}

    def register(self, job: EdgeJob, now: float) -> int:
        """Enter a job; its number."""
        number = self._next
        self._next += 1
        self._jobs[number] = _Entry(number, job, now, now)
        self.version += 1
        return number

    def request(self, number: int, round: int, demand: int, now: float, attempt: int = 0) -> bool:
        """Open a round for ``demand`` clients; False if there is no such job (any more).

        This ends the round or attempt before: the clients of that one may be bound again.
        """
        entry = self._heard(number, now)
        if entry is None:
            return False
        self._close(entry, now)
        entry.round, entry.attempt, entry.demand = round, attempt, demand
        entry.open, entry.requested_s = demand > 0, now
        entry.clients = set()
        self.version += 1
        return True

    def end_request(self, number: int, now: float) -> int | None:
        """Close the round to more clients; how many it has, None if there is no such job (any more)."""
        entry = self._heard(number, now)
        if entry is None:
            return None
        self._close(entry, now)
        return len(entry.clients)

    def finish(self, number: int, now: float) -> bool:
        """The job is complete and is forgotten; False if there is no such job (any more)."""
        if self._jobs.pop(number, None) is None:
            return False
        self.version += 1
        return True

    def accept(self, number: int, client: int, now: float) -> Binding | None:
        """Bind ``client`` to the open round, or None: no such job, round closed or full, client bound in it before.

        ``client`` is its number in the run, which it keeps when a client manager gives it another id.
        """
        entry = self._jobs.get(number)
        if entry is None or not entry.open or client in entry.clients:
            return None
        entry.clients.add(client)
        entry.served += 1
        if len(entry.clients) >= entry.demand:
            self._close(entry, now)
        return Binding(client, number, entry.round, entry.attempt)

    def bound(self, number: int) -> int | None:
        """How many clients the current round has, None if there is no such job (any more)."""
        entry = self._jobs.get(number)
        return None if entry is None else len(entry.clients)

    def heard(self, number: int, now: float) -> None:
        """The job has sent something at ``now``, so it is alive."""
        self._heard(number, now)

    def prune(self, now: float) -> list[int]:
        """Forget the jobs that have been silent for too long; their numbers."""
        silent = [number for number, entry in self._jobs.items() if now - entry.heard_s >= self._silent_s]
        for number in silent:
            del self._jobs[number]
        self.version += bool(silent)
        return silent

    def jobs(self) -> tuple[OpenJob, ...]:
        """All registered jobs, by number."""
        return tuple(
            OpenJob(
                entry.number,
                entry.job,
                entry.registered_s,
                entry.round,
                entry.demand,
                len(entry.clients),
                entry.served,
                entry.scheduling_s,
                entry.open,
                entry.requested_s,
            )
            for entry in self._jobs.values()
        )

    def _heard(self, number: int, now: float) -> _Entry | None:
        entry = self._jobs.get(number)
        if entry is not None:
            entry.heard_s = now
        return entry

    def _close(self, entry: _Entry, now: float) -> None:
        if entry.open:
            entry.open = False
            entry.scheduling_s += now - entry.requested_s
            self.version += 1
