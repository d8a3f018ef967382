"""Waits for the sockets of an agent, at a cost that does not grow with their number."""

from __future__ import annotations

import contextlib
import math
import select
import time
from typing import Any, Protocol

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
        """Close the descriptor of the poller itself."""
        self._epoll.close()
