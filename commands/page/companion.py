"""The page beside a run (``railyard run ... --watch``): a server as a process of its own, which ends with the run.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from commands.page.serving import ANY_PORT, listen, page_address, url
from experiments.settings import PacketSettings
from railyard.errors import ConfigError, RailyardError
from railyard.ownership import invoker

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from railyard.child import Child

_WHAT = "the page of --watch"
_PATIENCE_S = 3.0
"""How long the process has for the last messages of its pages."""
_DAYS_S = 1e6


# ---- the options of a run --------------------------------------------------------------------------------------------


def add_options(add: Callable[..., argparse.Action]) -> None:
    """Add the options of the page to a parser."""
    about = "a page of the run in a browser, on this port (default any free one), until the run ends"
    add("--watch", nargs="?", type=page_address, const="0", metavar="PORT", help=about)
    add("--control", action="store_true", help="with --watch: the page can act on the run, through a REST interface")


def implied_settings(
    kind: type[Experiment[Any]], options: argparse.Namespace, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The settings of a run that the options of its page imply, unless its ``values`` have them."""
    acts = options.control and issubclass(kind.Settings, PacketSettings) and values.get("controller") != "remote"
    return {"rest": ANY_PORT} if acts else {}


def check_options(experiment: Experiment[Any], options: argparse.Namespace) -> None:
    """Raise ``ConfigError`` for options of a page that has nothing to show, or nothing to act on."""
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
        from railyard.child import Child

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
        child = Child("commands.page.companion", given, [self._listening.fileno()], _WHAT)
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
        while child.line(_DAYS_S):
            pass
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
    """Run the process: read settings as one line of JSON, then serve until the next line."""
    from commands.page.control import Control
    from commands.page.serving import LEAST_NICE, hurry, started
    from railyard.child import die_with_parent, read_settings, stop_requested
    from railyard.priority import set_priority

    settings = read_settings()
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
    print("ready", flush=True)
    while not stop_requested(_DAYS_S):
        pass
    hurry()
    server.close(f"the run has ended; railyard watch {folder} shows it again")


def _import_all(folder: Path) -> None:
    """Import all that serves the page of ``folder``: the user of the process may not be able to read our files."""
    import numpy.ma  # noqa: F401 - by numpy.unique, when it is first called

    from commands.page import run_view, server, watched  # noqa: F401 - the server also reads the files of the page
    from experiments.redraw import kind_of
    from measure.results import foreign  # noqa: F401
    from measure.results.results import Results

    with suppress(ConfigError):  # as of an experiment that is not installed, which the page says
        kind_of(Results.open(folder)).report()


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


if __name__ == "__main__":
    main()
