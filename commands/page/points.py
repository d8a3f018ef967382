"""The points of a results folder, each read when it is asked for, and the one under way as its files grow.

Everything is opened for reading only, below the folder, and without following links. Files may grow or vanish at any
time; a line that is cut short is left out and counted.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.page.view.index import PointFacts, PointIndex
from measure.metrics.steps import Steps
from railyard.ownership import reached
from railyard.point_folder import EVENTS, NOTES, PREDICTED, logs_in, numbers_in, point_folder
from railyard.reading import PIECE_BYTES, Tail
from railyard.scale import Scale
from railyard.timeline import events_in
from topos.plan import FabricPlan
from workloads.program import Group

_KEPT = 3
"""Points that are kept in memory."""
_FIRST_BYTES, _HEAD = 1 << 13, 80
"""Bytes of all events in which a point is told of, and those of a line in which its source and kind are."""


# ---- files that grow -------------------------------------------------------------------------------------------------


def open_below(root: int, path: Path) -> int | None:
    """A descriptor of the file at ``path`` below the folder ``root``, to be closed; None for none, or a link."""
    with suppress(OSError), reached(path.parent, root) as parent:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(path.name, flags, dir_fd=parent)
    return None


def lines_below(root: int, path: Path, most: int | None = None) -> Iterator[bytes]:
    """The complete lines of the file at ``path`` below the folder ``root``, or those in its first ``most`` bytes."""
    fd = open_below(root, path)
    if fd is None:
        return
    tail = Tail(fd)
    try:
        while lines := tail.lines(most=most):
            yield from lines
            if most is not None:
                return
    finally:
        tail.close()


# ---- points ----------------------------------------------------------------------------------------------------------


@dataclass
class About:
    """Facts of the manifest about all points."""

    plans: Mapping[str, FabricPlan]
    groups: Mapping[str, Group]
    scale: Scale


class PointReader:
    """The index of a point, which grows with the files in its ``folder`` below the folder ``root``.

    ``known`` is what was known of the point when the index was begun.
    """

    def __init__(self, root: int, folder: Path, index: PointIndex, known: Hashable) -> None:
        self.index, self.known = index, known
        self.unreadable = 0
        self._root, self._folder = root, folder
        self._ended = index.facts.end is not None
        self._tails: dict[Path, Tail] = {}
        self._settled = self._whole = False

    @property
    def share(self) -> float:
        """How much of the point was read, from 0 to 1; 1 if it is under way."""
        if self._whole or not self._ended:
            return 1.0
        tails = self._tails.values()
        return sum(tail.offset for tail in tails) / max(1, sum(tail.size for tail in tails))

    def read_on(self, patience_s: float) -> bool:
        """Read further lines for about ``patience_s`` seconds; whether there is something new.

        The controller's file comes last: all that it wrote before a wait of an agent ended is then known with the wait.
        Waits are divided once all is known; of a point that has ended, as far as it was read.
        """
        if self._whole:
            return False
        until = time.perf_counter() + patience_s
        for lines in self._pieces():
            self.unreadable += sum(not self.index.add_line(line) for line in lines)
            self._settled = False
            if time.perf_counter() >= until:
                if self._ended:
                    self.index.settle(self.index.horizon)
                return True
        new = not self._settled
        if new:
            self.index.settle()
        self._settled, self._whole = True, self._ended
        if self._whole:
            self.close()
        return new

    def _pieces(self) -> Iterator[list[bytes]]:
        place = Path(f"/proc/self/fd/{self._root}")
        for path in [EVENTS] if self._ended else logs_in(place / self._folder):
            path = (place / self._folder / path).relative_to(place)
            if path not in self._tails:
                fd = open_below(self._root, path)
                if fd is None:
                    continue
                self._tails[path] = Tail(fd)
            while lines := self._tails[path].lines(last=self._ended):
                yield lines

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()


class Points:
    """The points of the folder with descriptor ``root``. ``about`` gives what the manifest says by now."""

    def __init__(self, root: int, about: Callable[[], About]) -> None:
        self._root, self._about = root, about
        self._place = Path(f"/proc/self/fd/{root}")
        self._heads: dict[int, Mapping[str, Any]] = {}
        self._readers: OrderedDict[int, PointReader] = OrderedDict()
        self._bad: dict[int, int] = {}
        """By point the lines that could not be read."""

    # ---- reading on --------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Look for points that began, started or ended; whether there is one."""
        before = self._heads
        self._heads = {}
        for number in numbers_in(self._place):
            head = before.get(number)
            if head is None or "end" not in head:
                head = self._head(number)
            if head is not None:
                self._heads[number] = head
        return before != self._heads

    def _head(self, number: int) -> Mapping[str, Any] | None:
        """The facts of a point: ``run begun``, and at its end ``run point``; None before the first.

        Its time ``t`` is that of the first step, once that has begun.
        """
        for name, most in ((EVENTS, _FIRST_BYTES), (NOTES, PIECE_BYTES)):
            noted: dict[str, Any] = {}
            for line in lines_below(self._root, point_folder(Path(), number) / name, most):
                with suppress(ValueError):
                    if b'"source":"run"' in line[:_HEAD]:
                        event = json.loads(line)
                        noted.setdefault(event["kind"], event)
            if "point" in noted or "begun" in noted:
                started = {"t": noted["started"]["t"]} if "started" in noted else {}
                return {**noted.get("begun", {}), **started, **noted.get("point", {})}
        return None

    def read_on(self, patience_s: float) -> bool:
        """Read on in the point under way and in those that were asked for; whether there is something new."""
        if self.under_way is not None:
            self._reader(self.under_way)
        new = [self._read(number, patience_s) for number in self._readers if number in self._heads]
        return any(new)

    def _read(self, number: int, patience_s: float) -> bool:
        reader = self._reader(number)
        new = reader.read_on(patience_s)
        self._bad[number] = max(self._bad.get(number, 0), reader.unreadable)
        return new

    def _reader(self, number: int) -> PointReader:
        """The reader of a point; a new one if it has started or ended since, or the manifest has its plan now."""
        head, reader = self._heads[number], self._readers.get(number)
        known = head["t"], head.get("end"), self.plan_name(number)
        if reader is None or reader.known != known:
            if reader is not None:
                reader.close()
            index = PointIndex(self._facts(number))
            reader = self._readers[number] = PointReader(self._root, point_folder(Path(), number), index, known)
        return reader

    # ---- questions ---------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return sorted(self._heads)

    @property
    def unreadable(self) -> int:
        return sum(self._bad.values())

    @property
    def under_way(self) -> int | None:
        """The last point if it has not ended."""
        last = max(self._heads, default=None)
        return None if last is None or self.ended(last) else last

    @property
    def decisions(self) -> tuple[int, int] | None:
        """The point under way, and how many events of the run, the controller and switches it has; None without one."""
        number = self.under_way
        if number is None or number not in self._readers:
            return None
        return number, self._readers[number].index.decisions

    def ended(self, number: int) -> bool:
        return "end" in self._heads[number]

    def head(self, number: int) -> Mapping[str, Any]:
        """The facts of a point (``_head``); ``LookupError`` without the point."""
        if number not in self._heads:
            raise LookupError(f"this run has no point {number}")
        return self._heads[number]

    def index(self, number: int, patience_s: float) -> tuple[PointIndex, float]:
        """The index of a point, and how much of its events it has, from 0 to 1; ``LookupError`` without the point."""
        self.head(number)
        known = number in self._readers
        reader = self._reader(number)
        if not known or self.ended(number):  # what is new of others is told of when it is read
            self._read(number, patience_s)
        self._readers.move_to_end(number)
        for other in [number for number in self._readers if number != self.under_way][:-_KEPT]:
            self._readers.pop(other).close()
        return reader.index, reader.share

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    # ---- what is known of a point ------------------------------------------------------------------------------

    def plan_name(self, number: int) -> str | None:
        """The key of the point's plan in the manifest; None if that is not known yet."""
        name = self.head(number).get("plan")
        return name if name in self._about().plans else None

    def _facts(self, number: int) -> PointFacts:
        about, name, head = self._about(), self.plan_name(number), self._heads[number]
        times, warmup = self._prediction(number, about.scale)
        plan = about.plans[name] if name is not None else None
        return PointFacts(number, plan, about.scale, head["t"], head.get("end"), about.groups, times, warmup)

    def _prediction(self, number: int, scale: Scale) -> tuple[tuple[float, ...], int | None]:
        """The times of steps that the model predicted, and the number of warm-up steps."""
        path = point_folder(Path(), number) / PREDICTED
        told = next(map(json.loads, lines_below(self._root, path, _FIRST_BYTES)), None)
        if told is None:
            return (), None
        path = point_folder(Path(), told["same_as"]) / PREDICTED
        steps = (line.decode() for line in lines_below(self._root, path) if b'"kind":"step"' in line)
        times = tuple(round(scale.real_s(seconds), 6) for seconds in Steps.read(events_in(steps)).durations())
        return times, told["warmup_steps"]
