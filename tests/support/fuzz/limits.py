"""Limits of one input: 2 s of processor time and 512 MB of memory, kept by the kernel in a process of its own."""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
import struct
import traceback
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from time import process_time

from fuzz.target import Target

MOST_S = 2.0
MOST_BYTES = 512 << 20
STUCK_S = 60.0
"""Wall-clock time after which an input that does not even use the processor (it waits) counts as a failure."""
_PAGE = resource.getpagesize()
_LAYOUT = struct.Struct("=qqdqqq")


@dataclass
class Progress:
    """How far a process has come: the input under way, and the slowest and the largest so far."""

    index: int = -1
    done: int = 0
    slowest_s: float = 0.0
    slowest: int = -1
    most_bytes: int = 0
    largest: int = -1


class SharedProgress:
    """The ``Progress`` of a forked process, readable by its parent also after its death."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _LAYOUT.size)
        self.write(Progress())

    def write(self, progress: Progress) -> None:
        """Replace the progress."""
        self._memory[: _LAYOUT.size] = _LAYOUT.pack(*astuple(progress))

    def read(self) -> Progress:
        """The progress as it was written last."""
        return Progress(*_LAYOUT.unpack(self._memory[: _LAYOUT.size]))


def read_one(target: Target, data: bytes, folder: Path) -> None:
    """Let the target read ``data``, in an empty ``folder``; only errors that it does not document get out."""
    try:
        target.read(data, folder)
    except target.allowed:
        pass
    finally:
        for path in folder.iterdir():
            path.unlink()


def work(target: Target, seed: int, indices: Iterable[int], shared: SharedProgress, folder: Path) -> None:
    """Read the inputs ``indices`` within the limits; an input that breaks one ends this process.

    The kernel ends it after ``MOST_S`` of processor time (SIGPROF) or ``STUCK_S`` of wall-clock time (SIGALRM), and
    refuses memory beyond ``MOST_BYTES``; where the program then was is written to standard error.
    """
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
        faulthandler.register(number, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = _memory(0) + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    progress = Progress()
    with open("/proc/self/clear_refs", "wb", buffering=0) as peak:
        for index in indices:
            data = target.input(seed, index)
            progress.index = index
            shared.write(progress)
            peak.write(b"5")  # the peak of resident memory counts from here
            before_bytes, before_s = _memory(1), process_time()
            signal.setitimer(signal.ITIMER_REAL, STUCK_S)
            signal.setitimer(signal.ITIMER_PROF, MOST_S)
            read_one(target, data, folder)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _count(progress, process_time() - before_s, _peak() - before_bytes)
    shared.write(progress)


def _count(progress: Progress, seconds: float, used: int) -> None:
    progress.done += 1
    if seconds > progress.slowest_s:
        progress.slowest_s, progress.slowest = seconds, progress.index
    if used > progress.most_bytes:
        progress.most_bytes, progress.largest = used, progress.index


def _memory(which: int) -> int:
    """Address space (0) or resident memory (1) of this process, in bytes."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read(100).split()[which]) * _PAGE


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def fork(target: Target, seed: int, indices: Iterable[int], shared: SharedProgress, folder: Path, errors: Path) -> int:
    """The id of a new process that does ``work`` and writes to the file ``errors`` what ended it, if anything did."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        fd = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(fd, 2)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        work(target, seed, indices, shared, folder)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(status)
