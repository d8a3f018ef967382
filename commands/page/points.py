"""The points of a results folder, each read when it is asked for, and the one under way as its files grow.

Everything is opened for reading only, below the folder, and without following links. Files may grow or vanish at any
time; a line that is cut short is left out and counted.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.page.view.index import PointFacts, PointIndex
from measure.metrics.steps import Steps
from measure.results.results import EVENTS, POINT, PREDICTED, RUNNING
from railyard.ownership import reached
from railyard.reading import files_below
from railyard.scale import Scale
from railyard.timeline import events_in
from topos.plan import FabricPlan
from workloads.program import Group

_PIECE = 1 << 20
"""Bytes that are read at once; no line of ours is longer."""
_KEPT = 3
"""Points that are kept in memory."""
_SCAN, _LIVE = 32 << 20, 8 << 20
_STARTED, _BEGUN, _HEAD = b'"source":"run","kind":"started"', b'"source":"run","kind":"begun"', 80
_FIRST_BYTES = 1 << 12
"""Bytes of the block of a point in which its begin stands."""


# ---- files that grow -------------------------------------------------------------------------------------------------


def open_below(root: int, path: str) -> int | None:
    """A descriptor of the file at ``path`` below the folder ``root``, to be closed; None for none, or a link."""
    place = Path(path)
    with suppress(OSError), reached(place.parent, root) as parent:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(place.name, flags, dir_fd=parent)
    return None


def logs_below(root: int, folder: str) -> list[str]:
    """The paths of logs of events in ``folder``, which is below the folder ``root``, and in its subfolders."""
    place = Path(f"/proc/self/fd/{root}")
    return sorted(str(path.relative_to(place)) for path in files_below(place / folder, ".jsonl"))


class Tail:
    """The complete lines of a file that were not read yet; a last line without its end is left until it has one."""

    def __init__(self, fd: int, offset: int = 0, stop: int | None = None) -> None:
        self._fd, self.offset, self.stop = fd, offset, stop

    @property
    def size(self) -> int:
        """Bytes of the file up to where it is read."""
        size = os.fstat(self._fd).st_size
        return size if self.stop is None else min(size, self.stop)

    def lines(self, *, last: bool = False) -> list[bytes]:
        return self.piece(last=last).splitlines(keepends=True)

    def piece(self, *, last: bool = False) -> bytes:
        """The next complete lines, of about ``_PIECE`` bytes together; empty if there are none.

        ``last``: nobody writes the file any more, so that a line without an end is one too.
        """
        size = self.size
        self.offset = min(self.offset, size)  # a write that failed may have been taken back
        data = os.pread(self._fd, min(size - self.offset, _PIECE), self.offset)
        whole = last and self.offset + len(data) == size
        data = data if whole else data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        return data

    @property
    def ended(self) -> bool:
        return self.offset >= self.size

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass
class PointBlock:
    """The lines of a point in a file of events: from a line ``head`` at byte ``start`` up to byte ``stop``."""

    head: dict[str, Any]
    start: int
    stop: int


@dataclass
class PointBlocks:
    """Where the points of a file begin: at lines whose source is ``run`` and whose kind is ``kind``.

    Nothing else of the file is parsed. ``found`` has the block of each point, by its number.
    """

    kind: str
    found: dict[int, PointBlock] = field(default_factory=dict)
    scanned: int = 0
    _last: PointBlock | None = None

    def scan(self, fd: int, most: int, *, last: bool = False) -> bool:
        """Look at up to ``most`` further bytes of the file; whether there were some. ``last`` as in ``Tail.lines``."""
        tail = Tail(fd, self.scanned)
        if tail.size < self.scanned:  # a write that failed was taken back
            self.forget()
            return True
        before, pattern = self.scanned, f'"source":"run","kind":"{self.kind}"'.encode()
        while self.scanned - before < most and (piece := tail.piece(last=last)):
            place = piece.find(pattern)
            while place >= 0 and (end := piece.find(b"\n", place)) >= 0:  # a crash may have cut the last line short
                start = piece.rfind(b"\n", 0, place) + 1
                self._begin(json.loads(piece[start:end]), self.scanned + start)
                place = piece.find(pattern, place + 1)
            self.scanned += len(piece)
            if self._last is not None:
                self._last.stop = self.scanned
        return self.scanned > before

    def _begin(self, head: dict[str, Any], start: int) -> None:
        if self._last is not None:
            self._last.stop = start
        self._last = self.found[head["point"]] = PointBlock(head, start, start)

    def forget(self) -> None:
        self.found, self.scanned, self._last = {}, 0, None


class LiveFiles:
    """Files below the folder ``root`` that processes write to, and their new lines."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._tails: dict[str, Tail] = {}
        self.behind = False
        """Whether there were more new lines than ``lines`` gave the last time."""

    def lines(self, paths: list[str], most: int = _PIECE) -> Iterator[bytes]:
        """The new complete lines of ``paths``, paths from ``root``, of about ``most`` bytes together."""
        self.behind = False
        for path in paths:
            if path not in self._tails and (fd := open_below(self._root, path)) is not None:
                self._tails[path] = Tail(fd)
            tail = self._tails.get(path)
            while tail is not None and most > 0 and (lines := tail.lines()):
                most -= sum(map(len, lines))
                yield from lines
            self.behind = self.behind or (tail is not None and most <= 0 and not tail.ended)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()


