"""The processes that serve a page: one of its own (``railyard watch``), or one beside a run (``run --watch``).

The run takes the port and makes the token, so that it can name the address at once; it never waits for the process,
but for a moment at its end, when a page is open. If the process ends before, the run goes on and says so.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from railyard.errors import ConfigError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.ownership import invoker
from railyard.priority import set_priority

if TYPE_CHECKING:
    from commands.page.control import Control
    from commands.page.server import WatchServer
    from experiments.experiment import Experiment
    from railyard.process.child import Child

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


_WHAT = "the page of --watch"
_PATIENCE_S = 4.0
"""How long the process has for the last messages of its pages."""
_DAYS_S = 1e6


# ---- the options of a run --------------------------------------------------------------------------------------------


def add_options(add: Callable[..., argparse.Action]) -> None:
    about = "a page of the run in a browser, on this port (default any free one), until the run ends"
    add("--watch", nargs="?", type=page_address, const="0", metavar="PORT", help=about)
    add("--control", action="store_true", help="with --watch: the page can act on the run, through a REST interface")


def implied_settings(
    kind: type[Experiment[Any]], options: argparse.Namespace, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The settings of a run that the options of its page imply, unless its ``values`` have them."""
    from experiments.settings import PacketSettings

    acts = options.control and issubclass(kind.Settings, PacketSettings) and values.get("controller") != "remote"
    return {"rest": ANY_PORT} if acts else {}


def check_options(experiment: Experiment[Any], options: argparse.Namespace) -> None:
    """Raise ``ConfigError`` for options of a page that has nothing to show, or nothing to act on."""
    from experiments.settings import PacketSettings

    settings = experiment.settings
    if options.watch is not None and getattr(options, "out", None) is None and not experiment.keeps:
        raise ConfigError(f"shows a results folder, and {experiment.name} keeps none without --out", key="--watch")
    if options.control and options.watch is None:
        raise ConfigError("is for the page of the run; give --watch too", key="--control")
    if options.control and not isinstance(settings, PacketSettings):
        raise ConfigError(f"acts on a fabric, and {experiment.name} has none; leave it out", key="--control")
    if options.control and settings.controller == "remote":
        raise ConfigError("acts through Railyard's controller; leave --controller remote out", key="--control")


# ---- beside the run --------------------------------------------------------------------------------------------------


class Companion:
    """The page of a run on ``address``, a context manager; None: there is none, and nothing is done.

    ``control``: the page can act on the run. ``ConfigError`` (key ``--watch``) if the port is taken.
    """

    def __init__(self, address: str | None, control: bool) -> None:
        self._listening = None if address is None else listen(address, "--watch")
        self._control = control
        self._child: Child | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def __enter__(self) -> Companion:
        return self

    def begin(self, folder: Path, settings: Any, say: Callable[[str], None]) -> None:
        """Start the process, which serves the page of the results ``folder`` of a run with ``settings``.

        ``say`` takes sentences for the progress of the run.
        """
        if self._listening is None:
            return
        from controllers.northbound.token import new_token
        from experiments.rest_access import read_token
        from railyard.process.child import Child

        file = settings.rest_token_file if self._control else None
        token = new_token()
        given = {
            "folder": str(folder),
            "socket": self._listening.fileno(),
            "token": token,
            "control": self._control,
            "rest_token": None if file is None else read_token(Path(file)),
            "user": _reader(folder),
        }
        child = Child("commands.page.serving", given, [self._listening.fileno()], _WHAT)
        try:
            child.begin()
        except (OSError, RailyardError) as error:
            self._listening.close()
            say(f"{_WHAT} cannot be started ({error}), and the run goes on; railyard watch {folder} shows it")
            return
        self._child = child
        say(f"Page of the run: {url(self._listening, token)}")
        self._listening.close()  # so that nobody waits for an answer once the process has ended
        self._thread = threading.Thread(target=self._watch_over, args=(child, say, folder), name="page", daemon=True)
        self._thread.start()

    def _watch_over(self, child: Child, say: Callable[[str], None], folder: Path) -> None:
        """Say once that the process has ended, if it does before the run."""
        child.wait()
        if not self._ending.is_set():
            say(f"{_WHAT} has ended, and the run goes on; railyard watch {folder} shows it again")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ending.set()
        if self._listening is not None:
            self._listening.close()
        if self._child is None:
            return
        self._child.tell("stop")
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                os.kill(self._child.pid, signal.SIGKILL)
                self._thread.join()  # before the pipe that it reads is closed
        self._child.close()


def _reader(folder: Path) -> tuple[int, int] | None:
    """The user and group of the caller of sudo, where the results are theirs; None: root reads them."""
    owner = invoker()
    return owner if owner is not None and folder.stat().st_uid == owner[0] else None


# ---- the process -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the process that serves the page of a run."""
    from commands.page.control import Control
    from railyard.process.parent import Parent
    from railyard.process.start import die_with_parent

    parent = Parent()
    settings = parent.settings
    folder = Path(settings["folder"])
    set_priority(LEAST_NICE)  # while the process is root's: the priority of its session is not its user's to change
    if settings["user"] is not None:
        user, group = settings["user"]
        _import_all(folder)
        _become(user, group, folder)
    die_with_parent()  # the kernel forgets this when a process changes its user
    control = Control(folder, settings["rest_token"]) if settings["control"] else None
    listening = socket.socket(fileno=settings["socket"])
    try:
        server = started(folder, listening, settings["token"], control)
    except RailyardError as error:
        print(f"railyard: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    parent.ready()
    parent.serve()
    hurry()
    server.close(f"the run has ended; railyard watch {folder} shows it again")


def _import_all(folder: Path) -> None:
    """Import all that serves the page of ``folder``: the user of the process may not be able to read our files."""
    import numpy.ma  # noqa: F401 - by numpy.unique, when it is first called

    from commands.page import run_view, server, watched  # noqa: F401 - the server also reads the files of the page
    from experiments.redraw import kind_of
    from measure.results import foreign  # noqa: F401
    from measure.results.results import Results
    from railyard.validation import adapter_of

    with suppress(ConfigError):  # as of an experiment that is not installed, which the page says
        kind = kind_of(Results.open(folder))
        kind.report()
        for row in kind.rows:
            adapter_of(row)  # type: ignore[arg-type]  # a class is hashable


def _become(user: int, group: int, folder: Path) -> None:
    """Give up root for a user without further groups, unless that user cannot reach ``folder``."""
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        os.listdir(folder)
    except OSError:
        os.seteuid(0)
        os.setegid(0)
        return
    os.seteuid(0)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
