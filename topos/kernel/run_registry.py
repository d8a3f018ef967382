"""The registry of runs on a machine, by which a new run cleans up after one that was killed.

Each run has a folder under ``/run/railyard`` (mode 0700) that records its owner (process id and start time) and the
child processes it started. A run that ends removes its folder. After ``kill -9`` of the owner the run's watcher ends
what still runs and removes the folder (``topos.kernel.run_watcher``); where the watcher was killed too, the next run
does. Namespaces and links need no entry: they are anonymous and disappear with the last process that holds them.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from railyard.checkout import REGISTRY as REGISTRY
from railyard.checkout import TEMPORARY
from railyard.errors import MachineError
from railyard.limits import check_room
from railyard.process.start import MARK, MARK_VARIABLE, start_program
from topos.kernel import run_watcher
from topos.kernel.run_watcher import Process

_OWNER = "owner.json"
_MARK = f"{MARK_VARIABLE}={MARK}"
_UNREGISTERED = ".new-"
_UNREGISTERED_AGE_S = 60.0


class RegisteredRun:
    """The registration of one run; ``path`` is its folder in the registry.

    Usable as a context manager. Raises ``MachineError`` if the registry cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> str:
        """Name of the run, unique on this machine."""
        return self.path.name

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for what runs on hosts: it ends with the run, also if it has left its session."""
        return {MARK_VARIABLE: f"{MARK}.{self.id}"}

    @classmethod
    def open(cls, registry: Path = REGISTRY) -> RegisteredRun:
        """Clean up after dead runs, then register a new run that this process owns."""
        me = Process.of(os.getpid())
        assert me is not None
        name = f"{os.getpid()}-{token_hex(3)}"
        unregistered = registry / f"{_UNREGISTERED}{name}"
        for folder in (registry, TEMPORARY):
            check_room(folder)
        try:
            registry.mkdir(mode=0o755, parents=True, exist_ok=True)
            clear_dead_runs(registry)
            unregistered.mkdir(mode=0o700)
        except PermissionError:
            raise MachineError(f"{registry} cannot be written; run it as root") from None
        (unregistered / _OWNER).write_text(json.dumps({**me._asdict(), "mark": _MARK}))
        unregistered.rename(registry / name)
        run = cls(registry / name)
        run._watcher = _start_watcher(run.path)
        return run

    def add_child(self, pid: int) -> None:
        """Record a child process, so that the watcher or a later run ends it if this process is killed."""
        process = Process.of(pid)
        if process is not None:
            with open(self.path / run_watcher.CHILDREN, "a") as file:
                file.write(f"{process.pid} {process.started}\n")

    def children(self) -> list[Process]:
        return run_watcher.recorded(str(self.path))

    def owner(self) -> Process | None:
        """The process that registered the run; None if the record cannot be read."""
        try:
            data = self._record()
            return Process(int(data["pid"]), int(data["started"]))
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def _record(self) -> Any:
        return json.loads((self.path / _OWNER).read_text())

    def end_children(self) -> None:
        """End the recorded child processes that still run, what runs on hosts, and what these started."""
        run_watcher.end(self.children(), f"{_MARK}.{self.id}")

    def close(self) -> None:
        """End what the run started and remove the folder; a second call does nothing."""
        self.end_children()
        shutil.rmtree(self.path, ignore_errors=True)
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None

    def clear(self) -> None:
        """End what still runs of this run, whose owner is dead, and remove the folder."""
        mark = ""
        with suppress(OSError, ValueError, TypeError, LookupError):
            mark = str(self._record()["mark"])
        run_watcher.end(self.children(), mark)
        shutil.rmtree(self.path, ignore_errors=True)

    def is_dead(self) -> bool:
        """Whether the owner of this run is dead; by the name of the folder, if its record cannot be read."""
        owner = self.owner()
        if owner is not None:
            return not owner.alive
        pid, _, rest = self.id.partition("-")
        return bool(rest) and pid.isdigit() and Process.of(int(pid)) is None

    def __enter__(self) -> RegisteredRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start_watcher(folder: Path) -> subprocess.Popen[bytes]:
    me = os.pidfd_open(os.getpid())
    try:
        return start_program(
            [sys.executable, "-I", "-S", run_watcher.__file__, str(folder.absolute()), str(me)],
            env={run_watcher.MARK: _MARK},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[me],
        )
    finally:
        os.close(me)


def clear_dead_runs(registry: Path = REGISTRY) -> list[str]:
    """Clean up after every run whose owner is dead and return the ids of those runs; live runs are not touched."""
    cleared = []
    for path in registry.iterdir() if registry.is_dir() else ():
        if path.name.startswith(_UNREGISTERED):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _UNREGISTERED_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        if path.is_socket():
            _remove_if_dead(path)
            continue
        run = RegisteredRun(path)
        if run.is_dead():
            run.clear()
            cleared.append(run.id)
    return cleared


def _remove_if_dead(path: Path) -> None:
    """Remove the socket at which a run asked an app for circuits, unless it is new or somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        if time.time() - path.stat().st_mtime > _UNREGISTERED_AGE_S and probe.connect_ex(str(path)):
            path.unlink()
