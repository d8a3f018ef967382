"""Books the reduced values of every step into the state, in pieces between other things, and has checkpoints written.

The work of a step is done while the next one computes, a piece at a time, so that it delays no message and no sign of
life. A checkpoint is a copy of the state at the end of its step, written in the background. Where the one before is
still being written, ``must_wait`` says so and the rank does not end its step before it is on disk: checkpoints are
never left out, and a disk that is too slow shows as time of the step.
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
from workloads.agent.transport import payload

PIECE_ELEMENTS = 1 << 18
"""Elements that are booked at once: 1 MB, under half a millisecond."""


class StateAccumulator:
    """The books of one rank over ``state``.

    ``write`` stores a checkpoint (in a thread). ``note`` is told of events for the timeline, ``say`` of what the parent
    must know: ``state`` (step, checksum) and ``checkpoint`` (steps in it, checksum).
    """

    def __init__(
        self,
        incarnation: Incarnation,
        job: str,
        state: State,
        write: Callable[[Checkpoint], object],
        note: Callable[..., Any],
        say: Callable[..., Any],
        start: Callable[[Callable[[], object]], Running] = BackgroundTask,
    ) -> None:
        self.state = state
        self._incarnation = incarnation
        self._job = job
        self._write = write
        self._note = note
        self._say = say
        self._start = start
        self._open: deque[tuple[payload.Floats, Callable[[], object]] | int] = deque()
        """Values to be booked, each with what to call then, and numbers of steps that ended after them."""
        self._added = 0
        """Elements of the first values that are booked."""
        self._snapshot = np.empty_like(state.words)
        self._writing: tuple[Checkpoint, float, Running] | None = None

    @property
    def running(self) -> Running | None:
        """The write under way."""
        return None if self._writing is None else self._writing[2]

    @property
    def idle(self) -> bool:
        """Nothing is left to be booked or written."""
        return not self._open and self._writing is None

    @property
    def has_work(self) -> bool:
        """Whether ``turn`` has something to do at once."""
        return bool(self._open) and not self._is_held()

    def must_wait(self, step: int) -> bool:
        """Whether ``step`` may not end yet: a checkpoint is due after it, and one before is not on disk."""
        pending = any(isinstance(entry, int) and self._is_due(entry) for entry in self._open)
        return self._is_due(step) and (self._writing is not None or pending)

    def add(self, values: payload.Floats, then: Callable[[], object]) -> None:
        """Reduced values for the state; ``then`` when nobody needs them any more."""
        self._open.append((values, then))

    def end_step(self, step: int) -> None:
        """``step`` is over, all its values are with the ledger."""
        self._open.append(step)

    def step(self, now: float) -> None:
        """One piece of work; raises what went wrong in a write."""
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
        """The snapshot that comes next has to wait for the memory of the one before."""
        entry = self._open[0]
        return isinstance(entry, int) and self._is_due(entry) and self._writing is not None

    def _end_step(self, step: int, now: float) -> None:
        checksum = self.state.checksum
        self._note("state", now, step=step, incarnation=self._incarnation.number, checksum=checksum)
        self._say(state=step, checksum=checksum)
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
        self._say(checkpoint=checkpoint.step, checksum=checkpoint.checksum)
