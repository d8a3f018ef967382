"""Client of the agent launcher: a small warm process that forks the processes of agents.

Starting a Python with numpy takes a fifth of a second; forking a warm one takes a millisecond. The launcher is a
process of its own, so agents never inherit open files of the caller; it ends, with its agents, when the caller does::

    with AgentLauncher.start() as launcher:
        team = launcher.launch(configs, netns_fds)
        team.wait_ready()
        team.go(time.monotonic() + 0.05)
        team.wait_done(timeout=60)
        team.stop()

Several teams can run at once. A caller with a loop of its own selects on the launcher (``fileno``), reads its messages
(``listen(0)``) and then looks at the attributes of the teams; only ``check`` and ``wait_...`` raise for a failed agent.

Ranks that wait for one another all stand still when one of them hangs. Their loops still answer, and its loop does not:
``HangWatch`` finds it from the heartbeats.
"""

from __future__ import annotations

import array
import json
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from railyard.errors import AgentError, RailyardError
from railyard.liveness import Liveness
from railyard.loop import READ, Poller
from railyard.process.start import end_child, start_python
from workloads.agent.config import AgentConfig, configs_to_json

MISSES = 3
"""Heartbeats that may be missing in a row."""
_LATE_S = 0.1
_HANG_GRACE_S = 0.5
"""A check that is later than ``_LATE_S`` was delayed with the whole machine; it is put off once, so that heartbeats
that were delayed too may come."""


class Hang(NamedTuple):
    """A process that hangs (``subject``, with its verb), since when (``what``), and the ``rank`` whose step tells when.

    Rank -1: that of no single agent.
    """

    rank: int
    subject: str
    what: str


class HangWatch:
    """The heartbeats of the agents of one launch."""

    def __init__(self) -> None:
        self._liveness = Liveness()
        self._at_work: dict[int, int] = {}
        self._not_before = 0.0
        self._checked = 0.0

    def heard(self, rank: int, every_s: float, answers: int, at_work: int, now: float) -> None:
        """Take a heartbeat of the process of ``rank``, whose loop has answered so often and let ``at_work`` go on."""
        self._at_work[rank] = at_work
        if not self._liveness.heard(rank, now, answers):
            self._liveness.watch(rank, every_s, MISSES, now, answers)

    def ended(self, rank: int) -> None:
        self._liveness.forget([rank])

    def next_check(self) -> float:
        """When to ask ``complaint`` next; infinity if no agent is watched."""
        moment = self._liveness.next_check(self._checked)
        return float("inf") if moment is None else max(moment, self._not_before)

    def complaint(self, now: float) -> Hang | None:
        """The agent that hangs; None if none does.

        If no agent sends heartbeats any more, it is the process that starts them and passes their messages on.
        """
        due = self._liveness.next_check(self._checked)
        if due is None or now < max(due, self._not_before):
            return None
        if now > max(due, self._not_before) + _LATE_S:
            self._not_before = now + _HANG_GRACE_S
            return None
        silent, self._checked = self._liveness.silent(now), now
        if not silent:
            return None
        first = silent[0]
        if len(silent) == self._liveness.watched > 1 and not any(rank.hangs for rank in silent):
            silence = f"no agent has sent a heartbeat for {now - silent[-1].since:.1f} s"
            return Hang(-1, "the process that starts the agents hangs", silence)
        newest = self._liveness.newest()
        if not first.hangs and newest <= first.since + first.heartbeat_s:  # perhaps all agents stopped together
            self._not_before = newest + first.heartbeat_s * first.misses
            if now < self._not_before:
                return None
        for_s = now - first.since
        rank = self._at_work[first.rank]
        subject = f"the agent of rank {rank} hangs"
        if not first.hangs:
            return Hang(rank, subject, f"it has sent no heartbeat for {for_s:.1f} s")
        still = f"stood still for {for_s:.1f} s, perhaps for a disk that takes no data"
        if len(silent) == self._liveness.watched > 1 and all(rank.hangs for rank in silent):
            return Hang(-1, "all agents hang", f"their loops have {still}")
        return Hang(rank, subject, f"its loop has {still}")


