"""The sockets of an app in the loop: the one that it connects to, and the management sockets of the switches."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from controllers.northbound.app_bridge import LINE_BYTES
from controllers.northbound.app_core import AppCore
from controllers.openflow import flows
from railyard.accepting import caller
from railyard.errors import ControlError, MachineError
from railyard.loop import Loop
from railyard.protocol import to_json
from topos.kernel.fastpath import openflow
from topos.kernel.relay import connect_unix

_RECEIVE_BYTES = 1 << 16
_SEND_S = 0.2
"""How long the app may keep a line from being sent."""
_ECHO_REQUEST, _ECHO_REPLY, _HEADER = openflow.ECHO_REQUEST, openflow.ECHO_REPLY, 8
_LOOK_S = 0.1
"""How often the server looks whether the run must end."""
_LAST_WORDS_S = 0.1
"""Time in which the ranks are told why, before this process ends."""


class AppServer:
    """Serves one app at a time at ``listener``; ``bridges`` is the folder of the switches' management sockets."""

    def __init__(self, listener: socket.socket, core: AppCore, bridges: Path) -> None:
        self._listener, self._core, self._bridges = listener, core, bridges
        self._loop = Loop()
        self._app: socket.socket | None = None
        self._pid, self._how_left = 0, "left"
        self._rest = bytearray()
        self._joined = False
        listener.setblocking(False)
        self._loop.watch(listener, self._accept)

    def serve(self) -> NoReturn:
        """Serve until the app has done what must end the run: ``ControlError`` says what."""
        while not self._core.app.end:
            self._loop.turn(time.monotonic() + _LOOK_S)
        time.sleep(_LAST_WORDS_S)
        raise ControlError(self._core.app.end)

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except BlockingIOError:  # the caller is gone
            return
        connection.settimeout(_SEND_S)
        if self._app is not None:
            taken = f"an app with process id {self._pid} is connected already, and a run has one; end it first"
            with connection, suppress(OSError):
                connection.sendall(to_json({"op": "error", "error": taken}) + b"\n")
            return
        self._pid, _ = caller(connection)
        print(f"controller: an app with process id {self._pid} has connected", file=sys.stderr)
        self._app, self._how_left = connection, "left"
        self._rest.clear()
        self._loop.watch(connection, self._heard)
        self._core.app_connected(self._tell)

    def _tell(self, line: bytes) -> None:
        """Send a line to the app, in any thread; one that does not read is disconnected."""
        app = self._app  # which another thread forgets when it leaves
        if app is not None:
            try:
                app.sendall(line)
            except OSError:
                self._how_left = "stopped reading"
                with suppress(OSError):
                    app.shutdown(socket.SHUT_RDWR)

    def _heard(self, _: int) -> None:
        assert self._app is not None
        data = _received(self._app)
        if data is None:
            return
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if not self._core.app.end:
                self._core.app_said(bytes(line))
        if len(self._rest) > LINE_BYTES:
            self._core.app_said(bytes(self._rest[:LINE_BYTES]))  # which is answered with what is wrong
            data = b""
        if self._core.app.ready and not self._joined:
            self._joined = True
            for switch in self._core.plan.switches:
                SwitchReader(self._loop, self._core, switch.dpid, self._bridges / f"{switch.name}.mgmt")
        if not data:
            self._loop.forget(self._app)
            self._app.close()
            self._app = None
            self._core.app_left(self._how_left)


def _received(connection: socket.socket) -> bytes | None:
    """The bytes that have come: none if the connection has ended, and None if there are none yet."""
    try:
        return connection.recv(_RECEIVE_BYTES)
    except TimeoutError:
        return None
    except OSError:
        return b""


class SwitchReader:
    """A connection to the management socket of a switch, which reads flows and changes none."""

    def __init__(self, loop: Loop, core: AppCore, dpid: int, path: Path) -> None:
        self._loop, self._core, self._dpid = loop, core, dpid
        try:
            self._socket = connect_unix(path, _SEND_S)
        except OSError as error:
            raise MachineError(f"the switch at {path} cannot be reached: {error.strerror or error}") from error
        self._buffer = bytearray()
        self._send(flows.header(openflow.HELLO, 0, 0))
        loop.watch(self._socket, self._heard)
        core.joined(dpid, self._send)

    def _send(self, data: bytes) -> bool:
        with suppress(OSError):
            self._socket.sendall(data)
            return True
        return False

    def _heard(self, _: int) -> None:
        data = _received(self._socket)
        if data is None:
            return
        self._buffer += data
        for message in openflow.split(self._buffer):
            xid = int.from_bytes(message[4:8], "big")
            if message[1] == openflow.MULTIPART_REPLY:
                self._core.flows_read(xid, message[16:])
                if not openflow.has_more(message):
                    self._core.answered(self._dpid, xid)
            elif message[1] == _ECHO_REQUEST:
                self._send(flows.header(_ECHO_REPLY, xid, len(message) - _HEADER) + message[_HEADER:])
        if not data:
            self._loop.forget(self._socket)
            self._socket.close()
            self._core.left(self._dpid, self._send)
