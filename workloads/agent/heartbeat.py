"""Heartbeats of an agent, sent by a thread of their own so that a busy loop does not delay them.

A loop that adds up a large bucket on a busy machine may be late by tenths of a second, which must not look like the
death of the process. A process that is killed or stopped sends no heartbeat. So that a loop which hangs is noticed
too, the thread asks it with each heartbeat, and each heartbeat says how often the loop has answered so far. A loop that
waits for a peer, a timer or the controller answers at once. One that has no core, since many agents share a few, does
not hang: where it waited for one during most of the time since the last heartbeat, that counts as an answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from railyard.errors import ControlError

_END_S = 1.0
_STARVED_SHARE = 0.5
"""A loop that waited for a core for more of the time between two heartbeats had too little of one to answer."""


def waited_for_core_s(thread: int) -> float:
    """Seconds that a thread of this process has been ready to run without a core; 0 if the kernel does not tell."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Heartbeat:
    """Calls ``beat(answers)`` now and then every ``every_s`` (wall-clock seconds) until ``stop``.

    The loop waits for ``fileno`` to become readable, and then calls ``answer``. The thread ends by itself when ``beat``
    raises ``ControlError`` or ``OSError``: the loop meets the same error. Must be made in the agent itself, never in a
    process that forks, by the thread of the loop.
    """

    def __init__(self, beat: Callable[[int], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._answers = self._starved = 0
        self._loop = threading.get_native_id()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = beaten = time.monotonic()
        waited_s = waited_for_core_s(self._loop)
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            now, until_now_s = time.monotonic(), waited_for_core_s(self._loop)
            self._starved += until_now_s - waited_s > _STARVED_SHARE * (now - beaten)
            beaten, waited_s = now, until_now_s
            try:
                self._beat(self._answers + self._starved)
            except (ControlError, OSError):
                return
            os.eventfd_write(self._bell, 1)
            missed = int(max(0.0, time.monotonic() - due) / self._every_s)
            due += (1 + missed) * self._every_s

    def fileno(self) -> int:
        """File descriptor that becomes readable when the thread asks the loop, for ``select``."""
        return self._bell

    def answer(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self._answers += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_END_S)
        if not self._thread.is_alive():
            os.close(self._bell)
