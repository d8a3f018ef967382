"""What an OpenFlow app of your own imports to be asked for the circuits of a run (docs/policies.md, section 2).

    channel = AppChannel()
    for message in channel.messages():      # for ever: from run to run
        if message["op"] == "hello":
            channel.up(message)             # this app is ready, and forwards on electrical switches
        elif message["op"] == "request":
            ...                             # install message["circuits"] on message["switch"]
            channel.up(message)             # or channel.refuse(message, "the laser is cold")

The standard library alone, so that it works in native threads (os-ken) and in green ones (Ryu: ``hub.spawn``). A
message is one line of JSON in either direction; ``up`` and ``refuse`` may be called in any thread.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

VERSION = 1
"""Of the protocol; ``hello`` has it."""
HELLO = 0
"""The id of ``hello``, which is answered as requests are."""
SOCKET_VARIABLE = "RAILYARD_APP_SOCKET"
"""Environment variable with the path of the socket, where it is not the default one."""
_AGAIN_S = 0.2
_LONGEST_LINE = 64 << 20


def default_socket(port: int = 6653) -> str:
    """Where a run asks the app whose switches connect to ``port``."""
    return f"/run/railyard/app-{port}.sock"


class AppChannel:
    """The channel to the runs that ask at ``path``, one after another."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.environ.get(SOCKET_VARIABLE) or default_socket()
        self._socket: socket.socket | None = None

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every message of every run; waits for the next run when one is over."""
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(self.path)
                self._socket = sock
                yield from _lines(sock)
            except OSError:  # no run asks, or it is over
                pass
            finally:
                self._socket = None
                sock.close()
            time.sleep(_AGAIN_S)

    def up(self, message: dict[str, Any]) -> None:
        """Answer that the circuits of a request stand: the switch has confirmed the flows by a barrier reply."""
        self._answer(message, ok=True)

    def refuse(self, message: dict[str, Any], reason: str) -> None:
        """Refuse a request for a reason in one sentence, with which the run ends."""
        self._answer(message, refuse=reason)

    def _answer(self, message: dict[str, Any], **fields: Any) -> None:
        """Send an answer; to a run that is over nothing is sent. The kernel takes a short line whole."""
        if self._socket is not None:
            with suppress(OSError):  # the run is over, which ``messages`` finds too
                self._socket.sendall(json.dumps({"id": message["id"], **fields}).encode() + b"\n")


def _lines(sock: socket.socket) -> Iterator[dict[str, Any]]:
    rest = b""
    while data := sock.recv(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise OSError("a message is too long")
        for line in lines:
            message = json.loads(line)
            if message["op"] == "error":
                print(f"railyard: {message['error']}", file=sys.stderr)
            yield message
