"""The folder of a measured point, such as ``points/003`` of a results folder: all its events, read alike at any time.

While the point is under way, each process appends whole lines to a file of its own there. At its end ``events.jsonl``
takes the place of these files at once: first ``run point``, then all events in order of time. ``predicted.jsonl`` has
the timeline that the model predicted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from railyard.reading import files_below
from railyard.timeline import Event, events_in, with_gaps

POINTS, EVENTS, PREDICTED, NOTES, CONTROLLER, BESIDE = (
    "points",
    "events.jsonl",
    "predicted.jsonl",
    "point.jsonl",
    "controller.jsonl",
    "beside.jsonl",
)
"""Of a point under way ``NOTES`` is what the run itself notes, ``CONTROLLER`` what the controller does, and ``BESIDE``
what was measured beside the jobs of the point, and says nothing about them."""


def point_folder(results: Path, number: int) -> Path:
    """The folder of a point of the results folder ``results``."""
    return results / POINTS / f"{number:03d}"


def numbers_in(results: Path) -> list[int]:
    """The numbers of the points that a results folder has, in their order."""
    with suppress(OSError):
        return sorted({int(name) for name in os.listdir(results / POINTS) if name.isdecimal()})
    return []


def logs_in(folder: Path) -> list[Path]:
    """The files with the events of a point: one if it has ended, else one of each process, the controller's last."""
    whole = folder / EVENTS
    if whole.exists():
        return [whole]
    logs = (path for path in files_below(folder, ".jsonl") if path.name != PREDICTED)
    return sorted(logs, key=lambda path: (path.name == CONTROLLER, path))


def events_of(folder: Path, without: str = "") -> list[Event]:
    """All events of a point so far, in order of time; of one under way not those in the file ``without``.

    ``run cut`` tells of lines that are not readable, ``run lost`` of numbers that are missing in the file of a process.
    ``ConfigError`` for a line of the events of a point that has ended, and is none.
    """
    whole, events = folder / EVENTS, list[Event]()
    for path in logs_in(folder):
        if path != whole and path.name != without:
            events += with_gaps(events_in(lines_of(path)))
    if whole.exists():  # also if that was a moment ago
        events = events_in(lines_of(whole), whole)
    return sorted(events, key=lambda event: event.t)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file; none without it."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
        yield from lines
