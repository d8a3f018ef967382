"""The processes of a run as others see them: which they are, and all that they hold on the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.machine_state import sockets_of
from topos.kernel.run_watcher import Process

MARK = "RAILYARD_FAULT"
"""Environment variable of a victim, which its processes inherit; its value is the same for no two victims."""
_MODULES = {
    "controllers.main": "controller",
    "topos.kernel.fastpath.process": "fast path",
    "workloads.agent.launcher_server": "agent launcher",
    "measure.live.sampler": "sampler",
    "measure.live.probes": "probe",
    "topos.kernel.delay_relay": "delay relay",
    "topos.kernel.run_watcher": "watcher",
}
"""Modules of the processes of a run, and what those are called."""
_EARLIER = ("", "agent launcher")
"""What a process seems to be at first: its program has not started, or it is an agent that has no name of its own."""


def role_of(comm: str, arguments: list[str]) -> str:
    """What a process of a run is, by its name for ``ps`` and its command line; empty for others.

    An agent is a copy of its launcher under another name.
    """
    if comm.startswith("railyard-g"):
        return "agent"
    if comm in ("ovs-vswitchd", "ovsdb-server"):
        return comm
    for module, role in _MODULES.items():
        path = module.replace(".", "/") + ".py"
        if any(argument == module or argument.endswith(path) for argument in arguments):
            return role
    return ""


def _read(pid: int, name: str) -> bytes:
    """A file of a process in ``/proc``; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _name_and_command(pid: int) -> tuple[str, list[str]]:
    return (_read(pid, "comm").decode(errors="replace").strip(),
            _read(pid, "cmdline").decode(errors="replace").split("\0"))  # fmt: skip


def path_of(pid: int) -> Path | None:
    """The first folder of the environment variable PYTHONPATH of a process (empty: not set); None if it has ended."""
    environment = _read(pid, "environ")
    for entry in environment.split(b"\0"):
        if entry.startswith(b"PYTHONPATH="):
            return Path(os.fsdecode(entry[11:]).split(os.pathsep)[0])
    return Path() if environment else None


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in map(int, _read(pid, f"task/{thread}/children").split()):
                yield child
                yield from _descendants(child)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _network_of(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""


@dataclass
class Family:
    """A run with all processes that it has or had, also those that no longer descend from it.

    ``mark`` is the value of ``MARK`` in their environment; ``seen`` has the role of each, ``paths`` the first folder in
    which each that is a Python child looks for modules, and ``sockets`` the names of the Unix sockets that they had
    bound when ``look_inside`` was called, by inode.
    """

    main: Process
    mark: str
    seen: dict[Process, str] = field(default_factory=dict)
    paths: dict[Process, Path] = field(default_factory=dict)
    sockets: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Note the processes that descend from the run now."""
        self._note([self.main.pid, *_descendants(self.main.pid)])

    def look_everywhere(self) -> None:
        """Note the processes that have the mark of the run, also those that descend from it no longer."""
        wanted = f"{MARK}={self.mark}".encode()
        self._note(pid for pid in _all_pids() if wanted in _read(pid, "environ").split(b"\0"))
        self.look()

    def look_inside(self) -> None:
        """Note the processes that are in a network namespace of the run, whoever started them, and the run's sockets.

        To be called while the run lives.
        """
        self.look_everywhere()
        held = self._networks()
        inside = [pid for pid in _all_pids() if _network_of(pid) in held]
        if held <= self._networks():  # else the kernel may have used a number again
            self._note(inside)
        self.sockets |= sockets_of(process.pid for process in self.alive())

    def _networks(self) -> set[str]:
        return {_network_of(process.pid) for process in self.alive()} - {"", _network_of(os.getpid())}

    def _note(self, pids: Iterable[int]) -> None:
        for pid in pids:
            process = Process.of(pid)
            if process is None or (pid == self.main.pid and process != self.main):
                continue
            if self.seen.get(process, "") in _EARLIER:
                self.seen[process] = "main" if process == self.main else role_of(*_name_and_command(pid))
                if self.seen[process] in _MODULES.values() and self.seen[process] != "watcher":
                    path = path_of(pid)
                    if path is not None:  # else it has ended between the two looks
                        self.paths[process] = path

    def alive(self, role: str = "") -> list[Process]:
        """The processes that run now, or those of a ``role``, in the order in which they were seen."""
        return [process for process, has in self.seen.items() if (not role or has == role) and process.alive]

    def names(self) -> list[str]:
        """Ids and shortened command lines of the processes that run now."""
        shown = ((process.pid, *_name_and_command(process.pid)) for process in self.alive())
        return [f"process {pid} ({(' '.join(words).strip() or name)[:120]})" for pid, name, words in shown]
