"""The points of a results folder, each read when it is asked for, and the one under way as it is written."""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from commands.page.follow import Block, Blocks, LiveFiles, Tail, looks_whole, names_below, open_below
from commands.page.view.index import BAD_LINE, PointFacts, PointIndex
from measure.metrics.steps import Steps
from measure.results.results import EVENTS, PREDICTED, RUNNING
from railyard.scale import Scale
from railyard.timeline import events_in
from topos.plan import FabricPlan
from workloads.program import Group

_KEPT = 3
"""Points that are kept in memory."""
_SCAN, _READ, _LIVE = 32 << 20, 1 << 20, 8 << 20
_STARTED, _BEGUN, _HEAD = b'"source":"run","kind":"started"', b'"source":"run","kind":"begun"', 80
_INTERFACE = re.compile(rb'"interface":"([^"\\]{1,64})"')
_FIRST_LINES, _FIRST_BYTES = 64, 1 << 12
"""Lines of a file of a point, and bytes of its block, in which its begin and its start stand."""
_MOST_PREDICTED = 64 << 20


@dataclass
class About:
    """What the manifest says of all points."""

    plans: Mapping[str, FabricPlan]
    groups: Mapping[str, Group]
    scale: Scale


class Loaded:
    """The index of a point that has ended, and how much of its block was read."""

    def __init__(self, index: PointIndex, root: int, block: Block) -> None:
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
        while not self._tail.ended:
            offset = self._tail.offset
            for line in self._tail.lines(_READ, last=True):
                if not self.index.add_line(line) and looks_whole(line.rstrip(b"\n")):  # others were counted before
                    self.unreadable += 1
            if time.perf_counter() - began >= patience_s or self._tail.offset == offset:
                break
        whole = self._tail.ended
        self.index.settle(float("inf") if whole else self.index.horizon)
        if whole:
            self.close()
        return True

    def close(self) -> None:
        """Close the file."""
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
        own = names_below(self._root, f"{RUNNING}/point{self.number}")
        for files, paths in ((self._files, own), (self._shared, names_below(self._root, RUNNING, deepest=0))):
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
        """Close the files of the point."""
        self._files.close()


