"""The processes of one edge run on packets: started together, watched, killed and restarted by name, stopped.

Names: ``control`` (job manager, scheduler, load balancer), ``manager0``, ... (client managers), ``root``, ``jobs``,
``trunk`` (the arbiter of an optical trunk), ``leaf0``, ... (leaf server of a region, topology ``tree`` only),
``clients0``, ... (all clients of a region).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from experiments.propius.process import MODULE
from experiments.propius.run import EdgeRun, split_name
from railyard.errors import AgentError, ConfigError, RailyardError
from railyard.ownership import make_folder, open_binary
from railyard.process.child import Child
from railyard.reading import Tail
from railyard.timeline import Event, events_in, read_events

_PATIENCE_S = 2.0
_LOOK_EVERY_S = 0.05
_STARTING_AT_ONCE = 16
"""More would share the cores for so long that the last ones are not ready in time."""
_TOLD = "jobs", "clients"
"""Beginnings of the names of the processes that wait for the start."""

OnRound = Callable[[int, int, int], None]
"""Called with (number of the job, round, rounds of the job) when a round is complete."""


@dataclass
class _Process:
    child: Child
    incarnation: int = 0
    killed: bool = False


@dataclass
class _Progress:
    """The number of complete rounds of each job, as the events file of the jobs has told so far."""

    path: Path
    tail: Tail | None = None
    rounds: dict[int, int] = field(default_factory=dict)

    def new(self) -> list[Event]:
        """The events that were written since the last call; none before the jobs' process has made its file."""
        if self.tail is None and self.path.exists():
            self.tail = Tail.of(self.path)
        lines = [] if self.tail is None else self.tail.lines()
        return events_in(line.decode(errors="replace") for line in lines)


class EdgeProcesses:
    """The processes of ``run``, or those in ``names``. A context manager; otherwise call ``start`` and ``stop``."""

    def __init__(self, run: EdgeRun, names: Sequence[str] | None = None) -> None:
        self.run = run
        self._names = run.names if names is None else tuple(names)
        self._processes: dict[str, _Process] = {}
        self._files: list[Path] = []
        self._progress: _Progress | None = None

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of those that were not killed."""
        return {name: process.child.pid for name, process in self._processes.items() if not process.killed}

    def start(self) -> EdgeProcesses:
        """Start the processes, many at a time; returns when each works. ``MachineError`` if one does not start."""
        make_folder(self.run.folder)
        if any(self.run.folder.glob("edge-*.jsonl")):
            raise ConfigError(f"{self.run.folder} holds the events of another edge run; name a new one", key="folder")
        try:
            for name in self._names:
                self._processes[name] = self._made(name, 0)
            self._progress = _Progress(self._events_file("jobs", 0))
            with ThreadPoolExecutor(_STARTING_AT_ONCE) as pool:
                list(pool.map(lambda process: process.child.start(), self._processes.values()))
        except BaseException:
            self.stop()
            raise
        return self

    def go(self) -> float:
        """Start the jobs and switch the clients on; the time before that, in monotonic seconds."""
        now = time.monotonic()
        for name, process in self._processes.items():
            if name.startswith(_TOLD):
                process.child.tell("go")
        return now

    def wait(
        self, timeout_s: float, on_round: OnRound | None = None, check: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Wait until all jobs are complete, ``timeout_s`` seconds at most; the numbers of the jobs that are not.

        Raises ``AgentError`` if a process ended by itself, or what ``check`` raises, which is called often. The jobs'
        numbers are their places in ``run.jobs`` if they arrive in that order.
        """
        end = time.monotonic() + timeout_s
        while (unfinished := self._look(on_round)) and time.monotonic() < end:
            check()
            self.check()
            time.sleep(_LOOK_EVERY_S)
        return unfinished

    def _look(self, on_round: OnRound | None) -> list[int]:
        """Read what the jobs have noted; the jobs that are not complete."""
        progress = self._progress
        assert progress is not None, "the processes are started before they are waited for"
        in_order = sorted(range(len(self.run.jobs)), key=lambda index: self.run.jobs[index].arrival_s)
        rounds = {number: self.run.jobs[index].rounds for number, index in enumerate(in_order)}
        for event in progress.new():
            if event.kind == "round":
                number = event["job"]
                progress.rounds[number] = progress.rounds.get(number, 0) + 1
                if on_round is not None:
                    on_round(number, event["round"], rounds[number])
        return [number for number, count in rounds.items() if progress.rounds.get(number, 0) < count]

    def check(self) -> None:
        """Raise ``AgentError`` if a process ended by itself."""
        for name, process in self._processes.items():
            if not process.killed and process.child.has_ended:
                raise AgentError(f"the process {name} of the edge run has ended by itself; its message is above")

    def kill(self, name: str) -> float:
        """End a process by SIGKILL, as a failure of its machine would; the time, in monotonic seconds."""
        process = self._process(name)
        process.killed = True
        os.kill(process.child.pid, signal.SIGKILL)
        now = time.monotonic()
        process.child.close()
        return now

    def restart(self, name: str) -> float:
        """Start a process again that was killed; the time when it works, in monotonic seconds.

        It keeps nothing but what it wrote to its journal. The clients of a region begin anew.
        """
        process = self._process(name)
        if not process.killed:
            self.kill(name)
        again = self._processes[name] = self._made(name, process.incarnation + 1)
        again.child.start()
        if name.startswith(_TOLD):
            again.child.tell("go")
        return time.monotonic()

    def stop(self) -> None:
        running = [process for process in self._processes.values() if not process.killed]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda process: process.child.close(), running))
        for process in running:
            process.killed = True
        if self._progress is not None and self._progress.tail is not None:
            self._progress.tail.close()

    def events(self) -> list[Event]:
        """The events of all processes until now, in order of time."""
        noted: Iterable[Event] = (event for path in self._files if path.exists() for event in read_events(path))
        return sorted(noted, key=lambda event: event.t)

    def _made(self, name: str, incarnation: int) -> _Process:
        path = self._events_file(name, incarnation)
        self._files.append(path)
        open_binary(path, "ab").close()
        kind, number = split_name(name)
        role = {"kind": kind, "number": number, "incarnation": incarnation, "events": str(path.absolute())}
        fds = [fd for rank in self.run.ranks(name) if (fd := self.run.netns_fds[rank]) is not None]
        settings = {"run": self.run.plain(), "role": role}
        child = Child(MODULE, settings, fds, f"the process {name} of the edge run", patience_s=_PATIENCE_S)
        return _Process(child, incarnation)

    def _events_file(self, name: str, incarnation: int) -> Path:
        return self.run.folder / f"edge-{name}-{incarnation}.jsonl"

    def _process(self, name: str) -> _Process:
        try:
            return self._processes[name]
        except KeyError:
            raise RailyardError(
                f"an edge run has no process {name}; it has {', '.join(self._processes) or 'none'}"
            ) from None

    def __enter__(self) -> EdgeProcesses:
        return self if self._processes else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self.stop()
