"""Client of the agent that drives the rails for one rank of a script (``workloads.agent.script``). No torch here."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from railyard.errors import AgentError
from topos.kernel.relay import connect_unix

Then = Callable[[Exception | None], None]
"""Called when a call is over, or has failed with an error."""
_LOST_STATUS = AgentError.exit_status
_GRACE_S = 1.0
"""Time from an error of the agent until its end ends this process: so long may its traceback take."""


class RailClient:
    """The connection of this process to its agent, which listens at ``path`` within ``timeout_s``.

    Its thread calls ``on_lost`` when the agent has ended before ``bye``. Raises ``AgentError`` without an agent.
    """

    def __init__(
        self, path: str, timeout_s: float, on_lost: Callable[[], object] = lambda: os._exit(_LOST_STATUS)
    ) -> None:
        try:
            self._sock = connect_unix(path, wait_s=timeout_s)
        except OSError as error:
            raise AgentError(f"no agent listens at {path} within {timeout_s:g} s: {error.strerror}") from None
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._noted = b""
        """Lines that go with the next message: a small call then wakes the agent once."""
        self._waiting: dict[int, deque[tuple[int, memoryview, Then]]] = defaultdict(deque)
        """The calls under way by number, each with its memory: that of one step may end in the next one."""
        self._going = threading.Event()
        self._error: AgentError | None = None
        self._over = False
        threading.Thread(target=self._listen, name="railyard-rails", daemon=True).start()

    def ready(self) -> None:
        """Say that the recorded step comes next, and wait until all ranks may begin it."""
        self._say({"ready": True})
        self._going.wait()
        self._check()

    def carry(
        self,
        number: int,
        kind: str,
        dtype: str,
        reduce: str,
        send: memoryview,
        receive: memoryview,
        then: Then,
        *,
        sent: Sequence[int] = (),
        received: Sequence[int] = (),
    ) -> None:
        """Have call ``number`` of the step carried by the rails; ``then`` is called when ``receive`` holds its result.

        ``send`` is copied before this returns. Layouts and sizes (bytes) are torch's (``ScriptCall``).
        """
        outgoing, incoming = _bytes(send), _bytes(receive)
        size = len(incoming) if kind in ("all_gather", "scatter", "recv") else len(outgoing)
        memory = os.memfd_create("railyard-call", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(memory, max(len(outgoing), len(incoming)))
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            os.pwrite(memory, outgoing, 0)
            message: dict[str, Any] = {"call": number, "kind": kind, "bytes": size, "dtype": dtype, "reduce": reduce}
            if sent or received:
                message.update(sent=list(sent), received=list(received))
            with self._lock:
                self._check()
                self._waiting[number].append((memory, incoming, then))
        except BaseException:
            os.close(memory)
            raise
        self._say(message, memory)

    def passed(self, number: int) -> None:
        """Say that call ``number`` of the step begins, which the script carries itself over the front-end network."""
        with self._lock:
            self._noted += _line({"call": number, "at": time.monotonic()})

    def over(self, number: int) -> None:
        self._say({"over": number})

    def step(self, number: int) -> None:
        self._say({"step": number})

    def bye(self) -> None:
        self._over = True
        self._say({"bye": True})

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _say(self, message: dict[str, Any], memory: int = -1) -> None:
        with self._lock, contextlib.suppress(OSError):  # the thread that listens notices the end of the agent
            lines, self._noted = self._noted + _line(message), b""
            count = socket.send_fds(self._sock, [lines], [memory] if memory >= 0 else [])
            self._sock.sendall(lines[count:])

    def _listen(self) -> None:
        """Serve the agent's messages until it ends, or a ``then`` raises an error."""
        try:
            with self._sock:
                self._serve()
        except BaseException:
            traceback.print_exc()
        if self._over:
            return
        if self._error is not None:
            time.sleep(_GRACE_S)
        self._fail(AgentError("the agent of this rank has ended"))
        self._on_lost()

    def _serve(self) -> None:
        rest = b""
        while data := self._receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "done" in message:
                    self._end(message["done"])
                elif "error" in message:
                    self._fail(AgentError(message["error"]))
                else:
                    self._going.set()

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(1 << 16)
        except OSError:
            return b""

    def _end(self, number: int) -> None:
        with self._lock:
            memory, receive, then = self._waiting[number].popleft()
        if receive:
            os.preadv(memory, [receive], 0)
        os.close(memory)
        then(None)

    def _fail(self, error: AgentError) -> None:
        with self._lock:
            self._error = self._error or error
            waiting = [entry for calls in self._waiting.values() for entry in calls]
            self._waiting.clear()
        self._going.set()
        for memory, _, then in waiting:
            os.close(memory)
            then(self._error)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _bytes(values: memoryview) -> memoryview:
    return values.cast("B") if values.nbytes else memoryview(b"")
