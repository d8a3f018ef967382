"""Which connections speak for which rank, in which life of its job."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.northbound.answers import Requester
from railyard.errors import ControlError


class Sessions:
    """Which connections speak for which rank. Those of a life that is over are *old*: they mean nothing any more."""

    def __init__(self) -> None:
        self._of: dict[int, dict[Requester, None]] = {}
        self._old: set[Requester] = set()

    def speaks(self, requester: Requester, rank: int) -> bool:
        """Whether ``requester`` has spoken for ``rank`` in this life. May be called from any thread."""
        return requester in self._of.get(rank, ())

    def is_old(self, requester: Requester) -> bool:
        """Whether it spoke for a rank in a life that is over."""
        return requester in self._old

    def check(self, requester: Requester, rank: int) -> None:
        """``ControlError`` if ``requester`` is old."""
        if requester in self._old:
            raise ControlError(f"this connection spoke in a life of rank {rank}'s job that is over; open a new one")

    def speak(self, requester: Requester, rank: int) -> None:
        """``requester`` speaks for ``rank``."""
        self._of.setdefault(rank, {})[requester] = None

    def close(self, requester: Requester) -> list[int]:
        """It is gone: the ranks that it spoke for in this life."""
        self._old.discard(requester)
        ranks = [rank for rank, sessions in self._of.items() if requester in sessions]
        for rank in ranks:
            self._drop(rank, requester)
        return ranks

    def end_incarnation(self, ranks: Iterable[int]) -> None:
        """All who speak for ``ranks`` are old from now on."""
        for rank in ranks:
            self._old.update(self._of.pop(rank, ()))

    def forget(self, ranks: Iterable[int]) -> None:
        """Nobody speaks for ``ranks`` any more; their connections may be used again."""
        for rank in ranks:
            self._of.pop(rank, None)

    def _drop(self, rank: int, requester: Requester) -> None:
        del self._of[rank][requester]
        if not self._of[rank]:
            del self._of[rank]
