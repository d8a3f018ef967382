"""Requests and messages between two processes over a pair of byte streams, such as the pipes of an ``ssh`` process.

Every line is an object of JSON, at most ``LINE_BYTES`` long: a request ``{"id", "op", "fields"}``, its answer
``{"id", "result"}`` or ``{"id", "error", "kinds"}``, or a message without answer, ``{"op", "fields"}``. No thread is
started and nothing waits longer than it is told to. Whoever writes takes what comes in meanwhile, so two sides that
both send long lines do not wait for each other.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Any

from railyard import errors
from railyard.errors import ConfigError, MachineError, RailyardError, shortened

SSHD_VARIABLE = "RAILYARD_REMOTE_SSHD"
"""Environment variable by which the start of a process tells it the process id of the ``sshd`` of its own login."""
_SYS_PIDFD_GETFD = 438
_OPTIONS = {
    socket.TCP_KEEPIDLE: 2,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 8000,  # ms, for what was sent and is not acknowledged
}
LOST_S = 8.0
"""Seconds after which the connection to a machine that is gone is closed."""


def watch_connection() -> bool:
    """Let the kernel close the connection of this process's login ``LOST_S`` seconds after the other side is gone.

    That side's ``ssh`` asks for a sign of life every two seconds; ``sshd`` by itself waits for hours. When the kernel
    closes the connection, as after a power failure there, ``sshd`` ends the login, and the input of the process ends.

    Returns whether it does: not for a process that ``ssh`` did not start, or where ``sshd`` is not to be looked into.
    """
    sshd = os.environ.pop(SSHD_VARIABLE, "")
    watched = False
    with suppress(OSError, ValueError):
        for connection in _connections(int(sshd)):
            with connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _OPTIONS.items():
                    connection.setsockopt(socket.IPPROTO_TCP, option, value)
                watched = True
    return watched


def _connections(pid: int) -> Iterator[socket.socket]:
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            try:
                fd = taken_fd(pidfd, int(name))
            except OSError:
                continue
            connection = socket.socket(fileno=fd)
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                yield connection
            else:
                connection.close()
    finally:
        os.close(pidfd)


def taken_fd(pidfd: int, number: int) -> int:
    """A descriptor here of what ``number`` refers to in the process ``pidfd``; ``OSError`` if that is not permitted."""
    fd = int(ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, pidfd, number, 0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


LINE_BYTES = 64 << 20
"""The longest line that is sent or taken, in bytes."""
FOLDER_VARIABLE = "RAILYARD_REMOTE_FOLDER"
"""Environment variable by which the start of a process on a machine tells it the private folder that it may use."""
_KEPT_BYTES = 4 * LINE_BYTES
"""Most bytes of messages and requests that are kept until they are taken."""
_WRITE_S = 60.0
_CHUNK_BYTES = 1 << 16
_KINDS = {
    each.__name__: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, RailyardError)
}


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as plain data, without pydantic: processes that start in tens of milliseconds import this module."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, default=_plain, separators=(",", ":")).encode() + b"\n"


class Connection:
    """One side of a connection: lines come from ``source_fd`` and go to ``sink_fd``, both closed by ``close``.

    ``peer`` names the other side in errors, such as ``machine b``; the sentence of an error that it reports follows
    ``raised``. ``last_words`` is asked for the cause when the connection has ended, or
    None if none is known. A peer that takes nothing for ``patience_s`` seconds while a line is sent is given up; None:
    it may take as long as it likes. All methods but ``close`` raise ``MachineError`` once the connection has ended and
    all that came before the end has been taken.
    """

    def __init__(
        self,
        source_fd: int,
        sink_fd: int,
        peer: str,
        *,
        raised: str = "",
        last_words: Callable[[], str | None] = lambda: None,
        patience_s: float | None = _WRITE_S,
    ) -> None:
        self._source, self._sink, self._peer, self._raised = source_fd, sink_fd, peer, raised
        self._last_words, self._patience_s = last_words, patience_s
        self._next = 0
        self._asked: dict[int, str] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived: deque[dict[str, Any]] = deque()
        """Messages and requests of the peer that nobody has taken, in order, and the bytes of their lines."""
        self._arrived_bytes = 0
        self._line = bytearray()
        self._fault: str | None = None
        self._closed = self._hung_up = self._peer_ended = False
        for fd in {source_fd, sink_fd}:
            os.set_blocking(fd, False)

    @staticmethod
    def of_standard_streams(peer: str) -> Connection:
        """The connection over standard input and output of this process, for the side that was started.

        From now on standard input is empty, and what this process and its children print goes to standard error. If
        ``ssh`` carries the connection, it ends soon after the other machine is gone (``watch_connection``).
        """
        watch_connection()
        source, sink = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        return Connection(source, sink, peer, patience_s=None)

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def pending(self) -> bool:
        """Whether ``messages`` has something to return, although ``fileno`` may not be readable."""
        return bool(self._arrived)

    @property
    def ended(self) -> bool:
        """Whether the connection has ended, as far as this side has noticed; what came before may be left to take."""
        return self._fault is not None

    @property
    def peer_is_gone(self) -> bool:
        """Whether the peer has ended its side."""
        return self._peer_ended

    def fileno(self) -> int:
        """File descriptor that is readable when something arrives, for ``select``; see ``pending``."""
        return self._source

    def begin(self, op: str, /, **fields: Any) -> int:
        """Send a request and return its number for ``answer``, without a wait for the answer."""
        number = self._next
        self._send({"id": number, "op": op, "fields": fields}, f"request {op}")
        self._next += 1
        self._asked[number] = op
        return number

    def answer(self, number: int, timeout_s: float = 30.0) -> Any:
        """The result of a request.

        An error there is raised here as the same class of ``RailyardError``, its sentence behind ``on machine NAME:``.
        ``MachineError`` if the answer has not come within ``timeout_s`` seconds; it can be asked for again then.
        """
        op = self._asked[number]
        end = time.monotonic() + timeout_s
        while number not in self._answers:
            self._check()
            if not self._wait(end):
                raise MachineError(f"{self._peer} has not answered the request {op} within {timeout_s:g} s")
        del self._asked[number]
        answer = self._answers.pop(number)
        if "error" in answer:
            raise raised_there(answer, self._raised)
        return answer.get("result")

    def call(self, op: str, /, *, timeout_s: float = 30.0, **fields: Any) -> Any:
        return self.answer(self.begin(op, **fields), timeout_s)

    def tell(self, op: str, /, **fields: Any) -> None:
        self._send({"op": op, "fields": fields}, f"message {op}")

    def messages(self) -> list[dict[str, Any]]:
        """The messages of the peer that have arrived since the last call, each its fields and ``op``; never waits."""
        return [{**message["fields"], "op": message["op"]} for message in self.arrived()]

    def next_message(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message of the peer; None if none comes within ``timeout_s`` seconds."""
        end = time.monotonic() + timeout_s
        while not self._arrived:
            self._check()
            if not self._wait(end):
                return None
        message = self._arrived.popleft()
        return {**message["fields"], "op": message["op"]}

    def arrived(self) -> list[dict[str, Any]]:
        """The messages and requests that arrived, in order: each its ``op``, ``fields`` and, of a request, ``id``."""
        self._read()
        if not self._arrived:
            self._check()
        messages = [*self._arrived]
        self._arrived.clear()
        self._arrived_bytes = 0
        return messages

    def reply(self, number: Any, **outcome: Any) -> None:
        """Answer the request ``number`` of the peer with ``result``, or with ``error`` and ``kinds``."""
        self._send({"id": number, **outcome}, "answer")

    def hang_up(self, last: str | None = None) -> None:
        """Send no more, after a message ``last`` if the peer takes it at once; what the peer sends is still taken."""
        if not self._hung_up:
            self._hung_up = True
            if last is not None:  # the end of a stream would not do: other processes may hold it open
                with suppress(OSError):
                    os.write(self._sink, _line({"op": last, "fields": {}}))
            if self._sink != self._source:
                os.close(self._sink)

    def close(self, patience_s: float = 0.0) -> bool:
        """Close both streams, the outgoing one first; nothing can be sent or taken after that.

        In between the peer has ``patience_s`` seconds to end its side. Returns whether it has ended.
        """
        if not self._closed:
            self.hang_up()
            end = time.monotonic() + patience_s
            self._last_words = lambda: None  # nobody asks for them any more
            while self._fault is None and self._wait(end):
                self._arrived.clear()
            self._closed, self._peer_ended = True, self._fault is not None
            self._fault = f"the connection to {self._peer} was closed here"
            os.close(self._source)
        return self._peer_ended

    def _check(self) -> None:
        if self._fault is not None:
            raise MachineError(self._fault)

    def _end(self, fault: str | None = None) -> None:
        if self._fault is None:
            self._peer_ended = fault is None
            words = None if fault else self._last_words()
            said = f"; the last that it said: {shortened(words)}" if words else ""
            self._fault = fault or f"the connection to {self._peer} has ended{said}"

    def _wait(self, end: float) -> bool:
        """Wait until something can be read, at the latest until ``end``, and take it; whether there was something."""
        waiting = select.poll()
        waiting.register(self._source, select.POLLIN)
        if not waiting.poll(max(0.0, end - time.monotonic()) * 1e3):
            return False
        self._read()
        return True

    def _send(self, message: dict[str, Any], what: str) -> None:
        self._check()
        line = _line(message)
        if len(line) > LINE_BYTES:
            raise MachineError(f"the {what} for {self._peer} is longer than {LINE_BYTES >> 20} MiB; send it in parts")
        rest = memoryview(line)
        both = select.poll()
        while rest:
            try:
                rest = rest[os.write(self._sink, rest) :]
                continue
            except BlockingIOError:
                pass
            except BrokenPipeError:
                self._read()  # what came before the end is kept
                self._end()
            except OSError as error:
                self._end(f"the connection to {self._peer} has failed: {error.strerror}")
            self._check()
            both.register(self._source, select.POLLIN)
            both.register(self._sink, select.POLLOUT | (select.POLLIN if self._sink == self._source else 0))
            if not both.poll(None if self._patience_s is None else self._patience_s * 1e3):
                self._end(f"{self._peer} has taken nothing for {self._patience_s:g} s")
            self._read()

    def _read(self) -> None:
        """Take all that has arrived, without a wait."""
        while self._fault is None:
            try:
                data = os.read(self._source, _CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end()
            elif b"\n" in data:  # looked for in what is new only: a long line comes in many parts
                first, *lines, rest = data.split(b"\n")
                self._line += first
                complete, self._line = self._line, bytearray(rest)
                for line in (bytes(complete), *lines):
                    self._take(line)
            else:
                self._line += data
            if len(self._line) > LINE_BYTES:
                self._line.clear()
                self._end(f"{self._peer} has sent a line longer than {LINE_BYTES >> 20} MiB")

    def _take(self, line: bytes) -> None:
        if self._fault is not None:
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        number = message.get("id") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not self._understood(message, number):
            self._end(
                f"{self._peer} has sent a line that Railyard does not know: "
                f"{shortened(ascii(line[:1000].decode(errors='replace')))}; if a start-up file of the shell there "
                f"prints it, let it print only where the shell is interactive"
            )
        elif "op" not in message:
            self._answers[number] = message  # type: ignore[index]  # an int by _understood
        else:
            self._arrived.append(message)
            self._arrived_bytes += len(line)
            if self._arrived_bytes > _KEPT_BYTES:
                self._end(f"{self._peer} has sent more than {_KEPT_BYTES >> 20} MiB that nobody has taken")

    def _understood(self, message: dict[str, Any], number: Any) -> bool:
        """Whether this is a message, a request, or the answer to a request that waits for one."""
        if "op" in message:
            return isinstance(message["op"], str) and isinstance(message.get("fields"), dict)
        return type(number) is int and number in self._asked and number not in self._answers


def raised_there(answer: Mapping[str, Any], before: str) -> RailyardError:
    """The error that an answer or a message ``error`` reports, of the nearest class that is known here."""
    kinds = answer.get("kinds")
    names = [name for name in kinds if isinstance(name, str)] if isinstance(kinds, list) else []
    kind = next((_KINDS[name] for name in names if name in _KINDS), MachineError)
    error = kind(f"{before}{answer['error']}")
    if isinstance(error, ConfigError):
        error.key, error.source = answer.get("key"), answer.get("source")
    return error
