"""Heartbeats of ranks, and the detection of silent ranks. Pure.

Times are seconds of a monotonic clock. A rank is watched from its first heartbeat of an incarnation on, because it may
still be starting before that; it is silent once no heartbeat has come for its time-out.
"""

from __future__ import annotations

from collections.abc import Iterable


class Liveness:
    """The last heartbeat and the time-out of every watched rank.

    ``heard`` may be called from any thread while other methods run: it replaces one value and nothing else.
    """

    def __init__(self) -> None:
        self._heard: dict[int, float] = {}
        self._timeout_s: dict[int, float] = {}

    def watch(self, rank: int, timeout_s: float, now: float) -> None:
        """Watch ``rank`` from ``now`` on; it is silent when no heartbeat comes for ``timeout_s``."""
        self._heard[rank] = now
        self._timeout_s[rank] = timeout_s

    def heard(self, rank: int, now: float) -> bool:
        """Take a heartbeat of ``rank``; False, and nothing is kept, if the rank is not watched."""
        if rank not in self._timeout_s:
            return False
        self._heard[rank] = now
        return True

    def forget(self, ranks: Iterable[int]) -> None:
        """Stop watching ``ranks`` and forget their heartbeats."""
        for rank in ranks:
            self._timeout_s.pop(rank, None)
            self._heard.pop(rank, None)

    def last(self, rank: int) -> float | None:
        """Time of the last heartbeat of ``rank``; None if the rank is not watched."""
        return self._heard.get(rank) if rank in self._timeout_s else None

    def silent(self, now: float) -> list[tuple[int, float]]:
        """(rank, time of its last heartbeat) of every silent rank, the longest silent first."""
        found = [(self._heard[r], r) for r, timeout_s in self._timeout_s.items() if now >= self._heard[r] + timeout_s]
        return [(rank, heard) for heard, rank in sorted(found)]

    def next_check(self) -> float | None:
        """The earliest time at which a watched rank can be silent; None if no rank is watched."""
        return min((self._heard[rank] + timeout_s for rank, timeout_s in self._timeout_s.items()), default=None)
