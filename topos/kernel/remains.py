"""What a run leaves on the machine, and who may remove it.

Each run has a folder under ``/run/railyard`` (mode 0700) that says who owns it (process id and start
time) and which children it started. A run that ends removes its folder. After kill -9 the next run
finds a folder whose owner is dead, ends the children that still live and removes it. Namespaces and
links need no entry: they are anonymous and go with the last process that holds them.
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
_UNBORN = ".new-"
_UNBORN_AGE_S = 60.0
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same id.

    ``started`` is its start time in clock ticks since boot (field 22 of ``/proc/PID/stat``).
    """

    pid: int
    started: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """The living process ``pid``, or None (a zombie does not live)."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else Process(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Process.of(self.pid) == self


def end(processes: list[Process]) -> None:
    """End processes: SIGTERM, after a second SIGKILL; those that are gone, or another by now, are left alone."""
    for number, patience_s in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, _PATIENCE_S)):
        processes = [process for process in processes if process.alive]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        deadline = time.monotonic() + patience_s
        while any(process.alive for process in processes) and time.monotonic() < deadline:
            time.sleep(0.005)


class Run:
    """The registered presence of one run; ``path`` is its folder.

    Usable as a context manager. Raises ``MachineError`` when the registry cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """Unique among all runs on this machine."""
        return self.path.name

    @classmethod
    def open(cls, registry: Path = REGISTRY) -> Run:
        """Clear what dead runs left, then register this process as the owner of a new run."""
        me = Process.of(os.getpid())
        assert me is not None
        name = f"{os.getpid()}-{token_hex(3)}"
        unborn = registry / f"{_UNBORN}{name}"
        try:
            registry.mkdir(mode=0o755, parents=True, exist_ok=True)
            clear_dead(registry)
            unborn.mkdir(mode=0o700)
        except PermissionError:
            raise MachineError(f"{registry} cannot be written; run it as root") from None
        (unborn / _OWNER).write_text(json.dumps({"pid": me.pid, "started": me.started}))
        unborn.rename(registry / name)
        return cls(registry / name)

    def add_child(self, pid: int) -> None:
        """Record a child, so that it ends with the run whatever happens to this process."""
        process = Process.of(pid)
        if process is not None:
            with open(self.path / _CHILDREN, "a") as file:
                file.write(f"{process.pid} {process.started}\n")

    def children(self) -> list[Process]:
        """Every child recorded, dead or alive."""
        try:
            lines = (self.path / _CHILDREN).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Process(int(pid), int(started)) for pid, _, started in (line.partition(" ") for line in lines)]

    def owner(self) -> Process | None:
        """Who registered the run, or None where that cannot be read."""
        try:
            data = json.loads((self.path / _OWNER).read_text())
            return Process(int(data["pid"]), int(data["started"]))
        except (OSError, ValueError, KeyError):
            return None

    def end_children(self) -> None:
        """End the recorded children that still live."""
        end(self.children())

    def close(self) -> None:
        """End the recorded children and remove the folder; a second call does nothing."""
        self.end_children()
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clear_dead(registry: Path = REGISTRY) -> list[str]:
    """Clear every run whose owner is dead; returns the ids of those runs. Living runs are not touched."""
    cleared = []
    for path in registry.iterdir() if registry.is_dir() else ():
        if path.name.startswith(_UNBORN):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _UNBORN_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        run = Run(path)
        owner = run.owner()
        if owner is not None and not owner.alive:
            run.close()
            cleared.append(run.id)
    return cleared
