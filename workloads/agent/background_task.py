"""Something long that a thread does while an agent's loop goes on: files, and sockets that may block."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_PRIORITY = 10
"""Added to the nice value of the thread: an agent's loop stands in for hardware, its errands need not be prompt."""


class BackgroundTask:
    """Runs ``what`` in a thread that dies with the process; ``fileno`` becomes readable when it is over.

    Make it in the agent itself, never in a process that forks.
    """

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            os.nice(_PRIORITY)  # Linux: of this thread alone
            self._what()
        except BaseException as error:
            self._error = error
        os.eventfd_write(self._bell, 1)  # before it is said to be over: then the descriptor may be closed
        self._over.set()

    def fileno(self) -> int:
        """For ``select``."""
        return self._bell

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self._over.is_set()

    def collect(self) -> None:
        """After its end: raise the error that ended it, if one did."""
        os.close(self._bell)
        if self._error is not None:
            raise self._error