FDS_PER_MESSAGE = 200
"""SCM_RIGHTS carries at most 253 (net/core/scm.h)."""
MESSAGE_BYTES = 1 << 16
_STOP_S = 3.0
_GRACE_S = 0.3
"""Time to wait, after the first failure, for the message of the rank that caused it."""
READY_S = 60.0
"""Longest time until every agent listens and has checked in, in seconds."""


class AgentStarter(Protocol):
    """Starts the agents of one machine, and passes on what they report."""

    def fork(self, team: int, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> None:
        """Start an agent per config, each in the network namespace of its descriptor (-1: that of the starter)."""

    def send(self, order: dict[str, Any]) -> None:
        """Send an order about a team."""

    def reports(self) -> Iterable[dict[str, Any]]:
        """The reports that have come, when ``fileno`` is readable or some are ``pending``; an error if it is gone."""

    @property
    def pending(self) -> bool:
        """Whether there are reports, although ``fileno`` may not be readable."""

    def fileno(self) -> int:
        """File descriptor for ``select``."""


class LauncherProcess:
    """The process that forks the agents of this machine, as an ``AgentStarter``, or other ``children``."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, children: str = "agents") -> None:
        self._process = process
        self._sock = sock
        self._gone = f"the process that starts the {children} is gone"

    @staticmethod
    def start(module: str = "workloads.agent.launcher_server", children: str = "agents") -> LauncherProcess:
        """Start it; early, and from a thread that lasts as long, as it ends with that."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = start_python(
                module,
                str(theirs.fileno()),
                environment={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
            )
        return LauncherProcess(process, ours, children)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def fork(self, team: int, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> None:
        self.launch(team, configs_to_json(configs), netns_fds)

    def launch(self, team: int, text: bytes, netns_fds: Sequence[int]) -> None:
        """Fork the processes that ``text`` describes, each in the network namespace of its descriptor."""
        carried = [fd for fd in netns_fds if fd >= 0]
        for start in range(0, len(carried), FDS_PER_MESSAGE):
            self.send({"fds": True}, carried[start : start + FDS_PER_MESSAGE])
        memory = os.memfd_create("railyard-agents")
        with os.fdopen(memory, "wb") as file:
            file.write(text)
            file.flush()
            self.send({"launch": team, "namespaces": [fd >= 0 for fd in netns_fds]}, [memory])

    def send(self, order: dict[str, Any], fds: Sequence[int] = ()) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._sock.sendmsg([json.dumps(order).encode()], ancillary)
        except OSError as error:
            raise AgentError(f"{self._gone} ({error.strerror})") from None

    def reports(self) -> Iterable[dict[str, Any]]:
        data = self._sock.recv(MESSAGE_BYTES)
        if not data:
            raise AgentError(self._gone)
        return [json.loads(data)]

    def close(self) -> None:
        self._sock.close()
        end_child(self._process, _STOP_S)


class AgentLauncher:
    """Starts teams of agents on the machines of ``starters``, and hears of them.

    ``machine_of`` gives the machine of each rank; a rank without one is on the first. ``process`` is one of the
    starters that is closed with it.
    """

    def __init__(self, starters: Mapping[str, AgentStarter], process: LauncherProcess | None = None) -> None:
        self.machine_of: Mapping[int, str] = {}
        self._starters = starters
        self._first = next(iter(starters))
        self.process = process
        self._ready = Poller()
        for starter in starters.values():
            self._ready.watch(starter.fileno(), READ)
        self._checks: dict[int, Callable[[], None]] = {}
        """What to call when a watched process ends, by the descriptor of the process."""
        self._teams: dict[int, AgentTeam] = {}
        self._next_team = 0

    @staticmethod
    def start() -> AgentLauncher:
        """That of this machine alone."""
        process = LauncherProcess.start()
        return AgentLauncher({"local": process}, process)

    def launch(self, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> AgentTeam:
        """Fork one agent per config, each in the network namespace of its descriptor (-1: that of its starter)."""
        number = self._next_team
        self._next_team += 1
        first_steps = {c.rank: c.incarnation.first_step if c.incarnation is not None else 0 for c in configs}
        team = self._teams[number] = AgentTeam(self, number, first_steps)
        for machine, starter in self._starters.items():
            pairs = zip(configs, netns_fds, strict=True)
            own = [pair for pair in pairs if self.machine_of.get(pair[0].rank, self._first) == machine]
            if own:
                starter.fork(number, *map(list, zip(*own, strict=True)))
        return team

    def send(self, order: dict[str, Any]) -> None:
        """Send an order about a team that was launched to all machines, then raise the first error of one."""
        errors = []
        for starter in self._starters.values():
            try:
                starter.send(order)
            except RailyardError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def fileno(self) -> int:
        """File descriptor for ``select``: readable when ``listen`` has a message to read."""
        return self._ready.fileno()

    @contextmanager
    def watching(self, pids: Iterable[int], check: Callable[[], None]) -> Iterator[None]:
        """Let ``listen`` call ``check``, which is to raise an error, as soon as one of the processes ``pids`` ends.

        A process that has ended already counts as one that ends at once.
        """
        watched: list[int] = []
        try:
            for pid in pids:
                try:
                    fd = os.pidfd_open(pid)
                except ProcessLookupError:
                    check()
                    continue
                watched.append(fd)
                self._checks[fd] = check
                self._ready.watch(fd, READ)
            yield
        finally:
            for fd in watched:
                self._checks.pop(fd, None)
                self._ready.forget(fd)
                os.close(fd)

    def listen(self, timeout: float) -> bool:
        """Read messages and pass them to their teams; False if none came within ``timeout`` seconds.

        Raises what the check of a watched process raises when that process has ended, and an error for a machine that
        is gone.
        """
        if any(starter.pending for starter in self._starters.values()):
            timeout = 0.0
        ready = [fd for fd, _ in self._ready.wait(math.inf, time.monotonic() + timeout)]
        for fd in ready:
            if fd in self._checks:
                self._ready.forget(fd)  # it stays readable
                self._checks.pop(fd)()
        heard = False
        for starter in self._starters.values():
            for message in starter.reports() if starter.pending or starter.fileno() in ready else ():
                heard = True
                if message["team"] in self._teams:  # one that was stopped and is gone may leave last messages
                    self._teams[message["team"]].update(message)
        return heard

    def forget(self, number: int) -> None:
        """Keep nothing more of a team whose agents have all exited."""
        self._teams.pop(number, None)

    def close(self) -> None:
        self._ready.close()
        if self.process is not None:
            self.process.close()

    def __enter__(self) -> AgentLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Failure:
    """Failure of the agent of ``rank``; a ``consequence`` of another rank's end is never the cause."""

    rank: int
    sentence: str
    consequence: bool = False


class AgentTeam:
    """The agents of one launch, with all that was reported about them up to the last ``AgentLauncher.listen``."""

    def __init__(self, launcher: AgentLauncher, number: int, first_steps: dict[int, int]) -> None:
        self._launcher = launcher
        self._number = number
        self.ranks = tuple(first_steps)
        self.pids: dict[int, int] = {}
        """Process id by rank, for agents that were started; several may share one."""
        self.steps: dict[int, int] = dict(first_steps)
        """Number of steps of the job done by each rank, those of earlier incarnations included."""
        self.checksums: dict[int, dict[int, int]] = {rank: {} for rank in first_steps}
        """Running checksum by rank and step, after that step."""
        self.checkpoints: dict[int, list[tuple[int, int]]] = {rank: [] for rank in first_steps}
        """By rank: (steps in it, checksum) of each checkpoint stored on its disk in this incarnation, in order."""
        self.ready: set[int] = set()
        """Ranks that wait for ``go``."""
        self.finished: set[int] = set()
        """Ranks that have done all steps (and have every checkpoint on disk)."""
        self.exited: dict[int, int] = {}
        """Exit status by rank (minus the signal's number)."""
        self.failures: list[Failure] = []
        """Failures in the order in which they were reported; the death of a killed agent is one too."""
        self._hang_watch = HangWatch()
        self._stopping = False

    def update(self, message: dict[str, Any]) -> None:
        rank = message["rank"]
        if "pid" in message:
            self.pids[rank] = message["pid"]
        if "exited" in message:
            self._exit(rank, message["exited"])
        news = message.get("said", {})
        if "alive" in news and rank not in self.exited:
            self._hang_watch.heard(rank, news["every_s"], news["alive"], news["at_work"], time.monotonic())
        if "ready" in news:
            self.ready.add(rank)
        if "step" in news:
            self.steps[rank] = news["step"] + 1
        if "state" in news:
            self.checksums[rank][news["state"]] = news["checksum"]
        if "checkpoint" in news:
            self.checkpoints[rank].append((news["checkpoint"], news["checksum"]))
        if "done" in news:
            self.finished.add(rank)
        if "error" in news:
            consequence = bool(news.get("consequence"))
            if not (consequence and self._stopping):  # a consequence of this stop
                self.failures.append(Failure(rank, news["error"], consequence))

    def _exit(self, rank: int, status: int) -> None:
        self.exited[rank] = status
        self._hang_watch.ended(rank)
        if self._stopping or status == AgentError.exit_status or (status == 0 and rank in self.finished):
            return  # an agent that exits with this status has reported the error
        if status < 0:
            how = f"was killed by signal {-status} ({_signal_name(-status)})"
        else:
            how = f"ended with status {status}"
        step = self.steps.get(rank, 0)
        sentence = f"the agent of rank {rank} {how} in step {step}, before its program was done"
        self.failures.append(Failure(rank, sentence))

    def wait_ready(self, timeout: float = READY_S) -> None:
        """Wait until every agent listens and has checked in; ``AgentError`` if one dies or is late."""
        self._wait(self.ready, timeout, "get ready")

    def go(self, t0: float) -> None:
        """Start the first step of all agents at monotonic time ``t0``."""
        self._launcher.send({"team": self._number, "say": {"go": t0}})

    def resume(self) -> None:
        """Have all agents, which outlive their controller, go on with the one that was started in its place."""
        self._launcher.send({"team": self._number, "say": {"resume": True}})

    def wait_done(self, timeout: float) -> None:
        """Wait until every agent has done all steps; ``AgentError`` with the last message of an agent that died."""
        self._wait(self.finished, timeout, "finish its program")

    def _wait(self, arrived: set[int], timeout: float, aim: str) -> None:
        end = time.monotonic() + timeout
        while len(arrived) < len(self.ranks):
            until = min(end, self.next_check())
            heard = self._launcher.listen(until - time.monotonic())
            self.check(heard)
            if not heard and time.monotonic() >= end:
                late = next(rank for rank in self.ranks if rank not in arrived)
                raise AgentError(f"the agent of rank {late} did not {aim} within {timeout:g} s")

    def next_check(self) -> float:
        """When to ``check`` next if no message comes."""
        return self._hang_watch.next_check()

    def check(self, heard: bool) -> None:
        """Raise ``AgentError`` for an agent that has failed, and for one that hangs unless messages were ``heard``.

        After messages more may wait to be read.
        """
        if self.failures:
            self._fail()
        complaint = None if heard else self._hang_watch.complaint(time.monotonic())
        if complaint is not None:
            step = self.steps.get(complaint.rank, min(self.steps.values()))
            raise AgentError(f"{complaint.subject} in step {step}: {complaint.what}")

    def _fail(self) -> None:
        """Raise the cause; if all failures so far are consequences, first wait for the failure that caused them."""
        end = time.monotonic() + _GRACE_S
        while all(bad.consequence for bad in self.failures) and self._launcher.listen(end - time.monotonic()):
            continue
        raise AgentError(min(self.failures, key=lambda bad: bad.consequence).sentence)

    def kill(self, rank: int, *, halt: bool = False) -> None:
        """Kill the agent of ``rank`` at once, like a failure of its machine; ``ValueError`` for an unknown rank.

        ``halt``: it only stands still, and its connections do not end, until it is killed.
        """
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} does not belong to this launch")
        self._launcher.send({"team": self._number, "kill": rank, "halt": halt})

    @property
    def gone(self) -> bool:
        return len(self.exited) == len(self.ranks)

    def begin_stop(self) -> None:
        """Tell all remaining agents to stop; those still running a second later are killed."""
        self._stopping = True
        self._launcher.send({"team": self._number, "stop": True})

    def stop(self) -> None:
        """Stop all remaining agents and wait until they have exited, processing their last messages."""
        self.begin_stop()
        end = time.monotonic() + _STOP_S
        while not self.gone and self._launcher.listen(end - time.monotonic()):
            continue
        if self.gone:
            self._launcher.forget(self._number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
