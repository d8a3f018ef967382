"""The process that imports torch once and forks a user's script as ranks. Needs torch.

``workloads.pytorch.script_ranks`` starts it with the number of its socket. Orders and reports are those of the process
that starts agents.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import sys
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed.fsdp  # this and the next: what ranks would import each, once for all
import torch.distributed.pipelining

from railyard.checkout import ROOT
from railyard.errors import AgentError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.ownership import open_text
from railyard.process.start import become_caller, die_with_parent
from railyard.reading import read_text
from railyard.validation import from_plain
from workloads.agent.launcher_server import Act, LauncherServer
from workloads.pytorch.course import Course
from workloads.pytorch.group import take_over
from workloads.pytorch.rail_client import RailClient
from workloads.pytorch.script_ranks import RECORDED_CALLS, ScriptLaunch, ScriptRank
from workloads.pytorch.trace import RankTrace, TraceEvent, line
from workloads.pytorch.user_script import after_steps, own_traceback, run_script, set_environment

_WATCH_S = 1.0
_WAIT_S = 6.0
"""A wait that lasts so long is reported, every ``_WATCH_S``."""
_CONSEQUENCE_S = 0.5
"""How long the failure that follows from the end of another rank stays, so that the other's is known first."""
_PEER_LOST = "Connection closed by peer", "Connection reset by peer", "Broken pipe"
_MOST_TEXT = 40_000
"""Most bytes of a traceback in a report, which must fit into a message with its sentence."""
_MOST_CALLS_BYTES = 64 << 20
_CONNECT_S = 60.0
_TRACED_STEPS = 100
"""Steps of a rank with an agent that are traced: a long job would fill the disk, and its reader the memory."""


class ScriptServer(LauncherServer):
    """Forks the ranks of a script on order."""

    child, short = "script", "s"

    def _acts(self, text: bytes) -> list[tuple[list[int], Act]]:
        launch = from_plain(ScriptLaunch, text, "the ranks of a script")
        return [([rank.rank], partial(run_rank, launch, rank)) for rank in launch.ranks]


class Reporter:
    """The rank's end of the socket to its starter: reports what it waits for, and takes the order to end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._well = False

    def tell(self, **news: Any) -> None:
        with self._lock:
            self._control.sendall(json.dumps(news).encode() + b"\n")

    def watch(self, course: Course) -> None:
        """Serve until the order to end, which ends the process; for a thread of its own."""
        before, since, reported = None, 0.0, False
        while not select.select([self._control], [], [], _WATCH_S)[0]:
            awaited, now = course.awaited, time.monotonic()
            if awaited is not before:
                before, since = awaited, now
            waits = awaited is not None and now >= since + _WAIT_S
            if waits or reported:
                self.tell(waits=asdict(awaited) if waits and awaited is not None else None, made=dict(course.made))
            reported = waits
        os._exit(0 if self._well else 1)

    def leave(self, course: Course) -> NoReturn:
        """Tell that the script has ended well, and wait for the order to end: others may need this rank's store."""
        course.end()
        self._well = True
        self.tell(done=True, computes=course.pace.report)
        while True:
            time.sleep(3600)


def run_rank(launch: ScriptLaunch, rank: ScriptRank, control: socket.socket, _: list[int]) -> int:
    """Run the script as ``rank`` in this process, a fork; returns the status with which it ends."""
    reporter = Reporter(control)
    with open_text(rank.output, "w") as output:
        for fd in (1, 2):
            os.dup2(output.fileno(), fd)
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1, encoding="utf-8", closefd=False) for fd in (1, 2))
    try:
        course = _course(rank)
        become_caller()  # who owns the files that the script makes
        _set_environment(rank)
        os.chdir(launch.folder)
        torch.set_num_threads(1)
        take_over(course, strict=launch.strict)

        def stepped() -> None:
            course.stepped()
            reporter.tell(step=course.step)
            if course.step == rank.steps:
                reporter.leave(course)

        after_steps(stepped)
        threading.Thread(target=reporter.watch, args=[course], daemon=True).start()
        status = run_script(launch.script, launch.arguments)
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

    def write(event: TraceEvent) -> None:
        if file is not None and not (rank.socket and event.step >= _TRACED_STEPS):
            file.write(line(event) + "\n")

    file = open_text(rank.trace, "w", buffering=1) if rank.trace else None
    if file is not None:
        file.writelines(f"{head}\n" for head in RankTrace(rank.rank, rank.world, ()).lines())
    if not rank.socket:
        return Course(rank, write)
    text = read_text(Path(rank.calls), _MOST_CALLS_BYTES, "the calls of a recorded step")
    return Course(rank, write, RailClient(rank.socket, _CONNECT_S), RECORDED_CALLS.validate_json(text))


def _set_environment(rank: ScriptRank) -> None:
    """Set the variables of torchrun and the interface of gloo, and remove those by which our children find modules."""
    for name in ("PYTHONSAFEPATH", "SETUPTOOLS_USE_DISTUTILS"):
        os.environ.pop(name, None)
    places = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place != str(ROOT))
    set_environment(rank.rank, rank.world, rank.local_rank, rank.local_world, rank.master, rank.port)
    os.environ["GLOO_SOCKET_IFNAME"] = rank.interface


def _end_interpreter() -> None:
    """End as Python does after a script: wait for other threads, and call the functions registered for the end."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()
    atexit._run_exitfuncs()


def _tell_exception(error: BaseException, rank: ScriptRank, launch: ScriptLaunch, reporter: Reporter) -> int:
    text = own_traceback(error, launch.script)
    print(text, file=sys.stderr, end="")
    consequence = any(words in text for words in _PEER_LOST)
    if consequence:
        time.sleep(_CONSEQUENCE_S)
    sentence = f"the script of rank {rank.rank} died with status 1: {text.strip().splitlines()[-1]}"
    while len(json.dumps(text)) > _MOST_TEXT:  # a character may have twelve bytes there
        text = text[len(text) // 8 + 1 :]
    reporter.tell(error=sentence[:1000], traceback=text, consequence=consequence)
    return 1


def main() -> None:
    die_with_parent()
    allow_all_open_files()
    torch.set_num_threads(1)
    ScriptServer(socket.socket(fileno=int(sys.argv[1]))).serve()
