"""The process that imports torch once and forks a user's script as ranks. Needs torch.

``workloads.pytorch.script_ranks`` starts it with the number of its socket. Orders and reports are those of the process
that starts agents.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import socket
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch
import torch._dynamo  # what a first step would import in each rank (a second of its processor), once for all

from railyard.errors import AgentError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.ownership import open_text
from railyard.process.start import as_caller, die_with_parent
from railyard.reading import read_text
from workloads.agent.launcher_server import Act, LauncherServer
from workloads.pytorch.course import Course
from workloads.pytorch.group import take_over
from workloads.pytorch.script_ranks import RECORDED_CALLS, ScriptLaunch, ScriptRank, awaited_plain, launch_from_json
from workloads.pytorch.trace import RankTrace, TraceEvent, line

_WATCH_S = 1.0
_WAIT_S = 6.0
"""A wait that lasts so long is reported, every ``_WATCH_S``."""
_CONSEQUENCE_S = 0.5
"""How long the failure that follows from the end of another rank stays, so that the other's is known first."""
_PEER_LOST = "Connection closed by peer", "Connection reset by peer", "Broken pipe"
_MOST_TEXT = 20_000
"""Most characters of a traceback in a report, which must fit into a message."""
_MOST_CALLS_BYTES = 64 << 20


class ScriptServer(LauncherServer):
    """Forks the ranks of a script on order."""

    child, short = "script", "s"

    def _acts(self, text: bytes) -> list[tuple[int, Act]]:
        launch = launch_from_json(text)
        return [(rank.rank, partial(run_rank, launch, rank)) for rank in launch.ranks]


class Reporter:
    """The rank's end of the socket to its starter: reports what it waits for, and takes the order to end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._well = threading.Event()
        self._reported = False

    def tell(self, **news: Any) -> None:
        with self._lock:
            self._control.sendall(json.dumps(news).encode() + b"\n")

    def watch(self, course: Course) -> None:
        """Serve until the order to end, which ends the process; for a thread of its own."""
        before, since = None, 0.0
        while not select.select([self._control], [], [], _WATCH_S)[0]:
            awaited, now = course.awaited, time.monotonic()
            if awaited is not before:
                before, since = awaited, now
            if awaited is not None and now >= since + _WAIT_S:
                self._reported = True
                self.tell(waits=awaited_plain(awaited), made=dict(course.made))
            elif self._reported and awaited is None:
                self._reported = False
                self.tell(waits=None, made={})
        os._exit(0 if self._well.is_set() else 1)

    def leave(self, course: Course) -> NoReturn:
        """Tell that the script has ended well, and wait for the order to end: others may need this rank's store."""
        self.tell(step=course.step, computes=course.end())
        self._well.set()
        self.tell(done=True)
        while True:
            time.sleep(3600)


def run_rank(launch: ScriptLaunch, rank: ScriptRank, control: socket.socket) -> int:
    """Run the script as ``rank`` in this process, a fork; returns the status with which it ends."""
    reporter = Reporter(control)
    with open_text(rank.output, "w") as output:
        for fd in (1, 2):
            os.dup2(output.fileno(), fd)
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1, encoding="utf-8", closefd=False) for fd in (1, 2))
    try:
        course = _course(rank)
        _become_caller()
        _set_environment(rank)
        os.chdir(launch.folder)
        torch.set_num_threads(1)
        take_over(course, strict=launch.strict)
        threading.Thread(target=reporter.watch, args=[course], daemon=True).start()
        if rank.steps:
            _end_after(rank.steps, course, reporter)
        status = _run_script(launch)
        if status == 0:
            _end_interpreter()
            reporter.leave(course)
        return status
    except RailyardError as error:
        print(f"railyard: {error}", file=sys.stderr)
        reporter.tell(error=str(error))
        return AgentError.exit_status
    except BaseException as error:
        return _tell_exception(error, rank, launch, reporter)


def _course(rank: ScriptRank) -> Course:
    """Opens what the rank writes and connects to its agent, which a user who called sudo may not."""
    write = _no_trace
    if rank.trace:
        file = open_text(rank.trace, "w", buffering=1)
        file.write(next(RankTrace(rank.rank, rank.world, ()).lines()) + "\n")
        write = partial(_write, file)
    if not rank.socket:
        return Course(rank, write, None, ())
    from workloads.pytorch.rail_client import RailClient

    text = read_text(Path(rank.calls), _MOST_CALLS_BYTES, "the calls of a recorded step")
    return Course(rank, write, RailClient(rank.socket, 60.0), RECORDED_CALLS.validate_json(text))


def _no_trace(_: TraceEvent) -> None:
    """Without a trace to write."""


def _write(file: TextIO, event: TraceEvent) -> None:
    file.write(line(event) + "\n")


def _become_caller() -> None:
    """Under sudo the script is that of the caller, who owns the files that it makes."""
    options, parent = as_caller(), os.getppid()
    if "user" in options:
        os.setgroups(options["extra_groups"])
        os.setgid(options["group"])
        os.setuid(options["user"])
        die_with_parent(parent)  # the kernel forgets it with the change of user
        os.environ.update((name, options["env"][name]) for name in ("HOME", "USER", "LOGNAME"))


def _set_environment(rank: ScriptRank) -> None:
    """What torchrun sets, and the network interface of gloo; nothing of how children of ours find modules."""
    for name in ("PYTHONSAFEPATH", "SETUPTOOLS_USE_DISTUTILS"):
        os.environ.pop(name, None)
    os.environ.update(
        RANK=str(rank.rank),
        WORLD_SIZE=str(rank.world),
        LOCAL_RANK=str(rank.local_rank),
        LOCAL_WORLD_SIZE=str(rank.local_world),
        GROUP_RANK=str(rank.rank // rank.local_world),
        GROUP_WORLD_SIZE=str(-(-rank.world // rank.local_world)),
        ROLE_NAME="default",
        ROLE_RANK=str(rank.rank),
        ROLE_WORLD_SIZE=str(rank.world),
        MASTER_ADDR=rank.master,
        MASTER_PORT=str(rank.port),
        GLOO_SOCKET_IFNAME=rank.interface,
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        TORCHELASTIC_RUN_ID="railyard",
    )


def _end_after(steps: int, course: Course, reporter: Reporter) -> None:
    stepped = course.stepped

    def step() -> None:
        stepped()
        if course.step == steps:
            reporter.leave(course)

    vars(course)["stepped"] = step


def _run_script(launch: ScriptLaunch) -> int:
    sys.argv = [launch.script, *launch.arguments]
    sys.path.insert(0, str(Path(launch.script).absolute().parent))
    try:
        runpy.run_path(launch.script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _end_interpreter() -> None:
    """What Python does at the end of a script: other threads end, and functions registered for the end are called."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()
    atexit._run_exitfuncs()


def _tell_exception(error: BaseException, rank: ScriptRank, launch: ScriptLaunch, reporter: Reporter) -> int:
    """Show the script's own traceback, from the script on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != launch.script:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    print(text, file=sys.stderr, end="")
    last = text.strip().splitlines()[-1]
    consequence = any(words in text for words in _PEER_LOST)
    sentence = f"the script of rank {rank.rank} died with status 1: {last}"
    if consequence:
        time.sleep(_CONSEQUENCE_S)
    reporter.tell(error=sentence[:_MOST_TEXT], traceback=text[-_MOST_TEXT:], consequence=consequence)
    return 1


def main() -> None:
    die_with_parent()
    allow_all_open_files()
    torch.set_num_threads(1)
    ScriptServer(socket.socket(fileno=int(sys.argv[1]))).serve()
