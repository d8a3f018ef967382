"""The parent as a child process sees it: settings first, then what it tells and asks, until it says stop or has ended.

A child makes one ``Parent`` on its standard streams. From then on what it prints goes to standard error, and it prints
no traceback of an error that the end of its parent causes, such as a broken pipe.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from railyard import __version__
from railyard.errors import ConfigError, ControlError, MachineError, RailyardError, from_os_error, shortened
from railyard.ownership import naming
from railyard.process.connection import FOLDER_VARIABLE, Connection
from railyard.process.start import PARENT, go_on_in_child

_DAYS_S = 1e6


LATER = object()
"""What an operation returns whose answer follows by ``Answering.reply``."""


class Answering:
    """Carries out the requests and messages of a connection's peer by ``operations``, by name, with keyword arguments.

    What an operation returns is the answer to a request; it must be plain data or a dataclass, or ``LATER``. A
    ``RailyardError`` is raised at the other side; another error too, as a ``MachineError`` that names its type, and its
    traceback is printed here. An error of a message, which has no answer, is told as message ``error`` with ``of`` (the
    operation) and ``error``.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.operations: Mapping[str, Callable[..., Any]] = {}
        self.asked: int | None = None
        """The number of the request that is being carried out."""

    def fileno(self) -> int:
        return self.connection.fileno()

    def take(self) -> None:
        """Carry out what has come, without a wait; ``MachineError`` once the connection has ended."""
        for message in self.connection.arrived():
            self._carry_out(message)

    def reply(self, number: int, **outcome: Any) -> None:
        """Answer a request whose operation returned ``LATER``, unless the peer is gone."""
        with suppress(MachineError):
            self.connection.reply(number, **outcome)

    def _carry_out(self, message: dict[str, Any]) -> None:
        op, self.asked = message["op"], message.get("id")
        try:
            if op not in self.operations:
                raise ControlError(f"there is no operation {shortened(op)}; there are {', '.join(self.operations)}")
            outcome = {"result": self.operations[op](**message["fields"])}
        except Exception as error:
            outcome = outcome_of(error, op)
        if outcome.get("result") is LATER:
            return
        if self.asked is not None:
            try:
                self.connection.reply(self.asked, **outcome)
            except (MachineError, ValueError, TypeError) as error:  # a result that is too long, or no plain data
                self.connection.reply(self.asked, **outcome_of(error, op))
        elif "error" in outcome:
            self.connection.tell("error", of=op, **outcome)


class Parent(Answering):
    """The process that started this one, with the ``settings`` that it gave; it may ask and tell, and says stop."""

    def __init__(self, connection: Connection | None = None) -> None:
        if connection is None:
            sys.excepthook = _print_unless_abandoned
            connection = Connection.of_standard_streams("the process that started this one")
        super().__init__(connection)
        self.pid = PARENT
        """Whose end is that of the parent: also a process in between, where this one was forked."""
        self.stopping = False
        """Whether the parent has asked this process to stop, or has ended."""
        try:
            first = self.connection.next_message(_DAYS_S)
        except MachineError:
            first = None
        if first is None or first.pop("op") != "settings":
            os._exit(1)  # the parent has ended, and nobody is told
        self.settings: dict[str, Any] = first

    def ready(self, **fields: Any) -> None:
        """Tell the parent that this process works, its version, and the private folder that it was given, if any."""
        with suppress(MachineError):  # the parent has hung up, as ``take`` will find
            self.tell("ready", version=__version__, folder=os.environ.get(FOLDER_VARIABLE), **fields)

    def tell(self, op: str, /, **fields: Any) -> None:
        """Send a message; an error that ends this process where the parent is gone."""
        self.connection.tell(op, **fields)

    def take(self) -> None:
        """Carry out what has come from the parent, without a wait."""
        try:
            super().take()
        except MachineError:
            if not self.connection.ended:
                raise
            self.stopping = True
        self.stopping = self.stopping or os.getppid() != self.pid

    def wait(self, longest_s: float, *others: Any) -> list[Any]:
        """Wait for the parent or ``others``, ``longest_s`` seconds at most, and carry out what the parent asks for.

        Returns those of ``others`` that can be read.
        """
        waiting = select.poll()  # select() has no room for descriptors above 1023
        fds = {other if isinstance(other, int) else other.fileno(): other for other in others}
        for fd in (self.connection.fileno(), *fds):
            waiting.register(fd, select.POLLIN)
        readable = waiting.poll(0 if self.connection.pending else max(0.0, longest_s) * 1e3)
        self.take()
        return [fds[fd] for fd, _ in readable if fd in fds]

    def go_on_in_child(self) -> None:
        """Go on in a fork of this process, which namespaces that only children enter need."""
        self.pid = go_on_in_child()

    def stops(self, longest_s: float) -> bool:
        """Wait up to ``longest_s`` seconds; whether the parent has asked this process to stop, or has ended."""
        if not self.stopping:
            self.wait(longest_s)
        return self.stopping

    def on_stop(self, act: Callable[[], None]) -> None:
        """In a running loop of asyncio: serve the parent from it, and call ``act`` once at its stop or end."""
        loop = asyncio.get_running_loop()

        def arrived() -> None:
            self.take()
            if self.stopping:
                loop.remove_reader(self.fileno())
                act()

        loop.add_reader(self.fileno(), arrived)
        loop.call_soon(arrived)  # for what came with the settings

    def serve(self, sources: Callable[[], Mapping[int, Callable[[], None]]] = dict) -> None:
        """Serve the parent in the order of its requests until it asks to stop or has ended.

        Its private folder is removed then.

        ``sources`` returns further descriptors, each with what is called when it is readable or has ended; it is asked
        again after each round.
        """
        try:
            while not self.stopping:
                more = sources()
                for fd in self.wait(_DAYS_S, *more):
                    more[fd]()
        finally:
            if folder := os.environ.get(FOLDER_VARIABLE):
                shutil.rmtree(folder, ignore_errors=True)

    def _carry_out(self, message: dict[str, Any]) -> None:
        if message["op"] == "stop" and message.get("id") is None:
            self.stopping = True
        else:
            super()._carry_out(message)


def outcome_of(error: Exception, op: str) -> dict[str, Any]:
    """The fields of an answer, or of a message ``error``, by which the other side raises ``error``."""
    if isinstance(error, OSError):
        error = from_os_error(error)
    if not isinstance(error, RailyardError):
        traceback.print_exception(error)
        error = MachineError(f"{op} failed: {type(error).__name__}: {error}")
    kinds = [each.__name__ for each in type(error).__mro__ if issubclass(each, RailyardError)]
    place = {"key": error.key, "source": error.source} if isinstance(error, ConfigError) else {}
    return {"error": str(error), "kinds": kinds, **place}


def _print_unless_abandoned(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if os.getppid() == PARENT:
        sys.__excepthook__(kind, error, trace)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """In a child that writes ``path``: end it with one sentence where that fails, as on a full disk."""
    try:
        with naming(path):
            yield
    except OSError as error:
        fault = from_os_error(error)
        print(f"railyard: {fault}", file=sys.stderr)
        sys.exit(fault.exit_status)
