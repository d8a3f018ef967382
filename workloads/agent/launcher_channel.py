"""The agent's end of its socket to the agent launcher."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any


class Stopped(Exception):
    """The agent launcher told this agent to stop, or is gone."""


class LauncherChannel:
    """The agent's end of its socket to the agent launcher: reports out, ``go`` and ``stop`` in, lines of JSON.

    ``go_at`` is the start of the first step in monotonic seconds (None: not known yet).
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._received = b""
        self.go_at: float | None = None

    def fileno(self) -> int:
        """File descriptor of the socket, for ``select``."""
        return self._sock.fileno()

    def report(self, **fields: Any) -> None:
        """Send one line of JSON to the agent launcher; may be called from any thread."""
        with self._sending:
            self._sock.sendall(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def receive(self) -> None:
        """Read the lines that have arrived; raises ``Stopped`` for the order to stop and for a closed socket."""
        try:
            data = self._sock.recv(1 << 16)
        except ConnectionResetError:  # the launcher ended without reading all that this agent told
            data = b""
        if not data:
            raise Stopped
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "stop" in message:
                raise Stopped
            if "go" in message:
                self.go_at = float(message["go"])
