"""The process of a lab: it holds the fabric, and serves clients on a Unix socket until it is asked to go down."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from commands.attempt import STOPPED_EXIT_STATUS, attempted
from commands.lab.client import NAME, PASSED, SOCKET, labs
from commands.lab.lab import Lab, LabSpec
from experiments.rest_access import read_token, rest_access
from experiments.settings import PacketSettings
from experiments.timetable import TimedAct, Timetable
from railyard.accepting import caller
from railyard.checkout import ROOT
from railyard.errors import ConfigError, MachineError, RailyardError
from railyard.loop import Loop
from railyard.process.connection import Connection, taken_fd
from railyard.process.parent import LATER, Answering, Parent, outcome_of
from railyard.process.start import has_ended, python_command, start_fork
from railyard.signals import stop_on_signals

_BACKLOG = 64
_MOST_CLIENTS = 256


class LabServer:
    """Serves the clients of a lab. Their connections end with the process, and so tell that all is gone."""

    def __init__(self, lab: Lab, loop: Loop, path: Path) -> None:
        self.lab, self.loop = lab, loop
        self.clients: set[LabClient] = set()
        mask = os.umask(0o177)
        try:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
        finally:
            os.umask(mask)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        loop.watch(self._listener, self._accept)
        lab.begin_timetable = self._wait_for

    @property
    def is_running(self) -> bool:
        """Whether a job runs on the lab."""
        return any(client.is_running for client in self.clients)

    def _accept(self, _: int) -> None:
        with suppress(BlockingIOError):
            sock, _address = self._listener.accept()
            if len(self.clients) == _MOST_CLIENTS:
                sock.close()
            else:
                self.clients.add(LabClient(self, sock))

    def _wait_for(self, timetable: Timetable[TimedAct]) -> None:
        """Do what a timetable says, each at its time."""
        timetable.run_due(time.monotonic())
        if timetable.left:
            self.loop.at(timetable.next_time(), partial(self._wait_for, timetable))

    def close(self) -> None:
        self._listener.close()
        for client in self.clients:
            client.end_acts()


class LabClient(Answering):
    """One client of a lab, and the processes that act for it."""

    def __init__(self, server: LabServer, sock: socket.socket) -> None:
        self._pid, _ = caller(sock)
        fd = sock.detach()
        super().__init__(Connection(fd, fd, "a client of the lab"))
        self._server = server
        self._acts: dict[int, Act] = {}
        """The processes that act for the client, by the number of the request."""
        own: dict[str, Callable[..., Any]] = {
            "act": self.act,
            "interrupt": self.interrupt,
            "down": self.down,
            "enter": self.enter,
            "mpi": self.mpi,
            "mark": self.mark,
        }
        self.operations = {**server.lab.operations, **own}
        server.loop.watch(self, self._arrived)

    def _arrived(self, _: int) -> None:
        try:
            self.take()
        except MachineError:
            if not self.connection.ended:
                raise
            self.close()

    def enter(self, host: str) -> dict[str, Any]:
        place = self._server.lab.enter(host)
        return {**place, "netns": f"/proc/{os.getpid()}/fd/{place['netns']}"}

    def mpi(self) -> dict[str, Any]:
        """All hosts, how to enter the first, where ``mpirun`` starts, and a program that starts others as ssh does."""
        lab = self._server.lab
        hosts = [host.name for host in lab.net.hosts]
        agent = lab.net.run.path / "on_host"
        if not agent.exists():  # else a start that is under way may read it
            python = shlex.join([*python_command("commands.main"), "exec", "--lab", lab.spec.name])
            start = f'host="$1"; shift; PYTHONPATH={shlex.quote(str(ROOT))} exec {python} "$host" -- sh -c "$*"'
            agent.write_text(f"#!/bin/sh\n{start}\n")
            agent.chmod(0o700)
        return {"hosts": hosts, "first": self.enter(hosts[0]), "agent": str(agent)}

    def down(self, words: list[str]) -> None:
        if words:
            raise ConfigError("takes no words but --lab NAME", key="down")
        self._server.loop.ended = True

    def act(self, words: list[str], environment: dict[str, str]) -> Any:
        """Carry ``words`` out in a fork, with the streams, folder and ``environment`` of the client's process."""
        number = self.asked
        assert number is not None
        if words[:1] == ["run"]:
            self._check_run()
        client = os.pidfd_open(self._pid)
        try:
            streams = [taken_fd(client, stream) for stream in range(3)]
        finally:
            os.close(client)
        child = start_fork(partial(_act, self._server.lab, words, environment, streams, self._pid))
        for stream in streams:
            os.close(stream)
        self._acts[number] = Act(child, runs=words[:1] == ["run"])
        self._server.loop.watch(self._acts[number], partial(self._ended, number))
        return LATER

    def _check_run(self) -> None:
        """Raise ``ConfigError`` where a job cannot run: with an app of the user, or beside what reads counters too."""
        lab = self._server.lab
        if lab.spec.controller == "remote":
            raise ConfigError(
                "asks no app of yours; railyard run rails --controller remote does, on its own fabric", key="run"
            )
        if self._server.is_running:
            raise ConfigError("another job runs on this lab; wait for its end", key="run")
        if lab.stretch is not None:
            raise ConfigError(f"the stretch '{lab.stretch.name}' is under way; railyard verdict ends it", key="run")

    def mark(self, words: list[str]) -> str:
        if self._server.is_running:
            raise ConfigError("a job runs on this lab, which has a verdict of its own; wait for its end", key="mark")
        return self._server.lab.mark(words)

    @property
    def is_running(self) -> bool:
        return any(act.runs for act in self._acts.values())

    def _ended(self, number: int, _: int) -> None:
        act = self._acts.pop(number)
        self._server.loop.forget(act)
        self.reply(number, result=act.wait())
        with suppress(RailyardError):  # which the next status tells
            self._server.lab.follow()

    def interrupt(self, number: int) -> None:
        if number in self._acts:
            self._acts[number].send(signal.SIGINT)

    def close(self) -> None:
        """Forget the client, and end what acts for it."""
        self._server.clients.discard(self)
        self._server.loop.forget(self)
        self.end_acts()
        self.connection.close()

    def end_acts(self) -> None:
        for act in self._acts.values():
            self._server.loop.forget(act)
            act.send(signal.SIGTERM)
            if not has_ended(act.pid, _PATIENCE_S):
                act.send(signal.SIGKILL)
            act.wait()
        self._acts.clear()


