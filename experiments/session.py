"""A fabric that is up, as a context manager: emulated network, controller and calls on its job channel.

A fabric whose switches all forward by themselves gets no controller.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from experiments.controlled_fabric import ControlledFabric
from experiments.controller_process import READY_TIMEOUT_S, ControllerFiles, ControllerProcess
from experiments.rest_access import RestAccess
from experiments.settings import PacketSettings
from measure.live.readings import Readings
from railyard.errors import ControlError
from railyard.ownership import temporary_folder
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.relay import Relay
from topos.kernel.run_registry import RegisteredRun
from topos.plan import FabricPlan


class Session(ControlledFabric):
    """One fabric, brought up with its controller; leaving the context removes both from the machine.

    ``data`` is the folder for events and logs, by default a private one that is deleted at the end. ``rest`` is the
    access to a REST interface; without it there is none. ``say`` takes sentences for the progress of the run.
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
            self._connect()
        except BaseException:
            self._stack.close()
            raise
        return self

    def check_network(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended."""
        self.net.check()

    @property
    def plan(self) -> FabricPlan:
        """Plan of the fabric that is up."""
        return self.net.plan

    model_plan = plan

    @property
    def most_hosts(self) -> int:
        """Number of hosts, all on this machine."""
        return self.plan.ranks

    control_s = 0.0

    @property
    def datapath(self) -> str:
        """How packets are forwarded."""
        return self.net.datapath

    @property
    def described(self) -> dict[str, Any]:
        """Keys of the manifest about the fabric that is up."""
        return {"datapath": self.net.datapath, "forwarding": self.net.forwarding, "link_delay": self.net.delays.method}

    @property
    def data(self) -> Path:
        """The folder for all that is recorded while the session is up."""
        assert self._data is not None, "the session is up"
        return self._data

    def netns_fds(self) -> list[int]:
        """File descriptors of the ranks' network namespaces, by rank."""
        return [self.net.netns_fd(host) for host in self.plan.hosts]

    def counters(self) -> Readings:
        """A reader of the counters of this fabric."""
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

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network and of the controller; ``check`` names one that has ended."""
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
