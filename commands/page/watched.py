"""The run that a server shows: one reader of its folder for all pages, and the thread that follows the folder."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from commands.page.run_view import RunView
from commands.page.stream import Audience, Tick

TICK_S = 0.1
"""Least time from one look at the files of a live run to the next."""
STILL_S = 2.0
"""Time from one look at the files of a run that has ended to the next."""
SHARE = 10
"""A look at a live run waits for this many times the cost of the last one, so looks take a tenth of a processor."""
_STALE_S = 0.5
"""Age of what was read, from which on a question reads again before it is answered."""
_CATCH_UP_S = 60.0
_GAP_S = 0.02
"""Time between two pieces of a large folder, in which pages are answered."""
PARTS = ("overview", "timeline", "circuits")
"""Kinds of data. ``circuits`` are changes of the fabric, which pages show at once; what ranks do may wait."""
PATIENT_S = 0.5
"""Least time from one tick about ``timeline`` alone to the next."""
_T = TypeVar("_T")


class Watched:
    """The run of a server. Its methods may be called from any thread."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._read = float("-inf")
        self._untold: set[str] = set()
        self._told = float("-inf")
        self.behind = False
        """Whether there is more to read at once, as last read."""

    @property
    def folder(self) -> Path:
        return self._view.folder

    @property
    def live(self) -> bool:
        """Whether the run goes on, as last read."""
        return self._view.live

    def ask(self, question: Callable[[RunView], _T]) -> _T:
        """The answer of ``question`` to the view, which no other thread uses meanwhile."""
        with self._lock:
            if time.monotonic() - self._read > _STALE_S:
                self._refresh()
            return question(self._view)

    def refresh(self) -> Tick | None:
        """Read what is new; a tick about all that changed since the last one, None without a change."""
        with self._lock:
            self._refresh()
            now = time.monotonic()
            if not self._untold or (self._untold == {"timeline"} and now < self._told + PATIENT_S):
                return None
            parts, self._untold, self._told = self._untold, set(), now
            return self._tick(parts)

    def tick(self) -> Tick:
        """A tick for a page that knows nothing yet."""
        return self.ask(lambda view: self._tick(PARTS))

    def close(self) -> None:
        with self._lock:
            self._view.close()

    def _refresh(self) -> None:
        self.behind = self._view.refresh()
        self._read = time.monotonic()
        self._untold.update(self._view.parts)

    def _tick(self, parts: Collection[str]) -> Tick:
        view, point = self._view, self._view.latest
        now = 0.0 if point is None else view.now(point)
        return Tick(view.revision, point, now, view.live, tuple(sorted(parts)))


class Follower:
    """Follows the folder of ``run`` and tells ``audience`` what is new, in a thread from ``start`` to ``stop``.

    The folder is read once at the start, so that the first page does not wait, and then only while a page is open.
    """

    def __init__(self, run: Watched, audience: Audience) -> None:
        self._run, self._audience = run, audience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._said = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current look."""
        self._stop.set()
        self._audience.wake()
        self._thread.join()

    def look(self) -> None:
        try:
            tick = self._run.refresh()
        except Exception as error:  # such as a folder that was removed: pages keep what they have
            self._run.behind = False
            self._say(f"{self._run.folder} cannot be read now: {error or type(error).__name__}")
            return
        if tick is not None:
            self._audience.tell(tick)

    def _follow(self) -> None:
        end = time.monotonic() + _CATCH_UP_S
        self.look()
        while self._run.behind and not self._stop.is_set() and time.monotonic() < end:
            self._stop.wait(_GAP_S)
            self.look()
        while not self._stop.is_set():
            self._audience.wait(self._stop)
            began = time.thread_time()
            self.look()
            self._stop.wait(self.pause_s(time.thread_time() - began))

    def pause_s(self, cost_s: float) -> float:
        """How long to wait after a look that took ``cost_s`` of a processor."""
        if self._run.live:
            return max(TICK_S, SHARE * cost_s)
        return _GAP_S if self._run.behind else max(STILL_S, SHARE * cost_s)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            print(f"railyard: {sentence}", file=sys.stderr)
