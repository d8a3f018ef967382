"""The agent launcher's process: forks agents on demand and forwards their messages.

It is single-threaded, so forking is safe. ``workloads.agent.launcher`` starts it with the number of its socket.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from railyard.errors import AgentError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.loop import READ, WRITE, Loop
from railyard.priority import set_priority, wake_in_time
from railyard.process.start import die_with_parent
from topos.kernel.namespaces import enter
from workloads.agent.agent_loop import AgentLoop, LauncherChannel, by_process
from workloads.agent.config import AgentConfig, configs_from_json
from workloads.agent.launcher import FDS_PER_MESSAGE, MESSAGE_BYTES
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.schedule import Schedule

_PR_SET_NAME = 15
"""Sets the name that ``ps`` and ``top`` show."""
_KILL_AFTER_S = 1.0
_NICE = -10
_libc = ctypes.CDLL(None, use_errno=True)

Act = Callable[[socket.socket, list[int]], int]
"""What a forked process does, given its end of the socket to its starter and the namespaces of its ranks (the first of
which it is in); returns its exit status."""


@dataclass(eq=False)
class AgentProcess:
    """One agent process; ``ranks`` are those that have not ended.

    ``partial_line`` holds the bytes of a message that is not complete.
    """

    team: int
    ranks: list[int]
    pid: int
    pidfd: int
    sock: socket.socket
    partial_line: bytes = b""

    def fileno(self) -> int:
        """A descriptor that is readable once the process has ended."""
        return self.pidfd


class LauncherServer:
    """Executes orders received over ``parent``; its end of file is the order to end everything.

    ``child`` and ``short`` name what it forks, in sentences and for ``ps``.
    """

    child, short = "agent", "g"

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._parent.setblocking(False)
        self._children: list[AgentProcess] = []
        self._namespaces: list[int] = []
        self._outgoing: deque[bytes] = deque()
        self._loop = Loop()
        self._loop.watch(self._parent, self._hear)

    def serve(self) -> None:
        try:
            while not self._loop.ended:
                self._loop.turn()
                self._flush()
        finally:
            for child in self._children:
                _kill(child)
            for child in self._children:
                os.waitpid(child.pid, 0)

    def _hear(self, events: int) -> None:
        if events & ~WRITE and not self._take_order():
            self._loop.ended = True

    # -- the runner ----------------------------------------------------------------------------------

    def _take_order(self) -> bool:
        """Execute one order; False at the end of file."""
        room = socket.CMSG_SPACE(FDS_PER_MESSAGE * 4)
        try:
            data, ancillary, _, _ = self._parent.recvmsg(MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        fds = _file_descriptors(ancillary)
        order = json.loads(data)
        if "fds" in order:
            self._namespaces += fds
        elif "launch" in order:
            self._launch(order["launch"], fds[0], order["namespaces"])
        elif "kill" in order:
            self._kill(order["team"], order["kill"], halt=bool(order.get("halt")))
        else:
            self._forward(order)
        return True

    def _forward(self, order: dict[str, Any]) -> None:
        for child in self._children:
            if child.team == order["team"]:
                self._tell(child, {"stop": True} if "stop" in order else order["say"])
                if "stop" in order:
                    self._loop.at(time.monotonic() + _KILL_AFTER_S, partial(_kill, child))

    def _tell(self, child: AgentProcess, order: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            child.sock.sendall(json.dumps(order).encode() + b"\n")

    def _kill(self, team: int, rank: int, *, halt: bool) -> None:
        for child in self._children:
            if child.team != team or rank not in child.ranks:
                continue
            if len(child.ranks) > 1:
                self._tell(child, {"kill": rank, "halt": halt})
            else:
                _kill(child, signal.SIGSTOP if halt else signal.SIGKILL)

    def _flush(self) -> None:
        with contextlib.suppress(OSError):
            while self._outgoing:
                self._parent.send(self._outgoing[0])
                self._outgoing.popleft()
        self._loop.watch(self._parent, self._hear, READ | (WRITE if self._outgoing else 0))

    def _report(self, child: AgentProcess, rank: int, **fields: Any) -> None:
        self._outgoing.append(json.dumps({"team": child.team, "rank": rank, **fields}).encode())

    # -- agents --------------------------------------------------------------------------------------

    def _launch(self, team: int, memory: int, have_namespaces: Sequence[bool]) -> None:
        with os.fdopen(memory, "rb") as file:
            file.seek(0)
            acts = self._acts(file.read())
        gc.collect()
        gc.freeze()
        for ranks, act in acts:
            have, have_namespaces = have_namespaces[: len(ranks)], have_namespaces[len(ranks) :]
            namespaces = [self._namespaces.pop(0) for has_namespace in have if has_namespace]
            self._fork(team, ranks, act, namespaces)
            for namespace in namespaces:
                os.close(namespace)

    def _acts(self, text: bytes) -> list[tuple[list[int], Act]]:
        """The ranks of each process of a launch, and its act; what processes share is made here, before any fork."""
        configs = configs_from_json(text)
        facts = _warm_up(configs)
        acts: list[tuple[list[int], Act]] = []
        for own in by_process(configs, len(os.sched_getaffinity(0))):
            of_process = facts.of_one(_places(own[0])) if len(own) == 1 else facts
            acts.append(([config.rank for config in own], partial(_run_agents, own, of_process)))
        return acts

    def _fork(self, team: int, ranks: list[int], act: Act, namespaces: list[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        launcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_child(ranks[0], act, theirs, namespaces, launcher)
        theirs.close()
        child = AgentProcess(team, ranks, pid, os.pidfd_open(pid), ours)
        self._children.append(child)
        self._loop.watch(ours, lambda _: self._read(child))
        self._loop.watch(child, lambda _: self._reap(child))
        for rank in ranks:
            self._report(child, rank, pid=pid)

    def _be_child(self, rank: int, act: Act, control: socket.socket, namespaces: list[int], launcher: int) -> NoReturn:
        status = 1
        try:
            die_with_parent(launcher)
            _libc.prctl(_PR_SET_NAME, f"railyard-{self.short}{rank}".encode(), 0, 0, 0)
            if namespaces:
                enter(namespaces[0])
            control = _keep_only(control, namespaces)
            status = act(control, namespaces)
        except BaseException as error:
            with contextlib.suppress(OSError):
                sentence = f"the {self.child} of rank {rank} failed: {type(error).__name__}: {error}"
                LauncherChannel(control).report_error(rank, sentence, consequence=False)
                status = AgentError.exit_status
        finally:
            os._exit(status)

    def _read(self, child: AgentProcess) -> None:
        try:
            data = child.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._loop.forget(child.sock)  # not after closing: agents that are being forked have the descriptor too
            child.sock.close()
            return
        *lines, child.partial_line = (child.partial_line + data).split(b"\n")
        for line in lines:
            news = json.loads(line)
            rank = news.pop("rank") if "rank" in news else child.ranks[0]
            if "exited" in news:
                child.ranks.remove(rank)
                self._report(child, rank, **news)
            else:
                self._report(child, rank, said=news)

    def _reap(self, child: AgentProcess) -> None:
        while child.sock.fileno() >= 0:  # read its last messages first
            self._read(child)
        _, status = os.waitpid(child.pid, 0)
        self._loop.forget(child)
        os.close(child.pidfd)
        child.pidfd = -1
        self._children.remove(child)
        for rank in child.ranks:
            self._report(child, rank, exited=os.waitstatus_to_exitcode(status))


def _kill(child: AgentProcess, how: signal.Signals = signal.SIGKILL) -> None:
    """Kill an agent, like a failure of its machine, unless it has ended; with SIGSTOP it stands still."""
    if child.pidfd >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, how)


def _file_descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _warm_up(configs: list[AgentConfig]) -> ScheduleFacts:
    """Build (and verify) every schedule once, and what all ranks need to know of it, before forking."""
    facts = ScheduleFacts()
    for config in configs[:1]:
        for operations in config.program.operations:
            for op in operations:
                if isinstance(op, Collective):
                    with contextlib.suppress(RailyardError):  # the agent that needs the schedule reports the error
                        facts.prepare(schedule_of(config.program, op))
    return facts


def _places(config: AgentConfig) -> Iterator[tuple[Schedule, int]]:
    """The schedules of a rank's collectives, with its positions in them."""
    program = config.program
    with contextlib.suppress(RailyardError, LookupError, ValueError):  # the agent reports the error
        for op in program.communications(config.rank):
            if isinstance(op, Collective):
                yield schedule_of(program, op), program.groups[op.group].members.index(config.rank)


def _run_agents(
    configs: Sequence[AgentConfig], facts: ScheduleFacts, control: socket.socket, namespaces: list[int]
) -> int:
    """Run agents with a high priority: they stand in for hardware and must react at once."""
    wake_in_time()
    set_priority(_NICE)
    try:
        return AgentLoop(configs, namespaces, control, facts).run()
    except RailyardError as error:  # of the first agent that could not be made
        LauncherChannel(control).report_error(configs[0].rank, str(error), consequence=False)
        return AgentError.exit_status


def _keep_only(control: socket.socket, namespaces: Sequence[int]) -> socket.socket:
    """Close all files but these; the socket gets a low number: ``select`` has room for those below 1024 only."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != control.fileno() and fd not in namespaces:
            with contextlib.suppress(OSError):
                os.close(fd)
    low = control.dup()
    control.close()
    return low


def main() -> None:
    die_with_parent()
    set_priority(_NICE)
    allow_all_open_files()
    LauncherServer(socket.socket(fileno=int(sys.argv[1]))).serve()
