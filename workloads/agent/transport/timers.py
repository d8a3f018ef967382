"""Timers of a rank: a heap of calls by time, and watches for bytes of a connection to leave or be acknowledged."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from workloads.agent.transport.connection import Connection

_LEAST_S = 0.0002
"""Shortest delay; looking again sooner costs more than it finds."""


@dataclass(eq=False)
class _Watch:
    """Calls ``then`` when the first ``mark`` bytes of ``connection`` have left, or are ``acknowledged``."""

    connection: Connection
    mark: int
    acknowledged: bool
    then: Callable[[], None]
    over: bool = False


class Timers:
    """Calls by time (monotonic seconds). The owner keeps ``now`` up to date."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = itertools.count()
        self._watches: dict[Connection, list[_Watch]] = defaultdict(list)
        """Watches that wait for an acknowledgement."""

    @property
    def next_time(self) -> float:
        """Time of the next call (infinity if there is none)."""
        return self._calls[0][0] if self._calls else float("inf")

    def soon(self, what: Callable[[], None]) -> None:
        """Call ``what`` in the next round of the loop."""
        self.at(self.now, what)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Call ``what`` at the monotonic time ``moment``."""
        heapq.heappush(self._calls, (moment, next(self._tie), what))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call ``what`` after a delay of ``seconds``."""
        self.at(self.now + max(seconds, _LEAST_S), what)

    def watch(self, connection: Connection, mark: int, acknowledged: bool, then: Callable[[], None]) -> None:
        """Call ``then`` when the first ``mark`` bytes of a connection have left, or are ``acknowledged``."""
        watch = _Watch(connection, mark, acknowledged, then)
        if acknowledged:
            self._watches[connection].append(watch)
        self._look(watch)

    def acknowledged(self, connection: Connection) -> None:
        """Check the watches of a connection at once: the kernel has reported an acknowledgement."""
        for watch in list(self._watches[connection]):
            if not watch.over and connection.left_s(watch.mark, acknowledged=True) == 0:
                self._end(watch)

    def _look(self, watch: _Watch) -> None:
        if watch.over:
            return
        left = watch.connection.left_s(watch.mark, acknowledged=watch.acknowledged)
        if left > 0:
            self.later(left, lambda: self._look(watch))
        else:
            self._end(watch)

    def _end(self, watch: _Watch) -> None:
        watch.over = True
        if watch.acknowledged:
            self._watches[watch.connection].remove(watch)
        watch.then()

    def run_due(self) -> None:
        """Make the calls that are due."""
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()
