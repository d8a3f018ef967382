"""The watcher of a run: if the run's owner is killed, it ends what the run started and removes the run's folder.

It is a program by itself, started with every run as ``python -I -S run_watcher.py FOLDER OWNER_PIDFD`` in a session of
its own, with the run's mark in its environment, since every user can read a command line. It waits for the end of the
owner, and is killed by it where the run ends as it should. Only the standard library is imported, and little of that,
since it starts with every run.

What a run started are the processes that it recorded (process id and start time, since ids are used again), those
whose environment has the run's mark (``VARIABLE=VALUE``, which others can have from it only), and the descendants and
sessions of both.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

CHILDREN = "children"
"""Name of the file in a run's folder with a line ``PID START_TIME`` for each recorded process."""
MARK = "RAILYARD_WATCHED"
"""Environment variable that tells the watcher the run's mark."""
_LOOK_EVERY_S = 0.02
_GRACE_S = 0.5
"""Time for processes that notice by themselves that the owner is gone, and write what they still hold."""
_TERMINATE_S = 1.0


class Process(NamedTuple):
    """A process, identified by process id and start time, since ids are used again.

    ``started`` is in clock ticks since boot (field 22 of ``/proc/PID/stat``).
    """

    pid: int
    started: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """The process that runs as ``pid``; None if there is none or it is a zombie."""
        entry = _entry(pid)
        return None if entry is None else entry.process

    @property
    def alive(self) -> bool:
        """Whether this process, and not a later one with its id, still runs."""
        return Process.of(self.pid) == self


class ProcessEntry(NamedTuple):
    """A process with the ids of its parent and of the leader of its session."""

    process: Process
    parent: int
    session: int


def _entry(pid: int) -> ProcessEntry | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in b"ZX":
        return None
    return ProcessEntry(Process(pid, int(fields[19])), int(fields[1]), int(fields[3]))


def recorded(folder: str) -> list[Process]:
    """The processes recorded in the folder of a run, including those that have ended; lines that were cut are skipped.

    A cut line may be the beginning of a number, but no process has both that id and that start time.
    """
    entries = []
    with suppress(OSError), open(os.path.join(folder, CHILDREN), "rb") as file:
        for line in file:
            pid, _, started = line.partition(b" ")
            with suppress(ValueError):
                entries.append(Process(int(pid), int(started)))
    return entries


def family(table: Collection[ProcessEntry], roots: Collection[Process], marked: Collection[Process]) -> set[Process]:
    """The processes of ``table`` that are in ``roots`` or ``marked``, or descend or are in the session of such."""
    members = {entry.process for entry in table if entry.process in roots or entry.process in marked}
    while True:
        pids = {process.pid for process in members}
        more = {entry.process for entry in table if entry.parent in pids or entry.session in pids} - members
        if not more:
            return members
        members |= more


def started_by(roots: Collection[Process], mark: str) -> set[Process]:
    """The running processes among ``roots``, those that carry ``mark`` (or one that begins so), and their families.

    This process is never among them, nor are its ancestors.
    """
    table = {entry.process.pid: entry for pid in os.listdir("/proc") if pid.isdigit() and (entry := _entry(int(pid)))}
    pid: int | None = os.getpid()
    while pid in table:
        pid = table.pop(pid).parent
    marked = {entry.process for entry in table.values() if _has_mark(entry.process, mark)}
    return family(table.values(), roots, marked)


def _has_mark(process: Process, mark: str) -> bool:
    if not mark:
        return False
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return f"\0{mark}".encode() in b"\0" + file.read() and process.alive
    except OSError:  # it has ended, or is another user's
        return False


def end(roots: Iterable[Process], mark: str, grace_s: float = 0.0) -> bool:
    """End the processes ``roots``, those with ``mark``, and their families: SIGTERM first, a second later SIGKILL.

    They have ``grace_s`` seconds to end by themselves before. Returns whether all of them are gone.
    """
    known = set(roots)
    for number, patience_s in ((0, grace_s), (signal.SIGTERM, _TERMINATE_S), (signal.SIGKILL, _TERMINATE_S)):
        told: set[Process] = set()
        deadline = time.monotonic() + patience_s
        while True:
            running = started_by(known, mark)
            known |= running
            if not running:
                return True
            for process in running - told:
                _send(process, number)
            told |= running
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_EVERY_S)
    return not started_by(known, mark)


def _send(process: Process, number: int) -> None:
    """Send a signal to exactly this process: the descriptor does not pass to a later one with its id."""
    with suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(process.pid)
        try:
            if process.alive:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def main(folder: str, owner_pidfd: str) -> None:
    owner = select.poll()
    owner.register(int(owner_pidfd), select.POLLIN)
    owner.poll()
    if end(recorded(folder), os.environ[MARK], _GRACE_S):
        import shutil  # here, since loading it takes as long as all the rest

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
