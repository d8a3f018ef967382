"""Membership of an agent in a training job: heartbeats, start-up stages, the state and its checkpoints.

The reduced values of a step are added to the state while the next step computes, a piece at a time, so that this delays
no message and no heartbeat. A checkpoint is a copy of the state at the end of its step, written in the background.
While the one before is still being written, ``must_wait`` is true and the rank does not end its step before that is on
disk: checkpoints are never skipped, and a slow disk shows in the step time.

A start-up stage ends when its work is over, and not before the time that is given for it. The work runs in the
background, so that the agent still sends heartbeats and can be stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from railyard.errors import AgentError, ConfigError
from railyard.scale import Scale
from workloads.agent.checkpoint import Checkpoint, CheckpointServer, Store, fetch
from workloads.agent.config import STAGES, AgentConfig, Incarnation
from workloads.agent.heartbeat import Heartbeat
from workloads.agent.job_channel import JobChannel
from workloads.agent.state import State, counts
from workloads.rank.in_flight import InFlight
from workloads.rank.tensors import Floats

_PRIORITY = 10
"""Added to the nice value of the thread: an agent's loop stands in for hardware, its background tasks do not."""


class BackgroundTask:
    """Runs ``what`` in a daemon thread.

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
        """File descriptor that becomes readable when the work is over, for ``select``."""
        return self._bell

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def collect(self) -> None:
        """After the end: raise the error that ended the task, if there was one."""
        os.close(self._bell)
        if self._error is not None:
            raise self._error


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
        start: Callable[[Callable[[], object]], BackgroundTask] = BackgroundTask,
    ) -> None:
        self._incarnation = incarnation
        self._work = work
        self._note = note
        self._start = start
        given = {name: incarnation.given_s(name) for name in STAGES}
        self._given_s = {name: scale.emulated_s(s) for name, s in given.items() if s is not None}
        self._left = [name for name in STAGES if name in work or name in self._given_s]
        self._began = 0.0
        self._running: BackgroundTask | None = None
        self._under_way = False

    @property
    def over(self) -> bool:
        return not self._left

    @property
    def running(self) -> BackgroundTask | None:
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
        start: Callable[[Callable[[], object]], BackgroundTask] = BackgroundTask,
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
        self._writing: tuple[Checkpoint, float, BackgroundTask] | None = None

    @property
    def running(self) -> BackgroundTask | None:
        return None if self._writing is None else self._writing[2]

    @property
    def idle(self) -> bool:
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
        self._open.append(step)

    def step(self, now: float) -> None:
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


class Member:
    """The work of one agent for its job beside the steps.

    The agent calls ``step`` from its loop and whenever one of ``running`` ends. A rank outside the incarnation's group
    has neither stages nor a state: it only serves its checkpoint.
    """

    def __init__(
        self, config: AgentConfig, incarnation: Incarnation, note: Callable[..., Any], report: Callable[..., Any]
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._note = note
        self._report = report
        self._store = Store(incarnation.store, config.job)
        self._loaded: Checkpoint | None = None
        self.heartbeat: Heartbeat | None = None
        """The heartbeats to the controller, whose questions the agent's loop answers."""
        self._stages: StartupStages | None = None
        self._accumulator: StateAccumulator | None = None
        self._server: CheckpointServer | None = None
        self.ready = False
        """Whether the start-up stages are over, so that the first step may begin."""
        groups = config.program.groups
        if incarnation.group and incarnation.group not in groups:
            raise ConfigError(
                f"the program has no group {incarnation.group!r}; it has {', '.join(groups) or 'none'}",
                key="incarnation.group",
            )
        self._is_member = (
            config.rank in groups[incarnation.group].members
            if incarnation.group
            else bool(config.program.operations[config.rank])
        )

    # -- state for the agent -------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self._accumulator is None or self._accumulator.idle

    @property
    def running(self) -> tuple[BackgroundTask, ...]:
        holders = (self._stages, self._accumulator)
        return tuple(holder.running for holder in holders if holder is not None and holder.running is not None)

    def next_event(self) -> float:
        """Time of the next call of ``step`` (monotonic seconds; 0: now)."""
        if self._accumulator is not None and self._accumulator.has_work:
            return 0.0
        return float("inf") if self._stages is None or self.ready else self._stages.next_event

    def must_wait(self, in_flight: InFlight) -> bool:
        """Whether the end of this communication must be withheld, because an earlier checkpoint is not on disk."""
        if self._accumulator is None or not counts(in_flight.op, self._incarnation.group):
            return False
        return self._accumulator.must_wait(in_flight.step)

    # -- events --------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve the checkpoint to the ranks that copy it from this one; ``AgentError`` if that fails."""
        config, incarnation = self._config, self._incarnation
        if incarnation.copy_to:
            self._server = CheckpointServer(
                config.plan, config.rank, incarnation.copy_to, self._store, config.ack_timeout_s
            )

    def begin(self, channel: JobChannel | None) -> None:
        """Start the heartbeats and the start-up stages, after the rank has checked in."""
        config, incarnation = self._config, self._incarnation
        if channel is not None and incarnation.heartbeat_s > 0:
            self._note("alive", time.monotonic(), incarnation=incarnation.number)
            self.heartbeat = Heartbeat(
                lambda n: channel.notify("alive", config.rank, answers=n), incarnation.heartbeat_s
            )
        work: dict[str, Callable[[], object]] = {}
        if incarnation.copy_from is not None:
            work["checkpoint"] = self._fetch
        if incarnation.serves:
            work["load"] = self._load_weights
        elif incarnation.first_step > 0 and not config.script:  # a script has checkpoints of its own
            work["load"] = self._load
        if self._is_member:
            self._store.make()
            self._stages = StartupStages(incarnation, config.scale, work, self._note)

    def _fetch(self) -> None:
        config, incarnation = self._config, self._incarnation
        assert incarnation.copy_from is not None
        fetch(
            config.plan,
            config.rank,
            incarnation.copy_from,
            self._store,
            config.job,
            incarnation.state_step,
            config.ack_timeout_s,
        )

    def _load(self) -> None:
        self._loaded = self._store.load(self._incarnation.state_step)

    def _load_weights(self) -> None:
        """Load the weights from the disk, where the first members put them; a spare without a copy has them already."""
        if self._store.steps():
            self._load()
            return
        words = State.new(self._config.scale.emulated_bytes(self._incarnation.state_bytes)).words
        words[:] = np.random.default_rng(self._config.seed).integers(1 << 32, size=len(words), dtype=np.uint32)
        self._loaded = Checkpoint(self._config.job, 0, 0, words)
        if not self._incarnation.number:
            self._store.write(self._loaded)

    def step(self, now: float) -> None:
        if not self.ready and self._stages is not None:
            self._stages.step(now)
        if not self.ready and (self._stages is None or self._stages.over):
            self.ready = True
            if self._is_member and not self._incarnation.serves:
                self._accumulator = StateAccumulator(
                    self._incarnation, self._config.job, self._state(), self._store.write, self._note, self._report
                )
        if self._accumulator is not None:
            self._accumulator.step(now)

    def _state(self) -> State:
        """The state before the first step: new or loaded from the checkpoint."""
        new = State.new(self._config.scale.emulated_bytes(self._incarnation.state_bytes))
        if self._loaded is None:
            return new
        loaded, self._loaded = self._loaded, None
        if len(loaded.words) != len(new.words):
            raise AgentError(
                f"the checkpoint of step {loaded.step} of job {loaded.job} holds {loaded.words.nbytes} bytes, and the "
                f"job's state is {new.words.nbytes}"
            )
        return State(loaded.words, loaded.checksum)

    def reduced(self, in_flight: InFlight, then: Callable[[], object]) -> None:
        """Add the values of a finished communication to the state, if it counts, and then call ``then``."""
        if (
            self._accumulator is not None
            and in_flight.buffer is not None
            and counts(in_flight.op, self._incarnation.group)
        ):
            self._accumulator.add(in_flight.buffer[: in_flight.elements], then)

    def end_step(self, step: int) -> None:
        if self._accumulator is not None:
            self._accumulator.end_step(step)

    def close(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.stop()
        if self._server is not None:
            self._server.close()
