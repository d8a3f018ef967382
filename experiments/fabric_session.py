"""What a point needs of a fabric that is up, on this machine (``experiments.session``) or on several."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from controllers.engine.jobs import Job
from experiments.settings import PacketSettings
from measure.live.delivery import PortCounters
from railyard.timeline import Event
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


class FabricSession(Protocol):
    """A fabric that is up, with its controller."""

    settings: PacketSettings

    def say(self, text: str) -> None:
        """Show a sentence as progress of the run."""

    @property
    def plan(self) -> FabricPlan:
        """Plan of the fabric that is up."""

    @property
    def model_plan(self) -> FabricPlan:
        """Plan for the model: that of the fabric, with what the machines' own network adds."""

    @property
    def most_hosts(self) -> int:
        """Number of hosts on the machine that has the most of them."""

    @property
    def control_s(self) -> float:
        """Seconds that the machines' own network adds to a request and its acknowledgement."""

    @property
    def datapath(self) -> str:
        """How packets are forwarded: ``bpf`` or ``ovs``."""

    @property
    def described(self) -> dict[str, Any]:
        """Keys of the manifest about the fabric that is up: ``datapath``, ``forwarding``, ``link_delay`` and others."""

    @property
    def channel_path(self) -> str | None:
        """Socket of the job channel; None without a controller of ours."""

    @property
    def pids(self) -> Collection[int]:
        """Process ids of the network and of the controller; ``check`` names one that has ended."""

    def check(self, patience_s: float = 0.0) -> None:
        """Raise an error that names the process of the network, or the controller, that has ended."""

    def netns_fds(self) -> list[int]:
        """File descriptors of the ranks' network namespaces, by rank; -1 for one on another machine."""

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request on the job channel and return the reply; without a controller of ours do nothing."""

    def register(self, job: Job, policy: str) -> None:
        """Register a job with the controller and wait until its starting circuits are up."""

    def counters(self) -> CounterReader:
        """A reader of the counters of this fabric."""

    def collect(self, folder: Path) -> None:
        """Bring the events that agents and samplers wrote on other machines into ``folder``, on this clock."""

    def new_controller_events(self) -> list[Event]:
        """Events of the controller since the last call."""
