"""Leases of servers to jobs that come and go: which job is next, and which servers it gets. No clock, no I/O.

A job holds whole servers, and with them the ports of their GPUs on all rails, from its start to its end; no port ever
belongs to two jobs. Jobs that find too few free servers wait in the order of their arrival. In order ``backfill`` a
later one that fits may go first, but a waiting job is overtaken ``MOST_OVERTAKEN`` times at most; from then on nothing
that came after it starts. So no job starves as long as jobs end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from railyard.errors import ConfigError
from railyard.plugin import load_class

Order = Literal["fifo", "backfill"]
MOST_OVERTAKEN = 8


class JobPlacement:
    """Which of the free servers a job gets; a user's own subclasses it."""

    def place(self, count: int, free: Sequence[int]) -> Sequence[int]:
        """``count`` of the servers ``free`` (at least as many, ascending), by the job's own numbers of its servers."""
        raise NotImplementedError


class Packed(JobPlacement):
    """Neighbours, if as many are free; else the first free servers."""

    def place(self, count: int, free: Sequence[int]) -> Sequence[int]:
        runs = (free[at : at + count] for at in range(len(free) - count + 1))
        return next((run for run in runs if run[-1] - run[0] == count - 1), free[:count])


class Spread(JobPlacement):
    """As far from each other as the free servers allow."""

    def place(self, count: int, free: Sequence[int]) -> Sequence[int]:
        return [free[at * len(free) // count] for at in range(count)]


class Given(JobPlacement):
    """The servers that were named; the job waits until all of them are free."""

    def __init__(self, servers: Sequence[int]) -> None:
        self.servers = tuple(servers)

    def place(self, count: int, free: Sequence[int]) -> Sequence[int]:
        return self.servers if set(self.servers) <= set(free) else ()


GROUP = "railyard.job_placements"
PLACEMENTS = {"packed": f"{__name__}:Packed", "spread": f"{__name__}:Spread"}


def load_placement(name: str) -> JobPlacement:
    """The placement ``packed``, ``spread``, ``0+1+4`` (these servers) or ``FILE.py:Class``; ``ConfigError`` if none."""
    words = name.split("+")
    if all(word.isdecimal() and len(word) < 6 for word in words):
        servers = [int(word) for word in words]
        if len(set(servers)) != len(servers):
            raise ConfigError(f"names a server twice in {name}; each of a job's servers is another one", key="jobs")
        return Given(servers)
    found = load_class(PLACEMENTS.get(name, name), JobPlacement, GROUP, "a placement", "jobs", PLACEMENTS)
    return found()


@dataclass(frozen=True)
class Waiting:
    """A job that waits for ``count`` servers, and how many later ones have started before it."""

    job: str
    count: int
    placement: JobPlacement
    overtaken: int = 0


class ServerLeases:
    """The leases of the servers 0 to ``servers`` - 1."""

    def __init__(self, servers: int, order: Order = "fifo") -> None:
        self.order = order
        self.free = set(range(servers))
        self.held: dict[str, tuple[int, ...]] = {}
        self.waiting: list[Waiting] = []

    def arrive(self, job: str, count: int, placement: JobPlacement) -> None:
        """Queue ``job``, behind all that came before."""
        self.waiting.append(Waiting(job, count, placement))

    def start(self) -> list[tuple[str, tuple[int, ...]]]:
        """Lease servers to the jobs that may start now: each with its servers, in order.

        ``ConfigError`` for a placement that chooses other servers than as many free ones as the job needs.
        """
        started: list[tuple[str, tuple[int, ...]]] = []
        passed: list[Waiting] = []
        while self.waiting:
            first = self.waiting.pop(0)
            servers = self._place(first)
            if servers:
                started.append((first.job, servers))
                self.held[first.job] = servers
                self.free.difference_update(servers)
                passed = [replace(each, overtaken=each.overtaken + 1) for each in passed]
            else:
                passed.append(first)
            if passed and (self.order == "fifo" or any(each.overtaken >= MOST_OVERTAKEN for each in passed)):
                break
        self.waiting = passed + self.waiting
        return started

    def end(self, job: str) -> None:
        """Take back the servers of ``job``, if it still has any."""
        self.free.update(self.held.pop(job, ()))

    def lose(self, servers: Iterable[int]) -> None:
        """Lease ``servers``, which are dead, to no further job."""
        self.free.difference_update(servers)

    def _place(self, waiting: Waiting) -> tuple[int, ...]:
        """The servers of a job; none if too few are free, or not those that it wants."""
        if len(self.free) < waiting.count:
            return ()
        chosen = tuple(waiting.placement.place(waiting.count, sorted(self.free)))
        if chosen and (len(set(chosen)) != waiting.count or not self.free.issuperset(chosen)):
            raise ConfigError(
                f"the placement of job {waiting.job} chose servers {', '.join(map(str, chosen))}; it must choose "
                f"{waiting.count} different ones of the free servers {', '.join(map(str, sorted(self.free)))}",
                key="jobs",
            )
        return chosen
