"""One results folder as a page sees it: what it is, and any window of any of its points, finished or under way."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from commands.page.overview import Overview
from commands.page.points import About, Points
from commands.page.view import payloads
from commands.page.view.index import PointIndex
from experiments.experiment import Experiment
from measure.results.folder import MANIFEST, is_locked
from measure.results.foreign import reading
from measure.results.manifest import groups_of, plans_of, scale_of
from measure.results.results import FIGURES, SUMMARY, Results
from railyard.errors import ConfigError, in_file

_LOCK_EVERY_S = 0.5
BOTH = ("overview", "timeline")


class RunView:
    """The reader of the run in ``folder``. All times are seconds of the real system since the start of a point.

    ``patience_s`` bounds the time that a question takes for reading a point for the first time; ``refresh`` then reads
    on. ``kind`` is the experiment, for code that is not part of Railyard. ``ConfigError`` for a folder that this
    version does not write: manifest and rows are checked when they are read, and trusted from then on.
    """

    def __init__(
        self, folder: Path, patience_s: float = float("inf"), kind: type[Experiment[Any]] | None = None
    ) -> None:
        self.folder = folder
        self.revision = 0
        self.parts: Collection[str] = ()
        """What the last ``refresh`` changed."""
        self._decisions: tuple[int, int] | None = None
        """``Points.decisions`` as of the last ``refresh``."""
        self._patience_s, self._kind = patience_s, kind
        self._root = -1
        self._gone = ""
        """Why what is shown is what was read before; empty if the folder is there."""
        self._shown: dict[str, Any] | None = None
        self._open()
        self.refresh()

    def _open(self) -> None:
        """Open the folder that has the path now, in place of one that had it before; raises an error before it does."""
        results = Results.open(self.folder)
        manifest, about = self._read_manifest(results)
        root = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._root >= 0:
            self.close()
        self._results, self._manifest, self._about, self._root = results, manifest, about, root
        self._stamps: list[tuple[int, ...] | None] = []
        self._overview: Overview | None = None
        """What is made of the files beside the events, until one of them changes."""
        self._locked, self._looked = False, float("-inf")
        self._points = Points(root, lambda: self._about)

    def _read_manifest(self, results: Results) -> tuple[Mapping[str, Any], About]:
        manifest = results.manifest()
        with in_file(str(self.folder / MANIFEST)), reading(self.folder):
            return manifest, About(plans_of(manifest), groups_of(manifest), scale_of(manifest))

    # ---- reading on --------------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        return self._locked and not self._gone and "ended" not in self._manifest

    @property
    def latest(self) -> int | None:
        """The number of the point under way, or else of the last one; None without points."""
        return max(self._points.numbers, default=None)

    def refresh(self) -> bool:
        """Read what is new, of a large file some MB at a time; whether anything changed.

        Where another folder has the path by now, that one is shown, and while none has it, what was read before.
        """
        before = self.live
        parts = self._look_for_folder()
        if self._gone:
            self.parts = parts
            self.revision += bool(parts)
            return bool(parts)
        stamps = [_stamp(self.folder / name) for name in (MANIFEST, SUMMARY, FIGURES)]
        if stamps != self._stamps:
            self._manifest, self._about = self._read_manifest(self._results)
            self._stamps = stamps
            parts.add("overview")
        self._look_whether_locked()
        if before != self.live:
            parts.update(BOTH)
        if "overview" in parts:
            self._overview = None
        with reading(self.folder):
            if self._points.look():
                parts.update(BOTH)
            if self._points.read_on(self._patience_s):
                parts.add("timeline")
        if self._points.decisions not in (self._decisions, None):
            parts.add("circuits")
        self._decisions = self._points.decisions
        self.parts = parts
        self.revision += bool(parts)
        return bool(parts)

    def _look_for_folder(self) -> set[str]:
        """Open the folder again if another one has its path; the parts that changed by that, or by its loss."""
        before, self._gone = self._gone, ""
        try:
            there, ours = os.stat(self.folder), os.fstat(self._root)
            if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
                self._open()
                return set(BOTH)
        except (OSError, ConfigError) as error:
            reason = str(error) if isinstance(error, ConfigError) else f"{self.folder} is not there any more"
            self._gone = f"{reason}; this page shows what was read before."
        return set(BOTH) if self._gone != before else set()

    def _look_whether_locked(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOCK_EVERY_S and ("ended" not in self._manifest or self._locked):
            self._locked, self._looked = is_locked(self.folder), now

    def close(self) -> None:
        """Close all files; nothing may be asked afterwards."""
        self._points.close()
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    # ---- questions ---------------------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """The run as a whole: its points, tables, verdicts, and drawings of its fabrics."""
        if self._gone and self._shown is not None:
            state = "killed" if self._shown["state"] == "live" else self._shown["state"]
            return {**self._shown, "state": state, "notes": [*self._shown["notes"], self._gone]}
        if self._overview is None:
            with reading(self.folder):
                self._overview = Overview(self._results, self._kind, live=self.live)
        self._shown = self._overview.payload(self.points(), self._points.unreadable)
        return self._shown

    def points(self) -> list[dict[str, Any]]:
        """The points as in the overview: number, title, mode, plan, duration, state, and what was expected."""
        return [self._point(number) for number in self._points.numbers]

    def _point(self, number: int) -> dict[str, Any]:
        head = self._points.head(number)
        running = not self._points.ended(number)
        state = "running" if running and self.live else "stopped" if running or head.get("stopped") else "measured"
        expected = head.get("expected_s")
        return {
            "number": number,
            "title": head.get("title") or head["mode"] or f"point {number}",
            "mode": head["mode"],
            "plan": self._points.plan_name(number),
            "duration": None if running else self._real(head["end"] - head["t"]),
            "state": state,
            "steps": head.get("steps"),
            "expected_s": None if expected is None else self._real(expected),
            "counts": True,
        }

    def _real(self, seconds: float) -> float:
        return round(self._about.scale.real_s(seconds), 6)

    def now(self, point: int) -> float:
        """The present of a point under way, the end of another one; ``LookupError`` without the point."""
        head = self._points.head(point)
        if self._points.ended(point):
            return self._real(head["end"] - head["t"])
        index, _ = self._index(point, 0.0)
        clock = self._real(time.monotonic() - head["t"])
        known = round(index.latest, 6)
        return max(0.0, clock if self.live and known <= clock else known)

    def _index(self, point: int, patience_s: float) -> tuple[PointIndex, float]:
        self._points.head(point)  # LookupError without the point
        with reading(self.folder):
            return self._points.index(point, patience_s)

    def timeline(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        """The time line of a point between ``start`` and ``end`` (None: all of it) for ``px`` pixels."""
        index, share = self._index(point, self._patience_s)
        now = self.now(point)
        start, end = self._window(start, end, now)
        running = not self._points.ended(point)
        shown = payloads.timeline(index, start, end, px, now, live=self.live and running)
        return {**shown, "loaded": round(share, 4)}

    def state(self, point: int, t: float) -> dict[str, Any]:
        return payloads.state(self._index(point, self._patience_s)[0], t)

    def strips(
        self, point: int, start: float | None = None, end: float | None = None, px: int = 1200
    ) -> dict[str, Any]:
        """Rates of rails and times of steps of a point between ``start`` and ``end`` (None: all of it)."""
        index, _ = self._index(point, self._patience_s)
        return payloads.strips(index, *self._window(start, end, self.now(point)), px)

    def _window(self, start: float | None, end: float | None, now: float) -> tuple[float, float]:
        """The window that is shown, at least a microsecond long."""
        first = 0.0 if start is None else start
        last = now if end is None else end
        return first, max(last, first + 1e-6)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Inode, size and time of change of a file; None without it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
