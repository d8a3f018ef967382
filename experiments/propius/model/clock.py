"""Virtual time: callbacks in order of the time at which they are due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import Any


class Clock:
    """A heap of callbacks; those of the same time run in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, time: float, callback: Callable[..., None], *args: Any) -> None:
        """Call ``callback`` at virtual second ``time``, or now if that has passed; never if ``time`` is infinite."""
        if time < inf:
            self._number += 1
            heapq.heappush(self._due, (max(time, self.now), self._number, callback, args))

    def later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        """Call ``callback`` in so many virtual seconds."""
        self.at(self.now + seconds, callback, *args)

    @property
    def next_s(self) -> float:
        """When the next callback is due; infinity if there is none."""
        return self._due[0][0] if self._due else inf

    def step(self) -> None:
        """Move on to the next callback and call it."""
        self.now, _, callback, args = heapq.heappop(self._due)
        callback(*args)