# ---- points ----------------------------------------------------------------------------------------------------------


@dataclass
class About:
    """Facts of the manifest about all points."""

    plans: Mapping[str, FabricPlan]
    groups: Mapping[str, Group]
    scale: Scale


class Loaded:
    """The index of a point that has ended, and how much of its block was read."""

    def __init__(self, index: PointIndex, root: int, block: PointBlock) -> None:
        fd = open_below(root, EVENTS)
        self.index, self.block = index, block
        self._tail = None if fd is None else Tail(fd, block.start, block.stop)
        self.unreadable = 0

    @property
    def share(self) -> float:
        """How much of the point was read, from 0 to 1."""
        if self._tail is None:
            return 1.0
        return (self._tail.offset - self.block.start) / max(1, self.block.stop - self.block.start)

    def read_on(self, patience_s: float) -> bool:
        """Read further lines for about ``patience_s`` seconds; whether there were some."""
        if self._tail is None:
            return False
        began = time.perf_counter()
        while lines := self._tail.lines(last=True):
            self.unreadable += sum(not self.index.add_line(line) for line in lines)
            if time.perf_counter() - began >= patience_s:
                break
        whole = self._tail.ended
        self.index.settle(float("inf") if whole else self.index.horizon)
        if whole:
            self.close()
        return True

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None


class LivePoint:
    """The point under way: what its processes have written so far."""

    def __init__(self, root: int, number: int, head: Mapping[str, Any], index: PointIndex, shared: LiveFiles) -> None:
        self.number, self.head, self.index = number, head, index
        self._root = root
        self._files, self._shared = LiveFiles(root), shared
        self.unreadable = 0
        self.started = "started" in head
        """Whether the first step has begun, from which the times of the point count."""
        self._settled = True

    def read_on(self) -> bool:
        """Read what is new; whether there was something.

        The controller's file comes last: all that it wrote before a wait of an agent ended is then known with the wait.
        Of much that is new some MB are read, and waits are divided once all is known.
        """
        new = False
        own = logs_below(self._root, f"{RUNNING}/point{self.number}")
        common = [path for path in logs_below(self._root, RUNNING) if path.count("/") == 1]
        for files, paths in ((self._files, own), (self._shared, common)):
            if self.started != ("started" in self.head):  # the controller's events are for the index with the new time
                break
            for line in files.lines(paths, _LIVE):
                new = True
                self.started = self.started or _STARTED in line[:_HEAD]
                self.unreadable += not self.index.add_line(line)
        self._settled = self._settled and not new
        if not self._settled and not (self._files.behind or self._shared.behind):
            self.index.settle()
            new = self._settled = True
        return new

    def close(self) -> None:
        self._files.close()


