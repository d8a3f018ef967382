"""How long a rank computes between two events of its script: as long as it takes, or as long as it is told."""

from __future__ import annotations

import re
import threading
import time

from railyard.errors import ConfigError


class Pace:
    """The stretches of computing of the main thread, from ``go`` to ``stop``.

    ``compute``: "real" leaves them as they are; "scaled:X" holds the script until a stretch has lasted X times its
    processor time; "recorded" until it has lasted as long as in the record. Time in communication is in no stretch.
    """

    def __init__(self, compute: str) -> None:
        scaled = re.fullmatch(r"scaled:([0-9]+(?:\.[0-9]+)?)", compute)
        if scaled is None and compute not in ("real", "recorded"):
            raise ConfigError(f"must be real, recorded or scaled:X with a number X, not {compute!r}", key="compute")
        self._times = float(scaled[1]) if scaled else None
        self._recorded = compute == "recorded"
        self._clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
        self._computed_s = 0.0
        """Wall-clock seconds of computing since the last call that the record holds."""
        self.held = False
        """Whether the script is held at all, as it is from the recorded step on."""
        self.report = {"wall_s": 0.0, "processor_s": 0.0, "late_s": 0.0}
        """Seconds of all stretches on the clock and of the processor, and those by which they were too long."""
        self.go()

    def go(self) -> None:
        """A stretch begins."""
        self._since, self._mark = time.monotonic(), time.clock_gettime(self._clock)

    def stop(self, recorded_s: float | None = None) -> float:
        """A stretch ends: hold the script until that is due; returns the stretch's processor seconds.

        ``recorded_s``: seconds of computing since the call before, in the record (None: this is none of its calls).
        """
        processor_s = time.clock_gettime(self._clock) - self._mark
        wall_s = time.monotonic() - self._since
        self.report["wall_s"] += wall_s
        self.report["processor_s"] += processor_s
        if self.held and self._times is not None:
            self._hold(self._times * processor_s - wall_s)
        elif self.held and self._recorded:
            self._computed_s += wall_s
            if recorded_s is not None:
                self._hold(recorded_s - self._computed_s)
                self._computed_s = 0.0
        return processor_s

    def _hold(self, left_s: float) -> None:
        time.sleep(max(0.0, left_s))
        self.report["late_s"] += max(0.0, -left_s)
