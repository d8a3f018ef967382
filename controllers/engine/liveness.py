"""Who still says that it lives: heartbeats, and from when on silence means death. Pure.

Times are seconds of any clock that does not go back. A rank is watched from its first heartbeat of a life on, because
before that it may still be starting; it is silent once it has not been heard for its patience.
"""

from __future__ import annotations

from collections.abc import Iterable


class Liveness:
    """The heartbeats of all watched ranks.

    ``heard`` may be called beside all other methods, from any thread: it replaces one value and nothing else.
    """

    def __init__(self) -> None:
        self._heard: dict[int, float] = {}
        self._patience_s: dict[int, float] = {}

    def watch(self, rank: int, patience_s: float, now: float) -> None:
        """``rank`` lives ``now``; it is silent when nothing more is heard for ``patience_s``."""
        self._heard[rank] = now
        self._patience_s[rank] = patience_s

    def heard(self, rank: int, now: float) -> bool:
        """``rank`` lives; False, and nothing is kept, if it is not watched."""
        if rank not in self._patience_s:
            return False
        self._heard[rank] = now
        return True

    def forget(self, ranks: Iterable[int]) -> None:
        """Nobody watches over ``ranks`` any more."""
        for rank in ranks:
            self._patience_s.pop(rank, None)
            self._heard.pop(rank, None)

    def last(self, rank: int) -> float | None:
        """When ``rank`` was last heard; None if it is not watched."""
        return self._heard.get(rank) if rank in self._patience_s else None

    def silent(self, now: float) -> list[tuple[int, float]]:
        """(rank, when it was last heard) of all that are silent, the longest silent first."""
        found = [
            (self._heard[r], r) for r, patience_s in self._patience_s.items() if now >= self._heard[r] + patience_s
        ]
        return [(rank, heard) for heard, rank in sorted(found)]

    def next_check(self) -> float | None:
        """The first moment at which somebody can be silent; None if nobody is watched."""
        return min((self._heard[rank] + patience_s for rank, patience_s in self._patience_s.items()), default=None)
