"""Heartbeats of ranks, and the detection of ranks that are silent or hang. Pure.

Times are seconds of a monotonic clock. A rank is watched from its first heartbeat of an incarnation on, because it may
still be starting before that; it is silent once no heartbeat has come for its time-out. A heartbeat also says how often
the agent's loop has answered the thread that sends heartbeats: a rank whose heartbeats come and whose loop does not
answer any more hangs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

STALL_S = 0.7
"""How much longer than heartbeats may be missing a loop may take for one piece of its work on a busy machine."""


class Silence(NamedTuple):
    """A rank that is silent, or (``hangs``) whose loop does not answer, ``since`` the last sign of life."""

    rank: int
    since: float
    hangs: bool
    heartbeat_s: float
    misses: int

    def cause(self, now: float) -> str:
        if self.hangs:
            return f"its agent hangs: heartbeats come, but its loop has stood still for {now - self.since:.2f} s"
        return f"its agent missed {self.misses} heartbeats of {self.heartbeat_s:g} s"


def stall_limit_s(heartbeat_s: float, misses: int) -> float:
    """Seconds without an answer of the loop after which a rank hangs.

    The answer to a heartbeat comes with the next one, so a loop has stood still for up to one interval more.
    """
    return heartbeat_s * max(1, misses - 1) + STALL_S


class Liveness:
    """The last heartbeat, the last answer of the loop, and the time-outs of every watched rank.

    ``heard`` may be called from any thread while other methods run: it replaces values and nothing else.
    """

    def __init__(self) -> None:
        self._heard: dict[int, float] = {}
        self._answered: dict[int, tuple[int, float]] = {}
        """The number of answers of each rank that tells it, and when it was told first."""
        self._limits: dict[int, tuple[float, int]] = {}
        """Of each watched rank: the interval of its heartbeats, and how many may be missing."""

    @property
    def watched(self) -> int:
        return len(self._limits)

    def watch(self, rank: int, heartbeat_s: float, misses: int, now: float, answers: int | None = None) -> None:
        """Watch ``rank`` from its heartbeat at ``now`` on; it is silent when ``misses`` heartbeats are missing."""
        self._answered.pop(rank, None)
        self._limits[rank] = heartbeat_s, misses
        self.heard(rank, now, answers)

    def heard(self, rank: int, now: float, answers: int | None = None) -> bool:
        """Take a heartbeat of ``rank``; False, and nothing is kept, if the rank is not watched.

        ``answers``: how often its loop has answered so far; None: the sender does not know.
        """
        if rank not in self._limits:
            return False
        self._heard[rank] = now
        if answers is not None and self._answered.get(rank, (None, 0.0))[0] != answers:
            self._answered[rank] = answers, now
        return True

    def forget(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._limits.pop(rank, None)
            self._heard.pop(rank, None)
            self._answered.pop(rank, None)

    def last(self, rank: int) -> float | None:
        """Time of the last heartbeat of ``rank``; None if the rank is not watched."""
        return self._heard.get(rank) if rank in self._limits else None

    def overdue(self, ranks: Iterable[int], now: float) -> list[int]:
        """The ranks that may have died with one that is silent: ``misses`` - 1 heartbeats (one or more) are missing.

        The last heartbeats of ranks that die together are up to one interval apart, so when the first is silent the
        others are between ``misses`` - 1 and ``misses`` intervals from theirs.
        """
        limits = [(rank, *self._limits[rank]) for rank in ranks if rank in self._limits]
        return [r for r, every_s, misses in limits if misses > 1 and now >= self._heard[r] + every_s * (misses - 1)]

    def newest(self) -> float:
        """Time of the newest heartbeat of all watched ranks; minus infinity if none is watched."""
        return max((self._heard[rank] for rank in self._limits), default=-math.inf)

    def silent(self, now: float) -> list[Silence]:
        """Every rank that is silent or hangs, the one that has been silent for longest first.

        A rank hangs only if a heartbeat has come after the last answer: otherwise it may be silent, for which it has
        more time where heartbeats are rare.
        """
        silences = []
        for rank, (every_s, misses) in self._limits.items():
            heard, answered = self._heard[rank], self._answered.get(rank, (0, now))[1]
            if now >= heard + every_s * misses:
                silences.append(Silence(rank, heard, False, every_s, misses))
            elif heard > answered and now >= answered + stall_limit_s(every_s, misses):
                silences.append(Silence(rank, answered, True, every_s, misses))
        return sorted(silences, key=lambda silence: (silence.since, silence.rank))

    def next_check(self, now: float = -math.inf) -> float | None:
        """The earliest time, of those after ``now``, at which a watched rank can be silent or hang; it may be past.

        None if no rank is watched.
        """
        times = []
        for rank, (every_s, misses) in self._limits.items():
            heard = self._heard[rank]
            answered = self._answered.get(rank, (0, math.inf))[1]
            hangs_at = answered + stall_limit_s(every_s, misses)
            times.append(heard + every_s * misses)
            if heard > answered or hangs_at > now:
                times.append(hangs_at)
        return min(times, default=None)
