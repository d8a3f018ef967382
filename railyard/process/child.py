"""A child process as its parent sees it: started with settings, ready, told and asked, ended.

Its standard streams are the ``Connection``. The first message to it is ``settings``, its first is ``ready``; the last
to it is ``stop``, and one that accompanies a run (a sampler, a probe, a capture) may send a ``result``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from railyard import __version__
from railyard.errors import MachineError
from railyard.process.connection import Connection, raised_there
from railyard.process.start import end_child, start_python

START_S = 30.0
_C = TypeVar("_C", bound="Child")


class Child:
    """The child process that runs ``module``; ``what`` names it in errors. Its end is close or the end of a ``with``.

    The module must read its settings and serve (``railyard.process.parent.Parent``). The descriptors ``fds``
    (namespaces, sockets) stay open in the child under the same numbers. The child has a session of its own, so Ctrl-C
    in the terminal does not reach it. After it was asked to stop, it has ``patience_s`` seconds to end before it is
    killed.
    """

    _when_late = "the machine is too slow or too busy"

    def __init__(
        self, module: str, settings: Mapping[str, Any], fds: Collection[int], what: str, *, patience_s: float = 0.0
    ) -> None:
        self._module, self._settings, self._fds = module, settings, tuple(fds)
        self._what = what
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self.told: Mapping[str, Any] = {}
        """The fields of the message that it is ready."""

    def start(self: _C) -> _C:
        """Start the child; returns once it is ready. ``MachineError`` if it is not ready within 30 s."""
        self.begin()
        return self.ready()

    def begin(self) -> None:
        """Start the child; ``ready`` must follow. ``MachineError`` if it does not take its settings within 30 s."""
        process = self._process = self._start()
        assert process.stdin and process.stdout
        streams = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        self._connection = self._connected(*streams)
        try:
            self.tell("settings", **self._settings)  # if the child has ended already, ``ready`` reports that
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        return start_python(self._module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=self._fds, bufsize=0)

    def _connected(self, source: int, sink: int) -> Connection:
        return Connection(source, sink, self._what, patience_s=START_S)

    def ready(self: _C, timeout_s: float = START_S) -> _C:
        """Wait until the child is ready, ``timeout_s`` seconds at most; otherwise it is ended, and ``MachineError``."""
        connection = self.connection
        try:
            try:
                message = connection.next_message(timeout_s)
            except MachineError as error:
                raise self._not_started(error) from None
            if message is None:
                raise MachineError(f"{self._what} was not ready within {timeout_s:g} s; {self._when_late}")
            if message["op"] != "ready":
                raise raised_there({"error": message["op"], **message}, "")
            version = message.get("version")
            if version != __version__:
                raise MachineError(
                    f"{self._what} has version {str(version)[:40]} of Railyard and this one {__version__}; install the "
                    f"same version on both"
                )
        except BaseException:
            self._patience_s = 0.0
            self.close()
            raise
        self.told = message
        return self

    def _not_started(self, error: MachineError) -> MachineError:
        """The error of a child that has ended before it was ready."""
        return MachineError(f"{self._what} did not start; its message is above")

    @property
    def pid(self) -> int:
        """Process id of the child; ``MachineError`` if it was not started or is closed."""
        return self._running().pid

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise MachineError(f"{self._what} was not started")
        return self._connection

    @property
    def has_ended(self) -> bool:
        """Whether the child ended by itself or was killed; False before it is started and after it is closed."""
        return self._process is not None and self._process.poll() is not None

    def wait(self) -> None:
        """Wait until the child has ended."""
        self._running().wait()

    def status(self) -> int | None:
        """The exit status of the child; None while it runs."""
        return self._running().poll()

    def tell(self, op: str, /, **fields: Any) -> None:
        """Send the child a message; does nothing if the child has ended.

        ``MachineError`` if the child does not read it within 30 s.
        """
        connection = self.connection
        try:
            connection.tell(op, **fields)
        except MachineError:
            if not connection.peer_is_gone:
                raise

    def call(self, op: str, /, *, timeout_s: float = 30.0, **fields: Any) -> Any:
        """The answer of the child to a request, within ``timeout_s`` seconds; its error is raised here."""
        return self.connection.call(op, timeout_s=timeout_s, **fields)

    def expect(self, op: str, longest_s: float) -> dict[str, Any]:
        """The fields of the next message of the child, an ``op``; ``MachineError`` for an error or within the time."""
        message = self.connection.next_message(longest_s)
        if message is None:
            raise MachineError(f"{self._what} did not answer within {longest_s:g} s; its message is above")
        if message["op"] != op:
            raise MachineError(str(message.get("error") or f"{self._what} answered {message['op']} in place of {op}"))
        return message

    def answer(self, longest_s: float, *, stop: bool = True) -> dict[str, Any]:
        """The result that the child sends within ``longest_s`` seconds, after it is asked to stop if ``stop``.

        Raises ``MachineError`` if there is none. The child has ended when this returns.
        """
        self._running()
        try:
            if stop:
                self.tell("stop")
            return self.expect("result", longest_s)
        except MachineError:
            raise MachineError(f"{self._what} ended without a result; its message is above") from None
        finally:
            self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise MachineError(f"{self._what} was not started")
        return self._process

    def close(self) -> None:
        """Ask the child to stop and end it; does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None and self._connection is not None:
            self._connection.hang_up("stop")
            self._end(process, self._connection)
            self._connection.close()

    def leave(self) -> int:
        """Let the child go on by itself, as it is to once it was ready; its process id."""
        process, self._process = self._running(), None
        process.returncode = 0  # nobody waits for it: it is not reported as one that was left behind
        self.connection.close()
        return process.pid

    def _end(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        end_child(process, self._patience_s)

    def __enter__(self: _C) -> _C:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
