"""The start-up stages of a rank before the first step of an incarnation (``workloads.agent.config.STAGES``).

A stage ends when its work is over, and not before the time that is given for it. The work runs in the background, so
that the agent still sends heartbeats and can be stopped. Time comes in as an argument.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from railyard.scale import Scale
from workloads.agent.config import STAGES, Incarnation

_PRIORITY = 10
"""Added to the nice value of the thread: an agent's loop stands in for hardware, its background tasks do not."""


class BackgroundTask:
    """Runs ``what`` in a daemon thread; ``fileno`` becomes readable when it is over.

    Must be made in the agent itself, never in a process that forks.
    """

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            os.nice(_PRIORITY)  # on Linux this affects the calling thread only
            self._what()
        except BaseException as error:
            self._error = error
        os.eventfd_write(self._bell, 1)  # first: once ``over`` is set, the descriptor may be closed
        self._over.set()

    def fileno(self) -> int:
        return self._bell

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def collect(self) -> None:
        """After the end: raise the error that ended the task, if there was one."""
        os.close(self._bell)
        if self._error is not None:
            raise self._error


class Running(Protocol):
    """Work running in the background (``BackgroundTask``)."""

    def fileno(self) -> int:
        """File descriptor that becomes readable when the work is over, for ``select``."""

    @property
    def over(self) -> bool:
        """Whether the work has ended."""

    def collect(self) -> None:
        """After the end: raise the error that ended the work, if there was one."""


class StartupStages:
    """Runs the start-up stages in order; one without work and without a given time is skipped.

    ``work`` is the function to run, by stage; ``note`` logs each stage that is over. Times are monotonic seconds.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        scale: Scale,
        work: Mapping[str, Callable[[], object]],
        note: Callable[..., Any],
        start: Callable[[Callable[[], object]], Running] = BackgroundTask,
    ) -> None:
        self._incarnation = incarnation
        self._work = work
        self._note = note
        self._start = start
        given = {name: incarnation.given_s(name) for name in STAGES}
        self._given_s = {name: scale.emulated_s(s) for name, s in given.items() if s is not None}
        self._left = [name for name in STAGES if name in work or name in self._given_s]
        self._began = 0.0
        self._running: Running | None = None
        self._under_way = False

    @property
    def over(self) -> bool:
        return not self._left

    @property
    def running(self) -> Running | None:
        return self._running

    @property
    def next_event(self) -> float:
        if not self._left or self._running is not None:
            return float("inf")
        return self._due if self._under_way else 0.0

    @property
    def _due(self) -> float:
        return self._began + self._given_s.get(self._left[0], 0.0)

    def step(self, now: float) -> None:
        while self._left:
            if not self._under_way:
                self._begin(now)
            if self._running is not None and self._running.over:
                running, self._running = self._running, None
                running.collect()
            if self._running is not None or now < self._due:
                return
            self._end(now)

    def _begin(self, now: float) -> None:
        self._under_way = True
        self._began = now
        work = self._work.get(self._left[0])
        self._running = self._start(work) if work is not None else None

    def _end(self, now: float) -> None:
        name = self._left.pop(0)
        self._under_way = False
        self._note(
            "stage", self._began, now, incarnation=self._incarnation.number, name=name, given=name in self._given_s
        )
