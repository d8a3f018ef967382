"""The sessions of agents: which connections act for which rank, in the present incarnation of its job."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.northbound.pending_replies import Requester
from railyard.errors import ControlError


class Sessions:
    """The connections that act for each rank. Those of an incarnation that is over are *stale* and are not served."""

    def __init__(self) -> None:
        self._sessions: dict[int, dict[Requester, None]] = {}
        self._stale: set[Requester] = set()

    def has(self, requester: Requester, rank: int) -> bool:
        """Whether ``requester`` acts for ``rank`` in this incarnation. May be called from any thread."""
        return requester in self._sessions.get(rank, ())

    def is_stale(self, requester: Requester) -> bool:
        """Whether ``requester`` acted for a rank in an incarnation that is over."""
        return requester in self._stale

    def check_current(self, requester: Requester, rank: int) -> None:
        """Raise ``ControlError`` if ``requester`` is stale."""
        if requester in self._stale:
            raise ControlError(
                f"this connection belongs to an earlier incarnation of the job of rank {rank}; open a new one"
            )

    def add(self, requester: Requester, rank: int) -> None:
        """Record that ``requester`` acts for ``rank``."""
        self._sessions.setdefault(rank, {})[requester] = None

    def close(self, requester: Requester) -> list[int]:
        """Forget ``requester``, whose connection has ended; the ranks that it acted for in this incarnation."""
        self._stale.discard(requester)
        ranks = [rank for rank, requesters in self._sessions.items() if requester in requesters]
        for rank in ranks:
            self._drop(rank, requester)
        return ranks

    def end_incarnation(self, ranks: Iterable[int]) -> None:
        """Make all sessions of ``ranks`` stale."""
        for rank in ranks:
            self._stale.update(self._sessions.pop(rank, ()))

    def forget(self, ranks: Iterable[int]) -> None:
        """Forget the sessions of ``ranks``; their connections may be used again."""
        for rank in ranks:
            self._sessions.pop(rank, None)

    def _drop(self, rank: int, requester: Requester) -> None:
        del self._sessions[rank][requester]
        if not self._sessions[rank]:
            del self._sessions[rank]
