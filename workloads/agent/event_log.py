"""The events of one agent, kept in memory while it works and written out between steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from railyard.timeline import Event, write_events


class EventLog:
    """Events of one rank, for its own file."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = Path(path)
        self._rank = rank
        self._events: list[Event] = []

    def note(self, kind: str, t: float, end: float | None = None, **fields: Any) -> None:
        """Something happened at ``t`` (until ``end``)."""
        self._events.append(Event(t, "agent", kind, end, {"rank": self._rank, **fields}))

    def flush(self) -> None:
        """Append what was noted to the file."""
        if self._events:
            events, self._events = self._events, []
            write_events(self._path, events)
