"""Event log of one agent, kept in memory while the agent works and written out between steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from railyard.timeline import Event, write_events


class EventLog:
    """Events of one rank, written to its own file."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = Path(path)
        self._rank = rank
        self._events: list[Event] = []
        self._written = 0

    @property
    def count(self) -> int:
        """Number of events recorded so far."""
        return self._written + len(self._events)

    def note(self, kind: str, t: float, end: float | None = None, **fields: Any) -> None:
        """Record an event at ``t`` (until ``end``, if it lasts), in monotonic seconds."""
        self._events.append(Event(t, "agent", kind, end, {"rank": self._rank, **fields}))

    def add(self, event: Event) -> None:
        """Record an event of the rank's machine."""
        self._events.append(event)

    def flush(self) -> None:
        """Append the recorded events to the file."""
        if self._events:
            events, self._events = self._events, []
            write_events(self._path, events)
            self._written += len(events)
