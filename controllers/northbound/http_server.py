"""The HTTP server of Railyard's interfaces: bounded connections, each read whole within a bounded time."""

from __future__ import annotations

import hmac
import io
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any, BinaryIO, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

import bottle

from controllers.northbound.bodies import BodyTooLong, read_body
from controllers.northbound.rest_address import cannot_listen, listening, read_address, written
from railyard.accepting import accepted
from railyard.errors import ConfigError, MachineError

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application: called with the environment of a call and a function that takes status and headers."""
READ_S = 10.0
"""How long a client may take to send its call."""
WRITE_S = 10.0
"""How long a client may take to receive the next part of its answer."""
MOST_UNREAD = 64
"""Connections whose call has not been read yet; when there is one more, the oldest is closed."""
REFUSED = "railyard.refused"
"""Key of the WSGI environment: the error with which a call is to be answered once the caller is known."""
_LINE_BYTES = 1 << 16
_LINGER_S = 1.0
"""How long the rest of a refused body is taken, so that the client reads the answer and not a reset."""


class _Reader(io.RawIOBase):
    """The bytes that a client sends, until ``deadline`` (monotonic seconds)."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Answer(ServerHandler):
    """The run of the application for one call."""

    def log_exception(self, exc_info: Any) -> None:
        if not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


class _CallHandler(WSGIRequestHandler):
    """Reads one call and answers it."""

    server: HttpServer

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Reader(self.connection, time.monotonic() + READ_S))

    def handle(self) -> None:
        """Read the call whole, then run the application."""
        self.raw_requestline = self.rfile.readline(_LINE_BYTES + 1)
        if len(self.raw_requestline) > _LINE_BYTES:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif self.parse_request():
            environ = self.get_environ()
            body = self._read_body(environ)
            self.server.forget_unread(self.connection)
            self.connection.settimeout(WRITE_S)
            output = cast("BinaryIO", self.wfile)
            answer = _Answer(io.BytesIO(body), output, self.get_stderr(), environ, multithread=True)
            answer.request_handler = self  # type: ignore[attr-defined]  # as the base class does
            answer.run(self.server.application)
            if REFUSED in environ:
                self._linger()

    def _read_body(self, environ: dict[str, Any]) -> bytes:
        headers = self.headers
        try:
            stream = cast("BinaryIO", self.rfile)
            return read_body(stream, headers.get("Content-Length"), headers.get("Transfer-Encoding"))
        except ConfigError as error:
            environ[REFUSED] = bottle.HTTPError(413 if isinstance(error, BodyTooLong) else 400, str(error))
            return b""

    def _linger(self) -> None:
        """Take what the client still sends for a moment."""
        rest = _Reader(self.connection, time.monotonic() + _LINGER_S)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while rest.readinto(bytearray(_LINE_BYTES)):
                pass

    def log_message(self, format: str, *args: Any) -> None:
        """Write no access log: the timeline records what happened."""


class HttpServer(ThreadingMixIn, WSGIServer):
    """An HTTP server on a socket that listens already, and is then its own; each call has its own thread.

    ``what`` names it in what it prints.
    """

    daemon_threads = True
    application: Application

    def __init__(self, listening: socket.socket, what: str = "controller: the REST server") -> None:
        self._what = what
        self._unread: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        super().__init__(listening.getsockname(), _CallHandler, bind_and_activate=False)
        self.socket.close()  # one that the base class has made
        self.socket = listening
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    @property
    def address(self) -> str:
        """The address that it listens on, as people write it."""
        return written(str(self.server_address[0]), int(self.server_address[1]))

    def serve(self) -> None:
        """Serve calls until the socket is shut down, without poll, which green threads do not have."""
        for call, address in accepted(self.get_request, self._what):
            self._add_unread(call)
            try:
                self.process_request(call, address)
            except RuntimeError:  # no thread can be started now
                self.shutdown_request(call)

    def _add_unread(self, call: socket.socket) -> None:
        with self._changing:
            self._unread[call] = None
            if len(self._unread) > MOST_UNREAD:
                oldest = next(iter(self._unread))
                del self._unread[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def forget_unread(self, call: socket.socket) -> None:
        """Take note that the call of a connection has been read whole, or that the connection is over."""
        with self._changing:
            self._unread.pop(call, None)

    def shutdown_request(self, request: Any) -> None:
        self.forget_unread(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def host_of(environ: Mapping[str, Any]) -> str:
    """The name in the Host header of a call, without its port: over an SSH tunnel that is another one."""
    return re.sub(":[0-9]*$", "", environ.get("HTTP_HOST", "").lower())


def check_access(token: str, hosts: frozenset[str] | None) -> None:
    """Check the call that bottle serves before its body is looked at.

    Raises 403 for a Host header that is not served (``hosts`` None: all are), 401 for a missing or wrong token, and
    4xx for an unread body.
    """
    environ = bottle.request.environ
    if hosts is not None and host_of(environ) not in hosts:
        raise bottle.HTTPError(403, "the Host header must name the loopback address that this server listens on")
    given = environ.get("HTTP_AUTHORIZATION", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise bottle.HTTPError(401, "a token is needed: Authorization: Bearer TOKEN")
    if REFUSED in environ:
        raise environ[REFUSED]


def check_json(environ: Mapping[str, Any]) -> None:
    """Raise 415 for a body that is not sent as JSON: a form of another site cannot send one that is."""
    if environ.get("CONTENT_TYPE", "").split(";")[0].strip().lower() != "application/json":
        raise bottle.HTTPError(415, "the body must be sent with Content-Type: application/json")


def errors_as_json(failed: str) -> Callable[[bottle.HTTPError], str]:
    """A handler of errors that answers ``{"error": sentence}``; ``failed`` is the sentence about a defect of ours."""

    def answer(error: bottle.HTTPError) -> str:
        bottle.response.content_type = "application/json"
        return json.dumps({"error": error.body if error.exception is None else failed})

    return answer


def listen(address: str, fd: int | None = None) -> tuple[HttpServer, frozenset[str] | None]:
    """The REST server on ``IP:PORT`` (port 0: any free one), and the Host headers to serve (None: all).

    The socket ``fd``, if given, listens there already. ``ConfigError`` for a wrong address, ``MachineError`` if it is
    taken.
    """
    host, port = read_address(address)
    try:
        taken = listening(host, port) if fd is None else socket.socket(fileno=fd)
        taken.setblocking(True)  # a server before this one may have changed that
        server = HttpServer(taken)
    except OSError as error:
        raise MachineError(f"the address of the REST server {cannot_listen(host, port, error)}") from error
    header = written(host, port).rpartition(":")[0]
    return server, frozenset({header, "localhost"}) if ip_address(host).is_loopback else None
