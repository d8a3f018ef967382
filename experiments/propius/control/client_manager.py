"""A client manager: it knows the clients that checked in with it lately, and offers them jobs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.propius.control.guard import checked_order
from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.control.regions import Cell, cell_of
from experiments.propius.data.attributes import Attributes
from experiments.propius.data.device import Offer

MOST_OFFERS = 20
STORE_S = 1000.0
"""A client that has not checked in for so many real seconds is forgotten."""
TEMPORARY_STORE_S = 30.0
"""A client that waits for a batch has to check in anew after so many real seconds."""


class CheckedIn(NamedTuple):
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

    def check_in(self, client: int | None, attributes: Attributes, now: float) -> CheckedIn:
        """Note the client and offer it jobs; a client without an id, or with one of another manager, gets a new id."""
        if client is None or client % self._managers != self.number:
            client = self._next_id * self._managers + self.number
            self._next_id += 1
        known = self._noted(client, attributes, now)
        if self._policy.batch and self._has_to_wait(known, now):
            return CheckedIn(client, ())
        if self._policy.per_client:
            return CheckedIn(client, self._ordered(known))
        offers = self._offers.get(known.cell)
        if offers is None:
            offers = self._offers[known.cell] = self._ordered(known)
        return CheckedIn(client, offers)

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
