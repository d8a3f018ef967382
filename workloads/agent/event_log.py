"""Event log of one agent, kept in memory while the agent works and written out after each step, or after a second."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from railyard.errors import from_os_error
from railyard.ownership import naming, open_binary
from railyard.timeline import Event

LONGEST_S = 1.0
"""An event is in the file at most this long after it was recorded."""
_PAUSE_S, _APART_S, _RANKS_APART = 0.01, 0.002, 32
"""Time from the end of a step until its events are written, and that between ranks (those of so many in turn): the ends
of a step on other ranks would wait for the processors, as encoding the events takes up to a millisecond."""
RARE = frozenset({"alive", "stage", "checkpoint"})
"""Kinds of events that are written at once: few, and each may be the last before a failure."""


class EventLog:
    """Events of one rank, written to its own file. ``due``: when ``flush`` has to be called (infinity: not at all)."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = Path(path)
        self._rank = rank
        self._events: list[Event] = []
        self._written = 0
        self._fd = -1
        self._longest_s = LONGEST_S
        self.due = float("inf")

    @property
    def count(self) -> int:
        """Number of events recorded so far."""
        return self._written + len(self._events)

    @property
    def empty(self) -> bool:
        """Whether all events are in the file."""
        return not self._events

    def note(self, kind: str, t: float, end: float | None = None, **fields: Any) -> None:
        """Record an event at ``t`` (until ``end``, if it lasts), in monotonic seconds."""
        self.add(Event(t, "agent", kind, end, {"rank": self._rank, **fields}))

    def add(self, event: Event) -> None:
        """Record an event of the rank's machine."""
        if not self._events:
            self.due = min(self.due, time.monotonic() + self._longest_s)
        self._events.append(event)
        if event.kind in RARE:
            self.due = 0.0

    def end_step(self) -> None:
        """Have the events written soon, but later than those of a step that other ranks end at the same time."""
        self.due = min(self.due, time.monotonic() + _PAUSE_S + _APART_S * (self._rank % _RANKS_APART))

    def end_run(self) -> None:
        """Have all later events written soon: the run waits for them."""
        self._longest_s = _PAUSE_S
        self.end_step()

    def close(self) -> None:
        """Write out what is left and close the file."""
        try:
            self.flush()
        finally:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def flush(self) -> None:
        """Append the recorded events to the file; ``MachineError`` if it cannot be written."""
        self.due = float("inf")
        if not self._events:
            return
        data = "".join(event.to_line() + "\n" for event in self._events).encode()
        self._written += len(self._events)
        self._events = []
        try:
            with naming(self._path):
                if self._fd < 0:
                    with open_binary(self._path, "ab") as file:
                        self._fd = os.dup(file.fileno())
                while data:
                    data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise from_os_error(error) from None
