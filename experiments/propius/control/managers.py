"""Load balancer, client managers and job manager: who is known, and who serves which job."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from experiments.propius.control.policies import Cell, EdgePolicy, OpenJob, cell_of, checked_order
from experiments.propius.data.clients import Binding, Offer
from experiments.propius.data.jobs import Attributes, EdgeJob


class LoadBalancer:
    """Round robin over ``managers`` client managers; a client that has an id stays with the manager the id names."""

    def __init__(self, managers: int) -> None:
        self.managers = managers
        self._next = 0

    def manager_of(self, client: int | None) -> int:
        """The number of the manager for a client, whose id is None before its first check-in."""
        if client is not None:
            return client % self.managers
        chosen = self._next
        self._next = (chosen + 1) % self.managers
        return chosen


MOST_OFFERS = 20
STORE_S = 1000.0
"""A client that has not checked in for so many real seconds is forgotten."""
TEMPORARY_STORE_S = 30.0
"""A client that waits for a batch has to check in anew after so many real seconds."""


class CheckInAnswer(NamedTuple):
    """The answer to a check-in: the id of the client from now on, and at most 20 offers, best first."""

    client: int
    offers: tuple[Offer, ...]


@dataclass(slots=True)
class _Known:
    heard_s: float
    attributes: Attributes
    cell: Cell
    groups: int
    """Which state of ``ClientManager._bounds`` the cell refers to."""
    waits_since_s: float


class ClientManager:
    """One of ``managers`` client managers; ``number`` counts from 0. Ids of clients carry it: id % managers.

    All state is soft: the clients (``store_s``), who waits for a batch (``temporary_s``), jobs and plan (the last
    ``update``). A manager that is started again has none of it: it makes no offers until the next ``update``, and
    plans see its clients again as they check in. Bindings are the job manager's, so none is lost. ``first_id`` then
    has to be above the ids given before (divided by ``managers``), since a client keeps its id. ``refresh_s`` is the
    time between batches, by default the policy's. Times are seconds of the run: scale them as the run does.
    """

    def __init__(
        self,
        number: int,
        managers: int,
        policy: EdgePolicy,
        *,
        store_s: float = STORE_S,
        temporary_s: float = TEMPORARY_STORE_S,
        refresh_s: float | None = None,
        first_id: int = 0,
    ) -> None:
        self.number = number
        self._managers = managers
        self._policy = policy
        self._store_s = store_s
        self._temporary_s = temporary_s
        self._refresh_s = policy.refresh_s if refresh_s is None else refresh_s
        self._next_id = first_id
        self._store: OrderedDict[int, _Known] = OrderedDict()
        self._all_known: tuple[Attributes, ...] | None = ()
        self._jobs: Sequence[OpenJob] = ()
        self._plan: Any = None
        self._bounds: list[Attributes] = []
        self._groups = 0
        self._eligible: dict[Cell, list[OpenJob]] = {}
        self._offers: dict[Cell, tuple[Offer, ...]] = {}

    def check_in(self, client: int | None, attributes: Attributes, now: float) -> CheckInAnswer:
        """Note the client and offer it jobs; a client without an id, or with one of another manager, gets a new id."""
        if client is None or client % self._managers != self.number:
            client = self._next_id * self._managers + self.number
            self._next_id += 1
        known = self._noted(client, attributes, now)
        if self._policy.batch and self._has_to_wait(known, now):
            return CheckInAnswer(client, ())
        if self._policy.per_client:
            return CheckInAnswer(client, self._ordered(known))
        offers = self._offers.get(known.cell)
        if offers is None:
            offers = self._offers[known.cell] = self._ordered(known)
        return CheckInAnswer(client, offers)

    def update(self, jobs: Sequence[OpenJob], plan: Any, now: float) -> None:
        """The job manager's jobs and the scheduler's plan, as of ``now``.

        ``jobs`` may be all registered jobs or the open ones only; a blind policy needs all.
        """
        self._jobs, self._plan = jobs, plan
        bounds = sorted({job.job.bounds for job in jobs})
        if bounds != self._bounds:
            self._bounds = bounds
            self._groups += 1
        self._eligible.clear()
        self._offers.clear()

    def known(self, now: float) -> tuple[Attributes, ...]:
        """The attributes of the clients heard within the store's time, for the scheduler.

        The same object as before if no client has come, gone or changed.
        """
        self._expire(now)
        if self._all_known is None:
            self._all_known = tuple(known.attributes for known in self._store.values())
        return self._all_known

    def _noted(self, client: int, attributes: Attributes, now: float) -> _Known:
        self._expire(now)
        known = self._store.get(client)
        if known is None or known.attributes != attributes:
            known = self._store[client] = _Known(now, attributes, (), -1, float("-inf"))
            self._all_known = None
        known.heard_s = now
        self._store.move_to_end(client)
        if known.groups != self._groups:
            known.cell, known.groups = cell_of(attributes, self._bounds), self._groups
        return known

    def _expire(self, now: float) -> None:
        while self._store and next(iter(self._store.values())).heard_s < now - self._store_s:
            self._store.popitem(last=False)
            self._all_known = None

    def _has_to_wait(self, known: _Known, now: float) -> bool:
        if now - known.waits_since_s >= self._temporary_s:
            known.waits_since_s = now
        return known.waits_since_s // self._refresh_s == now // self._refresh_s

    def _ordered(self, known: _Known) -> tuple[Offer, ...]:
        eligible = self._eligible.get(known.cell)
        if eligible is None:
            meets = {self._bounds[group] for group in known.cell}
            eligible = [job for job in self._jobs if job.open and job.job.bounds in meets]
            self._eligible[known.cell] = eligible
        ordered = checked_order(self._policy, known.attributes, eligible, self._jobs, self._plan)
        return tuple(Offer(job.number, job.job.private_bound, job.job.name) for job in ordered[:MOST_OFFERS])


SILENT_S = 1800.0
"""A job that has sent nothing for so many real seconds is forgotten."""


@dataclass
class _Entry:
    """``job`` is as policies see it, but for the clients of the current round, which are in ``clients``."""

    job: OpenJob
    heard_s: float
    attempt: int = 0
    clients: set[int] = field(default_factory=set)
    served: int = 0


class JobManager:
    """Jobs and bindings. ``version`` grows whenever a job or round comes, closes or goes, not with each binding.

    All state is soft. A job manager that is started again knows no job and no binding: it answers REQUEST as for an
    unknown job, upon which the job registers anew, and refuses ACCEPT until then. Each method runs to its end before
    another begins, so ACCEPT is one compare-and-increment.
    """

    def __init__(self, silent_s: float = SILENT_S) -> None:
        self.version = 0
        self._silent_s = silent_s
        self._next = 0
        self._jobs: dict[int, _Entry] = {}

    def register(self, job: EdgeJob, now: float) -> int:
        number = self._next
        self._next += 1
        self._jobs[number] = _Entry(OpenJob(number, job, now, 0, 0, 0, 0, open=False), now)
        self.version += 1
        return number

    def request(self, number: int, round: int, demand: int, now: float, attempt: int = 0) -> bool:
        """Open a round for ``demand`` clients; False if there is no such job (any more).

        This ends the round or attempt before: the clients of that one may be bound again.
        """
        entry = self.heard(number, now)
        if entry is None:
            return False
        self._close(entry, now)
        entry.job = replace(entry.job, round=round, demand=demand, open=demand > 0, requested_s=now)
        entry.attempt, entry.clients = attempt, set()
        self.version += 1
        return True

    def end_request(self, number: int, now: float) -> int | None:
        """Close the round to more clients; how many it has, None if there is no such job (any more)."""
        entry = self.heard(number, now)
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
        if entry is None or not entry.job.open or client in entry.clients:
            return None
        entry.clients.add(client)
        entry.served += 1
        if len(entry.clients) >= entry.job.demand:
            self._close(entry, now)
        return Binding(client, number, entry.job.round, entry.attempt)

    def bound(self, number: int) -> int | None:
        """How many clients the current round has, None if there is no such job (any more)."""
        entry = self._jobs.get(number)
        return None if entry is None else len(entry.clients)

    def prune(self, now: float) -> None:
        """Forget the jobs that have been silent for too long."""
        silent = [number for number, entry in self._jobs.items() if now - entry.heard_s >= self._silent_s]
        for number in silent:
            del self._jobs[number]
        self.version += bool(silent)

    def jobs(self) -> tuple[OpenJob, ...]:
        return tuple(replace(entry.job, bound=len(entry.clients), served=entry.served) for entry in self._jobs.values())

    def heard(self, number: int, now: float) -> _Entry | None:
        """Note that a job has spoken; None if there is no such job (any more)."""
        entry = self._jobs.get(number)
        if entry is not None:
            entry.heard_s = now
        return entry

    def _close(self, entry: _Entry, now: float) -> None:
        if entry.job.open:
            open_s = now - entry.job.requested_s
            entry.job = replace(entry.job, open=False, scheduling_s=entry.job.scheduling_s + open_s)
            self.version += 1
