"""The controller of a run as a child process.

The process starts in the yard, reports on a pipe that every switch has connected, and is ended by its pid.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from controllers.openflow import app
from experiments.rest_access import RestAccess
from measure.results.results import CONTROLLER_LOG
from railyard.errors import ControlError
from railyard.ownership import invoker, open_binary, remove_file
from railyard.point_folder import CONTROLLER
from railyard.process.start import end_child, start_python
from topos.plan import FabricPlan

READY_TIMEOUT_S = 30.0
_PATIENCE_S = 2.0
"""Time that a controller has to end after SIGTERM."""
_CHECK_S = 0.2


@dataclass(frozen=True)
class ControllerFiles:
    """Files of a controller: plan (read), socket of the job channel, events and log (written).

    ``results`` is the results folder with the points that it is told to write to; ``events`` is for all others.
    """

    plan: Path
    channel: Path
    events: Path
    log: Path
    results: Path | None = None

    @classmethod
    def written(cls, folder: Path, plan: FabricPlan, data: Path) -> ControllerFiles:
        """The files of a new controller, with ``plan`` written in ``folder``; its log and points are in ``data``.

        Events and log that an earlier controller left are removed.
        """
        folder, data = folder.absolute(), data.absolute()
        files = cls(folder / "plan.json", folder / "job.sock", folder / CONTROLLER, data / CONTROLLER_LOG, data)
        for old in (files.events, files.log):
            remove_file(old)
        files.plan.write_text(json.dumps(asdict(plan)), encoding="utf-8")
        return files


class ControllerProcess:
    """``python -m controllers.main`` as a child process; the context manager ends it in every case.

    ``exact_barriers``: packets follow when a switch replies to a barrier, as where the kernel forwards for it
    (``Emulation.datapath`` is not ``ovs``). ``rest`` is the access to a REST interface, which is at the address
    ``rest_address`` once the controller is ready. ``ovsdb`` is the socket of the database of the switches, if
    these are to connect again at once after a connection is lost. ``open_channel``: all who can enter the folder of
    the job channel can open it. ``takes_over``: the switches keep the circuits that they have of an earlier controller.
    ``own_app``: the socket at which it asks an app of the user's for circuits, and the folder with the management
    sockets of the switches; it needs no framework then.
    ``MachineError`` if the OpenFlow ``framework`` is not installed.
    """

    def __init__(
        self,
        files: ControllerFiles,
        framework: str,
        yard_netns: int,
        rest: RestAccess | None = None,
        exact_barriers: bool = False,
        ovsdb: Path | None = None,
        *,
        open_channel: bool = False,
        takes_over: bool = False,
        own_app: tuple[Path, Path] | None = None,
    ) -> None:
        if own_app is None:
            app.check_installed(framework)
        self._own_app = own_app
        self.files = files
        self.rest_address: str | None = None
        self._ready_read, ready_write = os.pipe()
        arguments = [
            *("--plan", str(files.plan), "--channel", str(files.channel), "--events", str(files.events)),
            *([] if files.results is None else ["--points", str(files.results)]),
            *(["--framework", framework] if own_app is None else _app_options(*own_app)),
            *("--yard-netns", str(yard_netns), "--ready-fd", str(ready_write)),
            *(["--exact-barriers"] if exact_barriers else []),
            *(["--ovsdb", str(ovsdb)] if ovsdb is not None else []),
            *(["--open-channel"] if open_channel else []),
            *(["--take-over"] if takes_over else []),
        ]
        fds = [yard_netns, ready_write]
        shared = []
        if rest is not None:
            fds.append(_filled_pipe(rest.token))
            arguments += ["--rest", rest.address, "--rest-token-fd", str(fds[-1])]
            if rest.held is not None:
                shared.append(rest.held.fileno())
                arguments += ["--rest-fd", str(shared[0])]
        try:
            with open_binary(files.log, "ab") as log:
                self.process: subprocess.Popen[bytes] = start_python(
                    "controllers.main",
                    *arguments,
                    stdout=log,
                    stderr=log,
                    pass_fds=[*fds, *shared],
                )
        finally:
            for fd in fds[1:]:
                os.close(fd)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(
        self, timeout_s: float = READY_TIMEOUT_S, check: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Wait until all switches of the plan have connected, and return the controller's readiness message.

        ``ControlError`` with the last line of the controller's log after ``timeout_s`` or when the controller ends.
        ``check`` is called while it waits, and ends that by an error if the switches cannot connect any more.
        """
        deadline = time.monotonic() + timeout_s
        waiting = select.poll()  # select() has no room for descriptors above 1023
        waiting.register(self._ready_read, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise ControlError(f"the controller was not ready within {timeout_s:g} s: {self.last_log_line()}")
            if not waiting.poll(min(left, _CHECK_S) * 1e3):
                check()
                continue
            piece = os.read(self._ready_read, 4096)
            if not piece:
                raise ControlError(f"the controller ended before it was ready: {self.last_log_line()}")
            line += piece
        ready: dict[str, Any] = json.loads(line)
        self.rest_address = ready.get("rest")
        return ready

    @property
    def last_words(self) -> str:
        """Why a controller that has ended did, in a sentence: with an app of the user's, what that did wrong."""
        last = self.last_log_line()
        sentence = last.removeprefix("controller: ")
        return sentence if self._own_app and sentence != last else f"the controller ended during the run: {last}"

    def last_log_line(self) -> str:
        try:
            lines = self.files.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "its log is empty; run it by hand: python -m controllers.main --help"

    def stop(self) -> None:
        """End the controller: SIGTERM first, SIGKILL if the process does not end in time."""
        self.process.terminate()  # does nothing once it has ended
        end_child(self.process, _PATIENCE_S)
        if self._ready_read >= 0:
            os.close(self._ready_read)
            self._ready_read = -1

    def __enter__(self) -> ControllerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def _app_options(socket: Path, bridges: Path) -> list[str]:
    owner = invoker()
    mine = [] if owner is None else ["--app-owner", str(owner[0])]
    return ["--app-socket", str(socket), "--bridges", str(bridges), *mine]


def _filled_pipe(text: str) -> int:
    """The end to read of a pipe that holds ``text``, which is shorter than what a pipe takes at once."""
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    return read
