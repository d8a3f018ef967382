"""A fabric that is up, as a context manager: emulated network, controller and calls on its job channel.

A fabric whose switches all forward by themselves gets no controller.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from mininet.topo import Topo

from controllers.engine.jobs import Job
from controllers.northbound.client import ChannelClient
from experiments.controller_process import READY_TIMEOUT_S, ControllerFiles, ControllerProcess
from experiments.rest_access import RestAccess
from experiments.settings import PacketSettings
from measure.live.delivery import PortCounters
from measure.live.readings import Readings
from railyard.errors import ControlError
from railyard.ownership import temporary_folder
from railyard.plugin import absolute_name
from railyard.timeline import Event
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.relay import Relay
from topos.kernel.run_registry import RegisteredRun
from topos.plan import FabricPlan


class RunningSampler(Protocol):
    """A sampler of links and processors, or several."""

    @property
    def pids(self) -> Collection[int]:
        """Process ids on this machine."""

    def check(self) -> None:
        """Raise ``MachineError`` if a sampler has ended."""


class CounterReader(Protocol):
    """Reads the counters of a fabric (``measure.live.readings``)."""

    @property
    def tunnels(self) -> bool:
        """Whether some links are tunnels between machines (``measure.live.delivery.Delivery``)."""

    @property
    def pids(self) -> Collection[int]:
        """Process ids of the network on this machine; ``check`` names one that has ended."""

    def check(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended."""

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports."""

    def sampler(self, log: Path) -> AbstractContextManager[RunningSampler]:
        """A sampler that writes into ``log``, while the context lasts."""


class FabricSession(ABC):
    """A fabric that is up with its controller, if it has switches that need one, on this machine or on several.

    ``rest`` is the access to a REST interface; without it there is none. ``say`` takes sentences for the progress of
    the run.
    """

    plan: FabricPlan

    def __init__(self, settings: PacketSettings, rest: RestAccess | None, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self._rest = rest
        self._stack = ExitStack()
        self._recorded: tuple[int | None, float] = None, 0.0
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

    @property
    @abstractmethod
    def model_plan(self) -> FabricPlan:
        """Plan for the model: that of the fabric, with what the machines' own network adds."""

    @property
    @abstractmethod
    def most_hosts(self) -> int:
        """Number of hosts on the machine that has the most of them."""

    @property
    def control_s(self) -> float:
        """Seconds that the machines' own network adds to a request and its acknowledgement."""
        return 0.0

    @property
    @abstractmethod
    def datapath(self) -> str:
        """How packets are forwarded: ``bpf`` or ``ovs``."""

    @property
    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Keys of the manifest about the fabric that is up: ``datapath``, ``forwarding``, ``link_delay`` and others."""

    @property
    @abstractmethod
    def pids(self) -> Collection[int]:
        """Process ids of the network and of the controller; ``check`` names one that has ended."""

    @abstractmethod
    def check_network(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended."""

    @abstractmethod
    def netns_fds(self) -> list[int]:
        """File descriptors of the ranks' network namespaces, by rank; -1 for one on another machine."""

    @abstractmethod
    def counters(self) -> CounterReader:
        """A reader of the counters of this fabric."""

    @abstractmethod
    def collect(self, folder: Path) -> None:
        """Bring the events that agents and samplers wrote on other machines into ``folder``, on this clock."""

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

    def record(self, point: int | None, since: float = 0.0) -> None:
        """Have the controller write its events to the folder of ``point`` from now on, with those from ``since`` on.

        Acts over REST since the last point are among them. None: the point has ended.
        """
        self._recorded = point, since
        self.call("record", point=point, since=since)


class Session(FabricSession):
    """One fabric on this machine, brought up with its controller; leaving the context removes both.

    ``data`` is the folder for points and logs, by default a private one that is deleted at the end.
    """

    def __init__(
        self,
        settings: PacketSettings,
        topo: Topo,
        data: Path | None = None,
        rest: RestAccess | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(settings, rest, say)
        self._data = data
        self._topo = topo

    def __enter__(self) -> Session:
        try:
            self.run = self._stack.enter_context(RegisteredRun.open())
            if self._data is None:
                self._data = self._stack.enter_context(temporary_folder())
            self.net = Emulation(
                self._topo,
                self.run.path,
                self.settings.datapath,
                OPENFLOW,
                packet_ins=self.settings.controller == "remote",
            )
            self._stack.callback(self.net.stop)
            self.net.start()
            self.plan = self.net.plan
            self._connect()
        except BaseException:
            self._stack.close()
            raise
        return self

    def check_network(self) -> None:
        self.net.check()

    @property
    def model_plan(self) -> FabricPlan:
        return self.plan

    @property
    def most_hosts(self) -> int:
        return self.plan.ranks

    @property
    def datapath(self) -> str:
        return self.net.datapath

    @property
    def described(self) -> dict[str, Any]:
        return {"datapath": self.net.datapath, "forwarding": self.net.forwarding, "link_delay": self.net.delays.method}

    @property
    def data(self) -> Path:
        assert self._data is not None, "the session is up"
        return self._data

    def netns_fds(self) -> list[int]:
        return [self.net.netns_fd(host) for host in self.plan.hosts]

    def counters(self) -> Readings:
        return Readings(self.net, self.plan)

    def collect(self, folder: Path) -> None:
        """Do nothing: agents and sampler write on this machine."""

    def restart_controller(self) -> None:
        """Start a controller in place of one that has ended: the new one knows the fabric, and no job.

        ``ControlError`` when the new controller does not get ready.
        """
        assert self.controller is not None
        self.controller.stop()
        self._start_controller(self.controller.files)
        self.record(*self._recorded)

    @property
    def pids(self) -> tuple[int, ...]:
        return (*self.net.pids, *([] if self.controller is None else [self.controller.pid]))

    def _connect(self) -> None:
        controlled = self.plan.controlled
        if not controlled.switches:
            return
        if self.settings.controller == "remote":
            host, _, port = self.settings.remote.rpartition(":")
            self._stack.enter_context(Relay.to_controller(self.net.yard.netns_fd, OPENFLOW, (host, int(port))))
            if not self.net.waitConnected(READY_TIMEOUT_S):
                raise ControlError(f"not every switch reached the controller at {self.settings.remote}")
            return
        self._start_controller(ControllerFiles.written(self.run.path, controlled, self.data))

    def _start_controller(self, files: ControllerFiles) -> None:
        process = ControllerProcess(
            files,
            self.settings.controller,
            self.net.yard.netns_fd,
            self._rest,
            exact_barriers=self.net.datapath != "ovs",
            ovsdb=self.net.yard.database,
        )
        self.controller = self._stack.enter_context(process)
        self.run.add_child(self.controller.pid)
        self.controller.wait_ready(check=self.net.check)
