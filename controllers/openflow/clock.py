"""Timers that are precise to a fraction of a millisecond, under green and native threads alike."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable

SPIN_S = 0.0018
"""How long before its time a timer stops sleeping and only yields: eventlet's timers round up to a millisecond."""


class Alarm:
    """Calls functions at given times (monotonic seconds), in one thread, in order of time; tests pass in a fake one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def start(self) -> None:
        """Start the daemon thread that makes the calls."""
        threading.Thread(target=self._run, name="alarm", daemon=True).start()

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Call ``call`` at time ``moment``, or at once if that is past."""
        with self._changed:
            heapq.heappush(self._queue, (moment, next(self._order), call))
            if self._queue[0][2] is call:
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
                while not self._queue or self._queue[0][0] - time.monotonic() > SPIN_S:
                    left = self._queue[0][0] - time.monotonic() - SPIN_S if self._queue else None
                    self._changed.wait(left)
                if self._queue[0][0] <= time.monotonic():
                    return heapq.heappop(self._queue)[2]
            time.sleep(0)
