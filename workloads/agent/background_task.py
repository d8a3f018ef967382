"""Background tasks of an agent: a thread beside the agent's loop, for file access and blocking sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_PRIORITY = 10
"""Added to the nice value of the thread: an agent's loop stands in for hardware, its background tasks do not."""


class BackgroundTask:
    """Runs ``what`` in a daemon thread; ``fileno`` becomes readable when it is over.

    Must be made in the agent itself, never in a process that forks.
    """

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            os.nice(_PRIORITY)  # on Linux this affects the calling thread only
            self._what()
        except BaseException as error:
            self._error = error
        os.eventfd_write(self._bell, 1)  # first: once ``over`` is set, the descriptor may be closed
        self._over.set()

    def fileno(self) -> int:
        """File descriptor that becomes readable when the task is over, for ``select``."""
        return self._bell

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self._over.is_set()

    def collect(self) -> None:
        """After the end: raise the error that ended the task, if there was one."""
        os.close(self._bell)
        if self._error is not None:
            raise self._error
