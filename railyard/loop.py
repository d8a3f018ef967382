"""What a process waits for: descriptors (``Poller``), times (``Timers``), and both in one thread (``Loop``).

Models and tests that have a time of their own turn the same ``Timers`` by hand.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import select
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
SPIN_S = 0.0001
"""How long before its time a loop stops sleeping for a timer: a processor that sleeps wakes up so much later."""
_MOST = 64
"""Events taken at once; what is left is reported by the next call."""
_ROUNDED_S = 0.001
"""By how much epoll rounds a time-out up."""
_LEAST_S = 0.0002
"""Shortest delay of ``Timers.later``; looking again sooner costs more than it finds."""
_P = TypeVar("_P", bound="Poller")


class HasFileno(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int:
        """The file descriptor."""


class Poller:
    """The descriptors that a process waits for (epoll(7), level-triggered).

    epoll rounds time-outs up to a millisecond. Where a time has to be kept to the microsecond, ``wait`` waits for the
    epoll descriptor itself in ``select``, which has no room for descriptors above 1023: make the poller early.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Any, int]] = {}
        self._numbers: dict[Any, int] = {}
        """The descriptor of each owner; one that changed since is no longer waited for."""

    def fileno(self) -> int:
        """A descriptor that is readable while ``wait`` has something to report."""
        return self._epoll.fileno()

    def watch(self, owner: HasFileno | int, events: int) -> None:
        """Wait for ``events`` (flags of epoll(7)) of ``owner`` from now on; 0: for none, not even errors."""
        fd = owner if isinstance(owner, int) else owner.fileno()
        if self._numbers.get(owner, fd) != fd:
            self.forget(owner)
        before = self._watched.get(fd)
        if before is not None and before[0] is owner:
            if before[1] == events:
                return
            try:
                if events:
                    self._epoll.modify(fd, events)
                else:
                    self._epoll.unregister(fd)
            except FileNotFoundError:  # it was not watched, or was closed and opened again
                if events:
                    self._epoll.register(fd, events)
        else:
            if before is not None:
                del self._numbers[before[0]]
            if events:
                self._epoll.register(fd, events)
        self._watched[fd] = owner, events
        self._numbers[owner] = fd

    def forget(self, owner: HasFileno | int) -> None:
        """Wait no more for an owner, if it is waited for; its descriptor may be closed, or have another owner."""
        fd = self._numbers.pop(owner, None)
        if fd is not None:
            del self._watched[fd]
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def wait(self, at: float, about: float = math.inf) -> list[tuple[Any, int]]:
        """Wait for events; returns them with their owners, and nothing if the time is over.

        The time (monotonic seconds) is ``at``, to the microsecond, or ``about``, up to a millisecond later.
        """
        if at <= about and at < math.inf:
            early = at - time.monotonic() - 2 * _ROUNDED_S
            ready = self._poll(early) if early > 0 else []
            if ready:  # as a rule: one call of the kernel instead of two
                return ready
            if not select.select([self._epoll], [], [], max(0.0, at - time.monotonic()))[0]:
                return []
            timeout = 0.0
        else:
            timeout = max(0.0, about - time.monotonic()) if about < math.inf else -1.0
        return self._poll(timeout)

    def ready(self) -> list[tuple[Any, int]]:
        """The events that there are now, with their owners."""
        return self._poll(0.0)

    def _poll(self, timeout: float) -> list[tuple[Any, int]]:
        return [(self._watched[fd][0], events) for fd, events in self._epoll.poll(timeout, _MOST)]

    def close(self) -> None:
        self._epoll.close()

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Timers:
    """Calls by time, those of the same time in the order in which they were entered. The owner keeps ``now``."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._tie = itertools.count()

    @property
    def next_time(self) -> float:
        """When the next call is due; infinity if there is none."""
        return self._calls[0][0] if self._calls else math.inf

    def soon(self, call: Callable[[], object]) -> None:
        self.at(self.now, call)

    def at(self, moment: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._calls, (moment, next(self._tie), call))

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self.now + max(seconds, _LEAST_S), call)

    def run_due(self) -> None:
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()

    def step(self) -> None:
        """Move to the time of the next call, unless it has passed, and make that call alone."""
        moment, _, call = heapq.heappop(self._calls)
        self.now = max(self.now, moment)
        call()


class Loop:
    """Calls functions for descriptors that are ready, and at given times, in one thread."""

    def __init__(self) -> None:
        self._poller = Poller()
        self._timers = Timers()
        self._calls: dict[Any, Callable[[int], object]] = {}
        self.ended = False

    @property
    def watched(self) -> tuple[Any, ...]:
        """The owners of the descriptors that the loop waits for."""
        return tuple(self._calls)

    def at(self, moment: float, call: Callable[[], object]) -> None:
        """Call ``call`` at time ``moment`` (monotonic seconds)."""
        self._timers.at(moment, call)

    def watch(self, owner: HasFileno, ready: Callable[[int], object], events: int = READ) -> None:
        """Call ``ready`` with what has happened whenever one of ``events`` has, or an error, from now on."""
        self._poller.watch(owner, events)
        self._calls[owner] = ready

    def forget(self, owner: HasFileno) -> None:
        """Wait no more for an owner, if it is waited for. Call it before the descriptor is closed."""
        self._calls.pop(owner, None)
        self._poller.forget(owner)

    def run(self) -> None:
        """Serve until ``ended``."""
        while not self.ended:
            self.turn()

    def turn(self, until: float = math.inf) -> None:
        """Wait for a descriptor, a timer or the time ``until`` (monotonic seconds), and serve what is there."""
        for owner, events in self._poller.wait(min(self._timers.next_time - SPIN_S, until)):
            ready = self._calls.get(owner)
            if ready is not None:  # not forgotten in this turn
                ready(events)
        self._timers.now = time.monotonic()
        self._timers.run_due()

    def close(self) -> None:
        self._poller.close()
