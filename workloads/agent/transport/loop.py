"""What the loop of an agent waits for: sockets (``Poller``), times and acknowledgements (``Timers``)."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import select
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from workloads.agent.transport.connection import PeerConnection

_MOST = 64
"""Events taken at once; what is left is reported by the next call."""


class HasFileno(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int:
        """The file descriptor."""


class Poller:
    """The descriptors that an agent waits for (epoll(7), level-triggered).

    epoll rounds time-outs up to a millisecond. Where a time has to be kept to the microsecond, ``wait`` waits for the
    epoll descriptor itself in ``select``.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Any, int]] = {}
        self._numbers: dict[Any, int] = {}
        """The descriptor of each owner; one that changed since is no longer waited for."""

    def watch(self, owner: HasFileno, events: int) -> None:
        """Wait for ``events`` (flags of epoll(7)) of ``owner`` from now on; 0: for none, not even errors."""
        fd = owner.fileno()
        if self._numbers.get(owner, fd) != fd:
            self._forget(self._numbers[owner])
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

    def _forget(self, fd: int) -> None:
        """Forget the former descriptor of an owner, which is closed or has become that of something else."""
        del self._watched[fd]
        with contextlib.suppress(OSError):
            self._epoll.unregister(fd)

    def wait(self, at: float, about: float = math.inf) -> list[tuple[Any, int]]:
        """Wait for events; returns them with their owners, and nothing if the time is over.

        The time (monotonic seconds) is ``at``, to the microsecond, or ``about``, up to a millisecond later.
        """
        if at <= about and at < math.inf:
            if not select.select([self._epoll], [], [], max(0.0, at - time.monotonic()))[0]:
                return []
            timeout = 0.0
        else:
            timeout = max(0.0, about - time.monotonic()) if about < math.inf else -1.0
        return [(self._watched[fd][0], events) for fd, events in self._epoll.poll(timeout, _MOST)]

    def close(self) -> None:
        self._epoll.close()


_LEAST_S = 0.0002
"""Shortest delay; looking again sooner costs more than it finds."""


@dataclass(eq=False)
class _Watch:
    """Calls ``then`` when the first ``mark`` bytes of ``connection`` have left, or are ``acknowledged``."""

    connection: PeerConnection
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
        self._watches: dict[PeerConnection, list[_Watch]] = defaultdict(list)
        """Watches that wait for an acknowledgement."""

    @property
    def next_time(self) -> float:
        return self._calls[0][0] if self._calls else float("inf")

    def soon(self, what: Callable[[], None]) -> None:
        self.at(self.now, what)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (moment, next(self._tie), what))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + max(seconds, _LEAST_S), what)

    def watch(self, connection: PeerConnection, mark: int, acknowledged: bool, then: Callable[[], None]) -> None:
        """Call ``then`` when the first ``mark`` bytes of a connection have left, or are ``acknowledged``."""
        watch = _Watch(connection, mark, acknowledged, then)
        if acknowledged:
            self._watches[connection].append(watch)
        self._look(watch)

    def acknowledged(self, connection: PeerConnection) -> None:
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
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()