class Act:
    """A fork of the daemon that acts for a client; its descriptor is readable once it has ended."""

    def __init__(self, pid: int, *, runs: bool) -> None:
        self.pid, self.runs = pid, runs
        self._fd = os.pidfd_open(pid)

    def fileno(self) -> int:
        return self._fd

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def wait(self) -> int:
        """Wait for its end; its exit status, or the number of the signal that ended it."""
        os.close(self._fd)
        return abs(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))


_PATIENCE_S = 2.0


def _listening(spec: LabSpec) -> socket.socket | None:
    """The socket of the REST interface, where one is asked for; ``ConfigError`` if it or its token cannot be had."""
    if not spec.rest:
        return None
    from commands.lab.rest import reserved

    if spec.rest_token_file:
        read_token(Path(spec.rest_token_file))
    return reserved(spec.rest)


def _serve_rest(spec: LabSpec, held: socket.socket | None, folder: Path, add_child: Callable[[int], None]) -> str:
    """Serve REST on ``held`` in a fork; a line that tells how to call it."""
    if held is None:
        return ""
    access = rest_access(PacketSettings(rest=spec.rest, rest_token_file=spec.rest_token_file or None), held, folder)
    assert access is not None
    with held:
        add_child(start_fork(lambda: _serve(held, access.token, spec.name)))
    return f"\nREST on http://{access.address}/lab\n  with the token in {access.file}"


