"""Heartbeats of an agent, sent by a thread of their own so that a busy loop does not delay them.

A loop that adds up a large bucket on a busy machine may be late by tenths of a second, which must not look like the
death of the process. A process that is killed or stopped sends no heartbeat; a rank that lives but makes no progress is
found by the time-outs of its peers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from railyard.errors import ControlError


class Heartbeat:
    """Calls ``beat`` now and then every ``every_s`` (wall-clock seconds) until ``stop``.

    The thread ends by itself when ``beat`` raises ``ControlError``: the loop meets the same error. Must be made in the
    agent itself, never in a process that forks.
    """

    def __init__(self, beat: Callable[[], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            try:
                self._beat()
            except ControlError:
                return
            missed = int(max(0.0, time.monotonic() - due) / self._every_s)
            due += (1 + missed) * self._every_s

    def stop(self) -> None:
        """Stop sending heartbeats; the thread ends."""
        self._stopped.set()
