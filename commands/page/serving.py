"""What the processes that serve a page share: its port, their priority, and the server of a folder."""

from __future__ import annotations

import os
import socket
from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from railyard.errors import ConfigError
from railyard.limits import allow_all_open_files
from railyard.priority import set_priority

if TYPE_CHECKING:
    from commands.page.control import Control
    from commands.page.server import WatchServer

ANY_PORT = "127.0.0.1:0"
LEAST_NICE = 19
_USUAL_NICE = 0
PATIENCE_S = 0.3
"""How long a question may read a large point; the rest of it is read afterwards, between other questions."""
_MOST_PORT = (1 << 16) - 1


def page_address(text: str) -> str:
    """The address of a page on the port that an option names, for the key ``type`` of argparse."""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > _MOST_PORT:
        raise ArgumentTypeError(f"must be a port from 0 (any free one) to {_MOST_PORT}, not {text[:40]!r}")
    return f"127.0.0.1:{int(text)}"


def listen(address: str, option: str) -> socket.socket:
    """A socket that listens on an address of ``page_address``; ``ConfigError`` for ``option`` if it is taken."""
    from controllers.northbound.rest_address import reserve

    try:
        return reserve(address)
    except ConfigError as error:
        raise ConfigError(error.message, key=option) from None


def url(listening: socket.socket, token: str) -> str:
    """The address of the page as a person gives it to a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}/{token}/"


def be_modest() -> None:
    """Let this thread, and those that it starts, run when nothing else has work: the run that it shows may be here."""
    set_priority(LEAST_NICE)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def hurry() -> None:
    """Let the modest threads of this process run beside others again, as it ends: somebody waits for that.

    Best effort: the kernel lets root alone do so (``RLIMIT_NICE``), and the process of another user stays modest.
    """
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(OSError):  # it has ended
            if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                set_priority(_USUAL_NICE, thread)


def started(folder: Path, listening: socket.socket, token: str, control: Control | None) -> WatchServer:
    """The server of the page of a results folder, which serves; ``ConfigError`` for a folder that is none.

    Beside a run that goes on, the process is modest from here on.
    """
    from commands.page.run_view import RunView
    from commands.page.server import WatchServer
    from commands.page.watched import Watched
    from measure.results.foreign import reading

    allow_all_open_files()  # a live point has one for each of its processes
    run = Watched(RunView(folder, PATIENCE_S))
    with reading(folder):
        run.ask(lambda view: view.overview())  # what it imports takes a second, which the first page need not wait
    if run.live:
        be_modest()  # before threads are started, which have the priority of their parent
    server = WatchServer(listening, token, run, control)
    server.start()
    return server
