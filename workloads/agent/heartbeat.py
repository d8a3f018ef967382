"""The signs of life of an agent: a thread of their own says them, however busy the agent's loop is.

A loop that adds up a large bucket on a busy machine is late by tenths of a second, and whoever watches the job must not
take that for a death. The process is what lives or dies: what is killed or stopped is silent, and a rank that lives
but does not move is found by its peers' own bounds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from railyard.errors import ControlError


class Heartbeat:
    """Calls ``beat`` now and then every ``every_s`` (wall-clock seconds) until ``stop``.

    Ends by itself when ``beat`` raises ``ControlError``: the loop meets the same error. Make it in the agent itself,
    never in a process that forks.
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
        """No more of them."""
        self._stopped.set()