class Points:
    """The points of the folder with descriptor ``root``. ``about`` gives what the manifest says by now."""

    def __init__(self, root: int, about: Callable[[], About]) -> None:
        self._root, self._about = root, about
        self.blocks, self._predicted = PointBlocks("point"), PointBlocks("predicted")
        self._loaded: OrderedDict[int, Loaded] = OrderedDict()
        self._bad: dict[int, int] = {}
        """By point the lines that could not be read; by -1 those of points that were followed."""
        self._told: dict[int, Mapping[str, Any]] = {}
        """By the place of a block what is told of its point."""
        self.under_way: LivePoint | None = None
        self._shared = LiveFiles(root)
        """What the controller writes, of one point after another."""

    # ---- reading on --------------------------------------------------------------------------------------------

    def scan(self, *, last: bool) -> bool:
        """Look for further points in the files; whether some were looked at. ``last``: nobody writes them any more."""
        new = False
        for name, blocks in ((EVENTS, self.blocks), (PREDICTED, self._predicted)):
            fd = open_below(self._root, name)
            if fd is None:
                new = new or bool(blocks.found)
                blocks.forget()
                continue
            try:
                new = blocks.scan(fd, _SCAN, last=last) or new
            finally:
                os.close(fd)
        if new:
            self._drop_changed()
        return new

    def follow(self) -> bool:
        """Follow the point under way; whether there is something new of it."""
        number = self._running()
        if self.under_way is not None and number != self.under_way.number:
            self._bad[-1] = self._bad.get(-1, 0) + self.under_way.unreadable
            self.under_way.close()
            self.under_way = None
            if number is None:
                return True
        if number is not None and self.under_way is None:
            self.under_way = self._begin(number)
        new = self.under_way is not None and self.under_way.read_on()
        if number is not None and new and self.under_way is not None and self._outdated(self.under_way):
            self.under_way.close()
            self._shared.close()  # what the controller wrote so far is for the new index too
            self.under_way = self._begin(number)
            new = self.under_way is None or self.under_way.read_on()
        return new

    @property
    def decisions(self) -> tuple[int, int] | None:
        """The point under way, and how many events of the run, the controller and switches it has; None without one."""
        live = self.under_way
        return None if live is None else (live.number, live.index.decisions)

    def _outdated(self, live: LivePoint) -> bool:
        """Whether the index has to be made again: the first step began, or the manifest has the point's plan now."""
        late = live.index.facts.plan is None and self._plan_name(live.head) is not None
        return late or live.started != ("started" in live.head)

    def read_on(self, patience_s: float) -> bool:
        """Read on in the point that was asked for last, unless all of it was read."""
        for loaded in reversed(self._loaded.values()):
            return loaded.share < 1 and loaded.read_on(patience_s)
        return False

    def _drop_changed(self) -> None:
        for number, loaded in list(self._loaded.items()):
            block = self.blocks.found.get(number)
            if block is None or block.start != loaded.block.start or block.stop < loaded.block.stop:
                loaded.close()
                del self._loaded[number]

    # ---- questions ---------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        extra = {self.under_way.number} if self.under_way else set()
        return sorted(self.blocks.found.keys() | extra)

    @property
    def unreadable(self) -> int:
        live = self.under_way.unreadable if self.under_way else 0
        return sum(self._bad.values()) + live

    def head(self, number: int) -> Mapping[str, Any]:
        """The ``run point`` event of a point, or the ``run begun`` event of the one under way."""
        block = self.blocks.found.get(number)
        if block is not None:
            return self._told_of(block)
        if self.under_way is not None and self.under_way.number == number:
            return self.under_way.head
        raise LookupError(f"this run has no point {number}")

    def index(self, number: int, patience_s: float) -> tuple[PointIndex, float]:
        """The index of a point, and how much of its events it has, from 0 to 1; ``LookupError`` without the point."""
        block = self.blocks.found.get(number)
        if block is None:
            if self.under_way is None or self.under_way.number != number:
                raise LookupError(f"this run has no point {number}")
            return self.under_way.index, 1.0
        loaded = self._loaded.get(number)
        if loaded is None:
            loaded = self._loaded[number] = Loaded(
                PointIndex(self._facts(number, block, self._told_of(block))), self._root, block
            )
        self._loaded.move_to_end(number)
        while len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)[1].close()
        if loaded.share < 1:
            loaded.read_on(patience_s)
            self._bad[number] = loaded.unreadable
        return loaded.index, loaded.share

    def close(self) -> None:
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()
        if self.under_way is not None:
            self.under_way.close()
        self._shared.close()

    # ---- what is known of a point ------------------------------------------------------------------------------

    def plan_name(self, number: int) -> str | None:
        """The key of the point's plan in the manifest; None if that is not known yet."""
        return self._plan_name(self.head(number))

    def _plan_name(self, head: Mapping[str, Any]) -> str | None:
        name = head.get("plan")
        return name if name in self._about().plans else None

    def _told_of(self, block: PointBlock) -> Mapping[str, Any]:
        """The ``run point`` event of a block, with what the ``run begun`` event in its first lines says besides."""
        told = self._told.get(block.start)
        if told is None or told["t"] != block.head["t"]:
            lines = self._lines(EVENTS, block.start, min(block.stop, block.start + _FIRST_BYTES))
            begun: Mapping[str, Any] = next((json.loads(line) for line in lines if _BEGUN in line[:_HEAD]), {})
            told = self._told[block.start] = {**begun, **block.head}
        return told

    def _lines(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """The lines of a file of the folder between two places."""
        fd = open_below(self._root, name)
        if fd is None:
            return
        tail = Tail(fd, start, stop)
        try:
            while lines := tail.lines():
                yield from lines
        finally:
            tail.close()

    def _facts(self, number: int, block: PointBlock | None, head: Mapping[str, Any]) -> PointFacts:
        about, name = self._about(), self._plan_name(head)
        times, warmup = self._prediction(number, about.scale)
        return PointFacts(
            number,
            about.plans[name] if name is not None else None,
            about.scale,
            head["t"],
            block.head["end"] if block is not None else None,
            about.groups,
            times,
            warmup,
            float("-inf") if block is not None else head["begun"],
        )

    def _prediction(self, number: int, scale: Scale) -> tuple[tuple[float, ...], int | None]:
        """The times of steps that the model predicted, and the number of warm-up steps."""
        told = self._predicted.found.get(number)
        if told is None:
            return (), None
        block = self._predicted.found[told.head["same_as"]]
        steps = (line.decode() for line in self._lines(PREDICTED, block.start, block.stop) if b'"kind":"step"' in line)
        times = tuple(round(scale.real_s(seconds), 6) for seconds in Steps.read(events_in(steps)).durations())
        return times, told.head["warmup_steps"]

    # ---- the point under way -----------------------------------------------------------------------------------

    def _running(self) -> int | None:
        """The number of the point under way: the last folder in ``running/`` whose point is not in the file yet."""
        try:
            with reached(RUNNING, self._root) as place:
                names = os.listdir(f"/proc/self/fd/{place}")
        except OSError:
            return None
        numbers = {int(name.removeprefix("point")) for name in names if name.startswith("point")}
        return max(numbers - self.blocks.found.keys(), default=None)

    def _begin(self, number: int) -> LivePoint | None:
        """Begin to follow a point; None while nothing says when it began."""
        head = self._begun(number)
        if head is None:
            return None
        index = PointIndex(self._facts(number, None, head))
        return LivePoint(self._root, number, head, index, self._shared)

    def _begun(self, number: int) -> dict[str, Any] | None:
        """The ``run begun`` event of a point.

        With the time of its ``run started``, if there is one, which is then its time: that of the later ``run point``.
        """
        lines = self._lines(f"{RUNNING}/point{number}/{POINT}", 0, _FIRST_BYTES)
        noted = {event["kind"]: event for event in map(json.loads, lines)}
        if "begun" not in noted:
            return None
        head = {**noted["begun"], "begun": noted["begun"]["t"]}
        return {**head, "t": noted["started"]["t"], "started": True} if "started" in noted else head
