"""Clocks that tests turn by hand, in place of the monotonic clock and of ``controllers.openflow.clock.Alarm``."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable

from controllers.openflow.clock import Alarm
from railyard.loop import Timers

LONGEST_WAIT_S = 60.0
"""How much fake time ``until`` lets pass before it gives up."""


LONGEST_REAL_WAIT_S = 10.0
"""How long a test waits for a thread before it fails."""


def play(timers: Timers, until: float) -> None:
    """Call what is due up to time ``until``, which it is then."""
    while timers.next_time <= until:
        timers.step()
    timers.now = until


class FakeClock(Timers, Alarm):
    """Time stands still but for ``advance`` and ``until``, which call what is due in order of time.

    Called as a function it tells the time, in seconds.
    """

    def __init__(self, now: float = 1000.0) -> None:
        super().__init__()
        self.now = now

    def __call__(self) -> float:
        return self.now

    def start(self) -> None:
        """Nothing runs by itself."""

    def at(self, moment: float, call: Callable[[], object], *, rough: bool = False) -> None:
        """Call ``call`` when time comes to ``moment``."""
        super().at(moment, call)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call ``call`` in ``seconds``."""
        self.at(self.now + seconds, call)

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        play(self, self.now + seconds)

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until ``condition`` holds; a test that waits in vain fails at once."""
        end = self.now + LONGEST_WAIT_S
        while not condition():
            assert self.next_time <= end, "it did not happen, and nothing that is due can bring it about"
            self.step()


class RunningClock(FakeClock):
    """A fake clock for tests whose other end is a real socket: a thread calls what is due, without waiting for it."""

    def __init__(self, now: float = 1000.0) -> None:
        super().__init__(now)
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="fake clock", daemon=True)

    def start(self) -> None:
        """Begin to call what is due."""
        self._thread.start()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds, of which the thread sees to everything that is due."""
        end = time.monotonic() + LONGEST_REAL_WAIT_S
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.001)

    def stop(self) -> None:
        """Call nothing more; returns when the last call is over."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(10)

    def at(self, moment: float, call: Callable[[], object], *, rough: bool = False) -> None:
        """Call ``call`` as soon as everything that is due earlier has been called."""
        with self._changed:
            super().at(moment, call)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._stopped)
                if self._stopped:
                    return
                moment, _, call = heapq.heappop(self._calls)
                self.now = max(self.now, moment)
            call()
