"""Adds the reduced values of every step to the state, piece by piece in idle time, and has checkpoints written.

The work of a step is done while the next step computes, a piece at a time, so that it delays no message and no
heartbeat. A checkpoint is a copy of the state at the end of its step, written in the background. While the one before
is still being written, ``must_wait`` is true and the rank does not end its step before that is on disk: checkpoints are
never skipped, and a slow disk shows in the step time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from workloads.agent.background_task import BackgroundTask
from workloads.agent.checkpoint import Checkpoint
from workloads.agent.incarnation import Incarnation
from workloads.agent.startup import Running
from workloads.agent.state import State
from workloads.rank.in_flight import Floats

PIECE_ELEMENTS = 1 << 18
"""Elements added at once: 1 MB, under half a millisecond."""


class StateAccumulator:
    """Accumulates the values of one rank in ``state``.

    ``write`` stores a checkpoint (in a thread). ``note`` logs events, ``report`` tells the launcher: ``state`` (step,
    checksum) and ``checkpoint`` (steps in it, checksum).
    """

    def __init__(
        self,
        incarnation: Incarnation,
        job: str,
        state: State,
        write: Callable[[Checkpoint], object],
        note: Callable[..., Any],
        report: Callable[..., Any],
        start: Callable[[Callable[[], object]], Running] = BackgroundTask,
    ) -> None:
        self.state = state
        self._incarnation = incarnation
        self._job = job
        self._write = write
        self._note = note
        self._report = report
        self._start = start
        self._open: deque[tuple[Floats, Callable[[], object]] | int] = deque()
        """Values to be added, each with its callback, and numbers of steps that ended after them."""
        self._added = 0
        """Elements of the first values that are added already."""
        self._snapshot = np.empty_like(state.words)
        self._writing: tuple[Checkpoint, float, Running] | None = None

    @property
    def running(self) -> Running | None:
        """The running write of a checkpoint."""
        return None if self._writing is None else self._writing[2]

    @property
    def idle(self) -> bool:
        """Whether nothing is left to be added or written."""
        return not self._open and self._writing is None

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has something to do at once."""
        return bool(self._open) and not self._is_held()

    def must_wait(self, step: int) -> bool:
        """Whether ``step`` may not end yet: a checkpoint is due after it, and an earlier one is not on disk."""
        pending = any(isinstance(entry, int) and self._is_due(entry) for entry in self._open)
        return self._is_due(step) and (self._writing is not None or pending)

    def add(self, values: Floats, then: Callable[[], object]) -> None:
        """Queue reduced values for the state; ``then`` is called when their buffer is free."""
        self._open.append((values, then))

    def end_step(self, step: int) -> None:
        """Queue the end of ``step``, after all its values."""
        self._open.append(step)

    def step(self, now: float) -> None:
        """Do one piece of work; raises the error of a failed write."""
        self._end_write(now)
        if not self.has_work:
            return
        entry = self._open[0]
        if isinstance(entry, int):
            self._open.popleft()
            self._end_step(entry, now)
            return
        values, then = entry
        until = min(self._added + PIECE_ELEMENTS, len(values))
        self.state.add(values, self._added, until)
        self._added = until
        if until == len(values):
            self._open.popleft()
            self._added = 0
            then()

    def _is_due(self, step: int) -> bool:
        every = self._incarnation.checkpoint_every
        return every > 0 and (step + 1) % every == 0

    def _is_held(self) -> bool:
        """Whether the next snapshot has to wait for the memory of the one before."""
        entry = self._open[0]
        return isinstance(entry, int) and self._is_due(entry) and self._writing is not None

    def _end_step(self, step: int, now: float) -> None:
        checksum = self.state.checksum
        self._note("state", now, step=step, incarnation=self._incarnation.number, checksum=checksum)
        self._report(state=step, checksum=checksum)
        if self._is_due(step):
            np.copyto(self._snapshot, self.state.words)
            checkpoint = Checkpoint(self._job, step + 1, checksum, self._snapshot)
            self._writing = checkpoint, now, self._start(lambda: self._write(checkpoint))

    def _end_write(self, now: float) -> None:
        if self._writing is None or not self._writing[2].over:
            return
        (checkpoint, began, running), self._writing = self._writing, None
        running.collect()
        self._note(
            "checkpoint",
            began,
            now,
            step=checkpoint.step,
            incarnation=self._incarnation.number,
            bytes=checkpoint.words.nbytes,
            checksum=checkpoint.checksum,
        )
        self._report(checkpoint=checkpoint.step, checksum=checkpoint.checksum)
