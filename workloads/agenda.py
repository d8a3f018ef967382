"""What a rank has to look at again later: a heap of times, and watches over what a connection still has to send."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from workloads.connection import Connection

_LEAST_S = 0.0002
"""Looking again sooner costs more than it finds."""


class Agenda:
    """Calls by time (monotonic seconds). ``now`` is what the owner last said it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = itertools.count()

    @property
    def next_time(self) -> float:
        """When the next call is due (infinity if there is none)."""
        return self._calls[0][0] if self._calls else float("inf")

    def soon(self, what: Callable[[], None]) -> None:
        """Call ``what`` when the loop comes round."""
        heapq.heappush(self._calls, (self.now, next(self._tie), what))

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Call ``what`` at ``moment``."""
        heapq.heappush(self._calls, (moment, next(self._tie), what))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call ``what`` in ``seconds``."""
        heapq.heappush(self._calls, (self.now + max(seconds, _LEAST_S), next(self._tie), what))

    def watch(self, connection: Connection, mark: int, acknowledged: bool, then: Callable[[], None]) -> None:
        """Call ``then`` when the first ``mark`` bytes of a connection have left, or are ``acknowledged``."""
        left = connection.left_s(mark, acknowledged=acknowledged)
        if left > 0:
            self.later(left, lambda: self.watch(connection, mark, acknowledged, then))
        else:
            then()

    def run_due(self) -> None:
        """Make the calls that are due."""
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()
