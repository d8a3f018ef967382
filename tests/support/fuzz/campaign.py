"""A campaign: inputs of all targets, in short-lived processes, and what came of them."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

from fuzz.limits import SharedProgress, fork
from fuzz.target import Target
from railyard.checkout import ROOT

_FRAME = re.compile(r'\s*File "')
_TOGETHER = 500
"""Inputs of one process: what its caches keep does not add up."""
_MOST_FAILURES = 20
"""Failures of a target after which it gets no more inputs."""


@dataclass
class Failure:
    """An input that a target could not take: how it ended, and where. ``file`` holds it."""

    target: str
    index: int
    how: str
    where: tuple[str, ...]
    file: Path


@dataclass
class Tally:
    """The inputs of one target so far. ``seconds`` is the time of its processes, added up."""

    target: Target
    wanted: int
    done: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: int = -1
    most_bytes: int = 0
    largest: int = -1
    failures: list[Failure] = field(default_factory=list)


@dataclass
class _Process:
    tally: Tally
    start: int
    stop: int
    shared: SharedProgress
    folder: Path
    errors: Path
    began: float


class Campaign:
    """Gives ``count`` inputs to ``targets`` by their weights, ``jobs`` processes at a time."""

    def __init__(self, targets: Sequence[Target], count: int, seed: int, jobs: int, keep: Path) -> None:
        self.seed = seed
        self.tallies = [Tally(target, wanted) for target, wanted in zip(targets, _shares(targets, count), strict=True)]
        self._jobs = jobs
        self._keep = keep
        self._chunks: deque[tuple[Tally, int, int]] = deque(_chunks(self.tallies))
        self._running: dict[int, _Process] = {}

    def run(self, seconds: float = inf) -> list[Failure]:
        """Read all inputs, or those of the first ``seconds``; returns the failures, whose inputs are in ``keep``."""
        end = monotonic() + seconds
        gc.collect()
        gc.freeze()
        root = Path(mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        try:
            number = 0
            while self._chunks or self._running:
                if monotonic() > end:
                    self._chunks.clear()
                while self._chunks and len(self._running) < self._jobs:
                    number += 1
                    self._start(root / str(number))
                if self._running:
                    self._reap()
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            shutil.rmtree(root)
        return [failure for tally in self.tallies for failure in tally.failures]

    def _start(self, place: Path) -> None:
        tally, start, stop = self._chunks.popleft()
        if len(tally.failures) >= _MOST_FAILURES:
            return
        folder, errors = place / "in", place / "errors"
        folder.mkdir(parents=True)
        process = _Process(tally, start, stop, SharedProgress(), folder, errors, monotonic())
        pid = fork(tally.target, self.seed, range(start, stop), process.shared, folder, errors)
        self._running[pid] = process

    def _reap(self) -> None:
        """Wait for a process to end, and go on behind the input that ended it."""
        pid, status = os.wait()
        process = self._running.pop(pid)
        progress, tally = process.shared.read(), process.tally
        tally.done += progress.done
        tally.seconds += monotonic() - process.began
        if progress.slowest_s > tally.slowest_s:
            tally.slowest_s, tally.slowest = progress.slowest_s, progress.slowest
        if progress.most_bytes > tally.most_bytes:
            tally.most_bytes, tally.largest = progress.most_bytes, progress.largest
        if status and progress.index < process.start:
            raise RuntimeError(f"no input of {tally.target.name} was made: {process.errors.read_text()}")
        if status:
            self._fail(tally, progress.index, _how(status), process.errors.read_text(errors="replace"))
            if progress.index + 1 < process.stop:
                self._chunks.append((tally, progress.index + 1, process.stop))
        shutil.rmtree(process.errors.parent)

    def _fail(self, tally: Tally, index: int, how: str, trace: str) -> None:
        self._keep.mkdir(parents=True, exist_ok=True)
        file = self._keep / f"{tally.target.name}-{self.seed}-{index}"
        file.write_bytes(tally.target.input(self.seed, index))
        tally.done += 1
        tally.failures.append(Failure(tally.target.name, index, how, _where(trace), file))


def _where(trace: str) -> tuple[str, ...]:
    """The project's frames of a traceback, the innermost first, and the error if there was one."""
    frames = [line.strip() for line in trace.splitlines() if _FRAME.match(line)]
    frames = [line.replace(f"{ROOT}/", "") for line in frames if f'"{ROOT}/' in line and "/support/fuzz/" not in line]
    raised = "most recent call last" in trace or not trace.startswith("Fatal")
    error = next((line for line in reversed(trace.splitlines()) if line and raised and line[0] not in " ^F"), "")
    return (*([error[:300]] if error else []), *list(dict.fromkeys(reversed(frames) if raised else frames))[:6])


def _how(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return "raised an error that it does not document"
    number = os.WTERMSIG(status)
    reasons = {signal.SIGPROF: "used 2 s of processor time", signal.SIGALRM: "did not end within 60 s"}
    return reasons.get(signal.Signals(number), f"died of {signal.Signals(number).name}")


def _shares(targets: Sequence[Target], count: int) -> list[int]:
    """How many of ``count`` inputs each target gets."""
    whole = sum(target.weight for target in targets)
    ends = [round(count * sum(each.weight for each in targets[:k]) / whole) for k in range(len(targets) + 1)]
    return [last - first for first, last in pairwise(ends)]


def _chunks(tallies: Sequence[Tally]) -> Iterator[tuple[Tally, int, int]]:
    """Runs of inputs, of all targets in turn."""
    for start in range(0, max((tally.wanted for tally in tallies), default=0), _TOGETHER):
        for tally in tallies:
            if start < tally.wanted:
                yield tally, start, min(start + _TOGETHER, tally.wanted)
