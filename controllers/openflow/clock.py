"""Timers that are precise to a fraction of a millisecond, under green and native threads alike."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable

_LONGEST_WAIT_S = 3600.0
"""A longer wait is made of several: that of threads has a bound."""


class Alarm:
    """Calls functions at given times (monotonic seconds), in one thread, in order of time; tests pass in a fake one.

    ``spin_s``: how long before its time a timer stops sleeping and only yields.
    """

    def __init__(self, spin_s: float = 0.0003) -> None:
        self._spin_s = spin_s
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Callable[[], None], float]] = []

    def start(self) -> None:
        threading.Thread(target=self._run, name="alarm", daemon=True).start()

    def at(self, moment: float, call: Callable[[], None], *, rough: bool = False) -> None:
        """Call ``call`` at time ``moment``, or at once if that is past; ``rough``: a millisecond later will do.

        ``ValueError`` for a moment that is no number (NaN), which has no place in the order.
        """
        if moment != moment:
            raise ValueError("a timer needs a time, not NaN")
        with self._changed:
            entry = moment, next(self._order), call, 0.0 if rough else self._spin_s
            heapq.heappush(self._queue, entry)
            if self._queue[0] is entry:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            call = self._next()
            try:
                call()
            except Exception:
                # one call that fails must not stop the timers of all others
                traceback.print_exc()

    def _next(self) -> Callable[[], None]:
        """Wait for the earliest time in the queue, which may change meanwhile; its call, removed from the queue."""
        while True:
            with self._changed:
                if not self._queue:
                    self._changed.wait()
                    continue
                moment, _, call, spin_s = self._queue[0]
                left = moment - time.monotonic()
                if left <= 0:
                    heapq.heappop(self._queue)
                    return call
                if left > spin_s:
                    self._changed.wait(min(left - spin_s, _LONGEST_WAIT_S))
                    continue
            time.sleep(0)
