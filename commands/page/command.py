"""``railyard watch``: a page of a results folder, until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.page.serving import be_modest, hurry, listen, page_address, started, url
from experiments.parser import Parser, folder
from railyard.errors import ConfigError
from railyard.signals import ignore_stops, wait_for_stop

if TYPE_CHECKING:
    from commands.page.control import Control

_LONGEST_END_S = 5.0
"""How long the last reading of the folder and the last messages to pages may take; then pages get the sentence alone.

Readings wait in turn with the calls of pages: with 100 MB of events in one point, both took 9 to 10 s beside 8 clients
that called without a pause, and 17 to 20 s beside 64.
"""


def main(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C, SIGTERM or SIGHUP; returns the exit status."""
    parser = Parser(
        prog="railyard watch",
        description="Show a run in a browser, while it goes on or after it: fabric, time line, rates,\n"
        "points and verdicts.",
    )
    parser.add_argument("folders", type=folder, nargs="+", metavar="FOLDER", help="results folder of a run (its --out)")
    about = "port of the page (default: any free one)"
    parser.add_argument("--port", type=page_address, default="0", metavar="N", help=about)
    parser.add_argument("--control", action="store_true", help="the page can act on the run, a live one with --rest")
    about = "file with the token of its REST interface, if it is not in the folder"
    parser.add_argument("--rest-token-file", type=Path, metavar="FILE", help=about)
    options = parser.read(arguments)
    if len(options.folders) > 1:
        raise ConfigError("is of one run; railyard report A B compares two", key="watch")
    (options.folder,) = options.folders
    if options.rest_token_file is not None and not options.control:
        raise ConfigError("is used with --control only; leave it out", key="--rest-token-file")
    try:
        return _serve(options)
    finally:
        hurry()  # also where Ctrl-C came before the page was served


def _serve(options: argparse.Namespace) -> int:
    from controllers.northbound.token import new_token
    from measure.results.folder import is_locked

    control = _control(options) if options.control else None
    if is_locked(options.folder):
        be_modest()  # before much is imported
    with listen(options.port, "--port") as listening:
        token = new_token()
        server = started(options.folder, listening, token, control)
        try:
            print(f"{url(listening, token)}\n{how_to_reach(listening.getsockname()[1])}", flush=True)
            wait_for_stop()
        except KeyboardInterrupt:
            ignore_stops()
        finally:
            hurry()
            said = "the server of this page has ended; railyard watch starts it again"
            closing = threading.Thread(target=server.close, args=(said,), daemon=True)
            closing.start()
            closing.join(_LONGEST_END_S)
            if closing.is_alive():
                server.end_pages(said)
    return 0


def _control(options: argparse.Namespace) -> Control:
    from commands.page.control import Control
    from experiments.rest_access import read_token

    token = None if options.rest_token_file is None else read_token(options.rest_token_file)
    control = Control(options.folder, token)
    control.check()
    return control


def how_to_reach(port: int) -> str:
    """How the page is reached from another machine, and how it ends."""
    tunnel = f"ssh -L {port}:127.0.0.1:{port} {shlex.quote(socket.gethostname())}"
    return f"From another machine: {tunnel}, then the same address there. Ctrl-C ends the page."