def _serve(held: socket.socket, token: str, name: str) -> int:
    from commands.lab.rest import serve

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return serve(held, token, name)


def _act(lab: Lab, words: list[str], environment: dict[str, str], streams: list[int], client: int) -> int:
    """In a fork of the daemon: carry ``words`` out as the command line would; the exit status."""
    with suppress(OSError):
        os.chdir(f"/proc/{client}/cwd")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the one of the daemon was empty
    for key in [key for key in os.environ if key.startswith(PASSED)]:
        del os.environ[key]
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    stop_on_signals()
    verb, *rest = words
    return attempted(lambda: _ACTS[verb](lab, rest))


def _prompt(lab: Lab, words: Sequence[str]) -> int:
    if words:
        raise ConfigError("takes no words but --lab NAME", key="cli")
    from experiments.rails.cli import RailCLI

    RailCLI(lab.net, lab.session if lab.circuits() else None, lab.reach)
    return 0


def _pingall(lab: Lab, words: Sequence[str]) -> int:
    if words:
        raise ConfigError("takes no words but --lab NAME", key="pingall")
    if lab.plan is None or lab.spec.controller == "remote":  # whose circuits only pings can tell
        lab.net.pingAll(1)
        return 0
    lab.follow()
    for line in lab.reach.ping_all():
        print(line, flush=True)
    return 0


def _trace(lab: Lab, words: Sequence[str]) -> int:
    if len(words) != 2:
        raise ConfigError("usage: railyard trace HOST HOST")
    from measure.live.trace import trace

    here, there = words
    print(trace(lab.net, here, there))
    return 0


def _run(lab: Lab, words: Sequence[str]) -> int:
    if lab.session is None:
        raise ConfigError("this lab has no plan of ranks; jobs run on rails, racks or edge with a controller")
    from commands.run import main

    return main(words, standing=lab.session)


_ACTS: dict[str, Callable[[Lab, Sequence[str]], int]] = {
    "cli": _prompt,
    "pingall": _pingall,
    "run": _run,
    "trace": _trace,
}


def main() -> int:
    """Bring the lab of the settings up, tell the parent, and serve until it is taken down."""
    stop_on_signals()
    parent = Parent()
    _print_to(os.memfd_create("lab.log"))  # nothing that the lab starts may hold the terminal or pipe of the caller
    told = False
    try:
        with ExitStack() as stack:
            settings = parent.settings
            spec = LabSpec(**{key: value for key, value in settings.items() if key != "op"})
            spec.check()
            lab = Lab(spec)
            held = stack.enter_context(socket.socket(socket.AF_UNIX))
            _hold_name(held, spec.name)
            rest = _listening(spec)
            loop = Loop()
            stack.enter_context(lab)
            folder = lab.net.run.path
            (folder / NAME).write_text(spec.name, encoding="utf-8")
            line = _serve_rest(spec, rest, folder, lab.net.run.add_child)
            server = LabServer(lab, loop, folder / SOCKET)
            stack.callback(server.close)
            parent.ready(status=lab.status() + line)
            told = True
            parent.connection.close()
            loop.run()
    except KeyboardInterrupt:
        return STOPPED_EXIT_STATUS
    except Exception as error:
        if told:
            raise
        parent.tell("error", of="up", **outcome_of(error, "up"))
        return 1
    return 0


def _hold_name(held: socket.socket, name: str) -> None:
    """Hold the name of a lab for as long as this process lives; ``ConfigError`` if another lab has it."""
    try:
        held.bind(f"\0railyard/lab/{name}")
    except OSError:
        taken = f"is up already; choose another name, or railyard down --lab {name}"
        other = "has its name taken by another process; choose another name"
        raise ConfigError(f"the lab '{name}' {taken if name in labs() else other}") from None


def _print_to(fd: int) -> None:
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
