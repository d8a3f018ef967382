"""The registry of runs on a machine, by which a new run cleans up after one that was killed.

Each run has a folder under ``/run/railyard`` (mode 0700) that records its owner (process id and start time) and the
child processes it started. A run that ends removes its folder. After ``kill -9`` the next run finds a folder whose
owner is dead, ends the children that still run and removes the folder. Namespaces and links need no entry: they are
anonymous and disappear with the last process that holds them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from railyard.errors import MachineError

REGISTRY = Path("/run/railyard")
_OWNER, _CHILDREN = "owner.json", "children"
_UNREGISTERED = ".new-"
_UNREGISTERED_AGE_S = 60.0
_TERMINATE_S = 1.0


@dataclass(frozen=True)
class Process:
    """A process, identified by process id and start time, since ids are used again.

    ``started`` is in clock ticks since boot (field 22 of ``/proc/PID/stat``).
    """

    pid: int
    started: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """The process that runs as ``pid``; None if there is none or it is a zombie."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else Process(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether this process, and not a later one with its id, still runs."""
        return Process.of(self.pid) == self


def end_processes(processes: list[Process]) -> None:
    """End the processes that still run: SIGTERM first and, a second later, SIGKILL."""
    for number, patience_s in ((signal.SIGTERM, _TERMINATE_S), (signal.SIGKILL, _TERMINATE_S)):
        processes = [process for process in processes if process.alive]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        deadline = time.monotonic() + patience_s
        while any(process.alive for process in processes) and time.monotonic() < deadline:
            time.sleep(0.005)


class RegisteredRun:
    """The registration of one run; ``path`` is its folder in the registry.

    Usable as a context manager. Raises ``MachineError`` if the registry cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """Name of the run, unique on this machine."""
        return self.path.name

    @classmethod
    def open(cls, registry: Path = REGISTRY) -> RegisteredRun:
        """Clean up after dead runs, then register a new run that this process owns."""
        me = Process.of(os.getpid())
        assert me is not None
        name = f"{os.getpid()}-{token_hex(3)}"
        unregistered = registry / f"{_UNREGISTERED}{name}"
        try:
            registry.mkdir(mode=0o755, parents=True, exist_ok=True)
            clear_dead_runs(registry)
            unregistered.mkdir(mode=0o700)
        except PermissionError:
            raise MachineError(f"{registry} cannot be written; run it as root") from None
        (unregistered / _OWNER).write_text(json.dumps({"pid": me.pid, "started": me.started}))
        unregistered.rename(registry / name)
        return cls(registry / name)

    def add_child(self, pid: int) -> None:
        """Record a child process, so that a later run can end it if this process is killed."""
        process = Process.of(pid)
        if process is not None:
            with open(self.path / _CHILDREN, "a") as file:
                file.write(f"{process.pid} {process.started}\n")

    def children(self) -> list[Process]:
        """All recorded child processes, including those that have ended."""
        try:
            lines = (self.path / _CHILDREN).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Process(int(pid), int(started)) for pid, _, started in (line.partition(" ") for line in lines)]

    def owner(self) -> Process | None:
        """The process that registered the run; None if the record cannot be read."""
        try:
            data = json.loads((self.path / _OWNER).read_text())
            return Process(int(data["pid"]), int(data["started"]))
        except (OSError, ValueError, KeyError):
            return None

    def end_children(self) -> None:
        """End the recorded child processes that still run."""
        end_processes(self.children())

    def close(self) -> None:
        """End the recorded child processes and remove the folder; a second call does nothing."""
        self.end_children()
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> RegisteredRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clear_dead_runs(registry: Path = REGISTRY) -> list[str]:
    """Clean up after every run whose owner is dead and return the ids of those runs; live runs are not touched."""
    cleared = []
    for path in registry.iterdir() if registry.is_dir() else ():
        if path.name.startswith(_UNREGISTERED):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _UNREGISTERED_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        run = RegisteredRun(path)
        owner = run.owner()
        if owner is not None and not owner.alive:
            run.close()
            cleared.append(run.id)
    return cleared
