"""A lab: a fabric that stays up while a program works on it, and its hosts (docs/lab.md)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
import weakref
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from railyard.api.command import SAYS, SUDO_SAYS, as_root, command_line, finished, railyard
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, RailyardError, nearest

_numbers = itertools.count(1)


def up(topology: str = "rails", /, *, name: str | None = None, **options: Any) -> Lab:
    """Bring a fabric up as ``railyard up`` does, with its options: ``servers=4, dark_ms=200``; needs root.

    It goes down at the end of a ``with``, by ``down``, and at the latest with this Python.
    """
    name = f"py-{os.getpid()}-{next(_numbers)}" if name is None else name
    words = [f"--{key.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}"
             for key, value in options.items()]  # fmt: skip
    return Lab(name, railyard("up", topology, f"--name={name}", *words, root=True).rstrip("\n"))


class Lab:
    """A lab that is up. The methods are the verbs of the command and return what it prints."""

    def __init__(self, name: str, said: str) -> None:
        self.name, self._said = name, said
        self._end = weakref.finalize(self, _take_down, name)
        self.hosts: tuple[str, ...] = tuple(self.status()["hosts"])

    def down(self) -> None:
        """Take the lab down; a second call does nothing."""
        if self._end.alive:
            self._do("down")
            self._end.detach()

    def host(self, host: int | str) -> Host:
        """A host by its number or its name."""
        name = f"{host}" if isinstance(host, str) or not 0 <= host < len(self.hosts) else self.hosts[host]
        if name not in self.hosts:
            known = nearest(name, self.hosts) or f"; there are {self.hosts[0]} to {self.hosts[-1]}"
            raise ConfigError(f"there is no host {name}{known}", key="host")
        return Host(self, name)

    def status(self) -> dict[str, Any]:
        """Hosts, addresses, circuits, acts of timetables, and trouble."""
        return dict(json.loads(self._do("status", "--json")))

    def connect(self, switch: str, *ports: int) -> str:
        """Join ports of an optical switch in pairs; their other circuits go."""
        return self._do("connect", switch, *ports)

    def disconnect(self, switch: str, *ports: int) -> str:
        return self._do("disconnect", switch, *ports)

    def fail(self, target: str) -> str:
        """Make a port (``rail0:3``), a link (``g0-r1``), a host or a switch fail."""
        return self._do("fail", target)

    def restore(self, target: str) -> str:
        return self._do("restore", target)

    def set(self, target: str, **values: object) -> str:
        """Change a link (``rate="50Mbps"``, ``delay="2ms"``, ``loss="1%"``) or a host (``transport="reno"``)."""
        return self._do("set", target, *(f"{key}={value}" for key, value in values.items()))

    def at(self, timetable: str) -> str:
        """Begin a timetable, as ``2s fail rail0:3; 4s restore rail0:3`` or a file, whose times count from now."""
        return self._do("at", timetable)

    def mark(self, name: str | None = None) -> str:
        """Begin a stretch that ``verdict`` judges."""
        return self._do("mark", *([] if name is None else [name]))

    def verdict(self, name: str | None = None) -> str:
        return self._do("verdict", *([] if name is None else [name]), fine=(0, NOT_FAITHFUL_EXIT_STATUS))

    def ping(self, host: str, other: str) -> str:
        """The output of ping, also where no answer came."""
        return railyard("ping", "--lab", self.name, host, other, root=True, fine=(0, 1)).rstrip("\n")

    def pingall(self) -> str:
        return self._do("pingall")

    def _do(self, verb: str, *words: object, fine: Sequence[int] = (0,)) -> str:
        return railyard(verb, "--lab", self.name, *words, root=True, fine=fine).rstrip("\n")

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with nullcontext() if kind is None else suppress(RailyardError):  # an error of the block is the one to raise
            self.down()

    def __repr__(self) -> str:
        return self._said


@dataclass(frozen=True)
class Host:
    """A host of a lab."""

    lab: Lab
    name: str

    def run(
        self, command: Sequence[object], *, input: str = "", timeout: float | None = None, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the host to its end, as ``subprocess.run`` with text and captured output does.

        What it leaves in the background goes on until the lab is down. After ``timeout`` seconds its process group is
        ended, which is ``subprocess.TimeoutExpired``; with ``check`` a status other than 0 is
        ``subprocess.CalledProcessError``.
        """
        if isinstance(command, (str, bytes)) or not command:
            raise ConfigError('must be a list of words such as ["ping", "-c1", "g1"]', key="command")
        begin = ["exec", "--lab", self.lab.name, self.name, "--"]
        ended = [] if timeout is None else ["timeout", "--kill-after=3", f"{max(timeout, 1e-3):f}"]  # 0 is without end
        words = command_line(*begin, *ended, "env", "--unset=PYTHONPATH", *command)  # it is our own path
        begun = time.monotonic()
        done = finished(as_root(words), given=input)
        late = timeout is not None and time.monotonic() > begun + timeout
        if late and done.returncode in (124, 137, -9):  # those of timeout, by SIGTERM and by SIGKILL
            raise subprocess.TimeoutExpired(words, timeout or 0, done.stdout, done.stderr)
        if done.returncode and any(line.startswith((SAYS, SUDO_SAYS)) for line in done.stderr.splitlines()):
            railyard(*begin, "true", root=True)  # raises the same, if it was not the program that said so
        if check:
            done.check_returncode()
        return done


def _take_down(name: str) -> None:
    with suppress(RailyardError, OSError, subprocess.SubprocessError):
        railyard("down", "--lab", name, root=True)