class Points:
    """The points of the folder with descriptor ``root``. ``about`` gives what the manifest says by now."""

    def __init__(self, root: int, about: Callable[[], About]) -> None:
        self._root, self._about = root, about
        self.blocks, self._predicted = Blocks("point"), Blocks("predicted")
        self._loaded: OrderedDict[int, Loaded] = OrderedDict()
        self._bad: dict[int, int] = {}
        self._told: dict[int, Mapping[str, Any]] = {}
        """By the place of a block what is told of its point."""
        self._fitting: dict[tuple[float, tuple[str, ...]], str] = {}
        """By the time of a point and the plans of its fabric the one of them that it was on."""
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
                blocks.found, blocks.scanned = {}, 0
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
        late = live.index.facts.plan is None and self._plan_name(live.number, live.head) is not None
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
        """The numbers of all points, that under way included."""
        extra = {self.under_way.number} if self.under_way else set()
        return sorted(self.blocks.found.keys() | extra)

    @property
    def unreadable(self) -> int:
        """Lines that could not be read so far."""
        live = self.under_way.unreadable if self.under_way else 0
        return self.blocks.unreadable + sum(self._bad.values()) + live

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
        """Close all files."""
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()
        if self.under_way is not None:
            self.under_way.close()
        self._shared.close()

    # ---- what is known of a point ------------------------------------------------------------------------------

    def plan_name(self, number: int) -> str | None:
        """The key of the point's plan in the manifest; None if that is not known."""
        return self._plan_name(number, self.head(number))

    def _plan_name(self, number: int, head: Mapping[str, Any]) -> str | None:
        plans = self._about().plans
        said = [head.get("plan")]
        if number in self._predicted.found:
            said.append(self._predicted.found[number].head.get("plan"))
        for name in said:
            if isinstance(name, str) and name in plans:
                return name
        fitting = [name for name, plan in plans.items() if plan.fabric == head.get("fabric")]
        if len(fitting) > 1:
            known = head["t"], tuple(fitting)
            if known in self._fitting:
                return self._fitting[known]
            found = self._smallest(number, {name: plans[name] for name in fitting})
            if number in self.blocks.found:  # of a point under way more may be seen later
                self._fitting[known] = found
            return found
        return fitting[0] if fitting else (next(iter(plans)) if len(plans) == 1 else None)

    def _smallest(self, number: int, plans: Mapping[str, FabricPlan]) -> str:
        """The key of the plan with the fewest interfaces that has all that the first lines of a point name."""
        hosts = {name: {p.interface for s in plan.switches for p in s.ports} for name, plan in plans.items()}
        seen = self._interfaces(number)
        return min(hosts, key=lambda name: (not hosts[name] >= seen, len(hosts[name])))

    def _told_of(self, block: Block) -> Mapping[str, Any]:
        """The ``run point`` event of a block, with what the ``run begun`` event in its first lines says besides."""
        found = self._told.get(block.start)
        if found is None or found["t"] != block.head["t"]:
            begun: Mapping[str, Any] = {}
            lines = (line for line in self._first_lines(block, _FIRST_BYTES) if _BEGUN in line[:_HEAD])
            for event in events_in(line.decode("utf-8", "replace") for line in lines):
                if (event.source, event.kind) == ("run", "begun") and event.get("point") == block.head["point"]:
                    begun = event.fields
            found = self._told[block.start] = {**begun, **block.head}
        return found

    def _first_lines(self, block: Block, most: int) -> list[bytes]:
        """The lines in the first ``most`` bytes of a block."""
        fd = open_below(self._root, EVENTS)
        if fd is None:
            return []
        tail = Tail(fd, block.start, min(block.stop, block.start + most))
        try:
            return tail.lines()
        finally:
            tail.close()

    def _interfaces(self, number: int) -> set[str]:
        """The interfaces in the first lines of a point."""
        block = self.blocks.found.get(number)
        lines = [] if block is None else self._first_lines(block, 1 << 18)
        return {name.decode("utf-8", "replace") for line in lines for name in _INTERFACE.findall(line)}

    def _facts(self, number: int, block: Block | None, head: Mapping[str, Any]) -> PointFacts:
        about, name = self._about(), self._plan_name(number, head)
        end = head.get("end") if block is not None else None
        times, warmup = self._prediction(number, about.scale)
        return PointFacts(
            number,
            about.plans[name] if name is not None else None,
            about.scale,
            float(head["t"]),
            float(end) if isinstance(end, (int, float)) else None,
            about.groups,
            times,
            warmup,
            float("-inf") if block is not None else head.get("begun", float(head["t"])),
        )

    def _prediction(self, number: int, scale: Scale) -> tuple[tuple[float, ...], int | None]:
        """The times of steps that the model predicted, and the number of warm-up steps."""
        found = self._predicted.found.get(number)
        if found is None:
            return (), None
        warmup, same = found.head.get("warmup_steps"), found.head.get("same_as")
        block = self._predicted.found.get(same, found) if isinstance(same, int) else found
        fd = open_below(self._root, PREDICTED)
        if fd is None:
            return (), None
        tail, lines = Tail(fd, block.start, min(block.stop, block.start + _MOST_PREDICTED)), []
        try:
            while some := tail.lines():
                lines += [line.decode("utf-8", "replace") for line in some if b'"kind":"step"' in line]
        finally:
            tail.close()
        try:
            durations = Steps.read(events_in(lines)).durations()
        except BAD_LINE:
            durations = ()
        times = tuple(round(scale.real_s(seconds), 6) for seconds in durations)
        return times, warmup if isinstance(warmup, int) else None

    # ---- the point under way -----------------------------------------------------------------------------------

    def _running(self) -> int | None:
        """The number of the point under way: the last folder in ``running/`` whose point is not in the file yet."""
        place = None
        try:
            place = os.open(RUNNING, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            names = [name.removeprefix("point") for name in os.listdir(place) if name.startswith("point")]
        except OSError:
            return None
        finally:
            if place is not None:
                os.close(place)
        numbers = {int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 10}
        return max(numbers - self.blocks.found.keys(), default=None)

    def _begin(self, number: int) -> LivePoint | None:
        """Begin to follow a point; None while nothing says when it began."""
        head = self._begun(number)
        if head is None:
            return None
        index = PointIndex(self._facts(number, None, head))
        return LivePoint(self._root, number, head, index, self._shared)

    def _begun(self, number: int) -> dict[str, Any] | None:
        """The ``run begun`` event of a point, or the first moment in its files where a version writes none.

        With the time of its ``run started``, if there is one, which is then its time: that of the later ``run point``.
        """
        moments = []
        for path in names_below(self._root, f"{RUNNING}/point{number}"):
            fd = open_below(self._root, path)
            if fd is None:
                continue
            tail = Tail(fd, 0, 1 << 20)
            try:
                lines = [line.decode("utf-8", "replace") for line in tail.lines()[:_FIRST_LINES]]
            finally:
                tail.close()
            events = [event for event in events_in(lines) if 0 <= event.t < 1e12]
            of_run = {event.kind: event for event in reversed(events) if event.source == "run"}
            if "begun" in of_run:
                begun, started = of_run["begun"], of_run.get("started")
                head = {**begun.fields, "t": begun.t, "begun": begun.t}
                return head if started is None else {**head, "t": started.t, "started": started.t}
            moments += [event.t for event in events]
        return {"t": min(moments), "point": number} if moments else None
