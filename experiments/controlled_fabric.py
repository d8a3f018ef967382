"""A fabric that is up with its controller, on one machine or several: calls on the controller's job channel."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

from controllers.engine.jobs import Job
from controllers.northbound.client import ChannelClient
from experiments.controller_process import ControllerProcess
from experiments.rest_access import RestAccess
from experiments.settings import PacketSettings
from railyard.errors import ControlError
from railyard.plugin import absolute_name
from railyard.timeline import Event, events_in, with_gaps


class ControlledFabric:
    """A fabric that is up with its controller, if it has switches that need one: calls on the controller's job channel.

    ``rest`` is the access to a REST interface; without it there is none. ``say`` takes sentences for the progress of
    the run.
    """

    def __init__(self, settings: PacketSettings, rest: RestAccess | None, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self._rest = rest
        self._stack = ExitStack()
        self._events_read = self._next_event = 0
        self.controller: ControllerProcess | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    @property
    def channel_path(self) -> str | None:
        """Socket of the job channel; None with a remote controller, and on a fabric without controlled switches."""
        return None if self.controller is None else str(self.controller.files.channel)

    @property
    def rest_address(self) -> str | None:
        """The address of the REST interface; None without one."""
        return None if self.controller is None else self.controller.rest_address

    @property
    def rest_line(self) -> str | None:
        """How to call the REST interface, for a person; None without one."""
        return None if self._rest is None or self.rest_address is None else self._rest.line(self.rest_address)

    def check_network(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended."""
        raise NotImplementedError

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request on the job channel and return the reply; without a controller of ours do nothing.

        A request that fails because a process of the network ended meanwhile raises the error that names the process.
        """
        if self.controller is None:
            return {}
        self.check()
        try:
            with ChannelClient(self.controller.files.channel, timeout_s=self.settings.ack_timeout_s) as client:
                return client.call(op, **fields)
        except ControlError:
            self.check_network()
            raise

    def register(self, job: Job, policy: str) -> None:
        """Register a job with the controller and wait until its starting circuits are up."""
        self.call("register", job=job, policy=absolute_name(policy))

    def check(self, patience_s: float = 0.0) -> None:
        """Raise ``ControlError`` if the controller has ended, ``MachineError`` if a process of the network has.

        A controller that is ending closes its sockets first: ``patience_s`` is how long to wait for its end.
        """
        self.check_network()
        if self.controller is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self.controller.process.wait(patience_s)
            raise ControlError(f"the controller ended during the run: {self.controller.last_log_line()}")

    def new_controller_events(self) -> list[Event]:
        """Events that the controller has added to its events file since the last call, and ``run lost`` for gaps."""
        if self.controller is None or not self.controller.files.events.exists():
            return []
        with self.controller.files.events.open("rb") as file:
            file.seek(self._events_read)
            complete, newline, _ = file.read().rpartition(b"\n")
        self._events_read += len(complete + newline)
        events = events_in(f"{line}\n" for line in complete.decode(errors="replace").split("\n") if line)
        first, self._next_event = self._next_event, max([self._next_event, *(e.get("n", -1) + 1 for e in events)])
        return with_gaps(events, first)
