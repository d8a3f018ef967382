"""A fabric over several machines, as a context manager: a part on each, one controller on this one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from experiments.controller_process import ControllerFiles, ControllerProcess
from experiments.rest_access import RestAccess
from experiments.session import FabricSession
from experiments.settings import SpreadSettings
from experiments.spread.machines import (
    Cluster,
    ClusterLauncher,
    delayed_plan,
    probe_underlay,
    refuse_underlay,
    underlay_events,
    underlay_needs,
)
from experiments.spread.parts import first_number, part_to_plain, parts, topology_to_plain
from measure.live.calibration import this_machine
from measure.live.counters import LinkCounters
from measure.live.delivery import PortCounters
from measure.metrics.checks import with_machine
from railyard.errors import MachineError
from railyard.ownership import remove_file
from railyard.timeline import Event, write_events
from topos.describe import pinned
from topos.describe import plan as describe
from topos.kernel import namespaces
from topos.kernel.emulation import OPENFLOW
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.relay import connected_in
from topos.placement import Placed, placed
from topos.plan import FabricPlan

_PROBED_S = 30.0
"""How long ago the network may have been probed at the first reading; a later reading always probes it again."""


class ClusterReadings:
    """Reads the counters on the machines of ``cluster``.

    ``underlay`` gives events about the network between them, from a probe that is at most so many seconds old.
    """

    pids: tuple[int, ...] = ()

    def __init__(self, cluster: Cluster, underlay: Callable[[float], list[Event]], *, tunnels: bool) -> None:
        self._cluster = cluster
        self._underlay = underlay
        self.tunnels = tunnels
        self._oldest_s = _PROBED_S
        cluster.ask("begin_readings")

    def check(self) -> None:
        """Raise ``MachineError`` if a machine is gone, or a process of its part or its sampler has ended."""
        self._cluster.ask("check")

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports, of all machines."""
        events, self._oldest_s = self._underlay(self._oldest_s), 0.0
        ports: dict[tuple[int, int], LinkCounters] = {}
        for machine, found in self._cluster.ask("read").items():
            events += with_machine(map(Event.from_line, found["events"]), machine)
            ports |= {(rank, lane): LinkCounters(**counters) for rank, lane, counters in found["ports"]}
        return events, ports

    @contextmanager
    def sampler(self, log: Path) -> Iterator[ClusterReadings]:
        """A sampler on each machine; what they write is collected with the events of the agents, not into ``log``."""
        self._cluster.ask("begin_sampling")
        try:
            yield self
        finally:
            self._cluster.ask("end_sampling")


_UP_S = 120.0
_ATTEMPTS = 3
"""Ranges of tunnel identifiers that are tried, where another run on a machine has some of them."""
_LISTENS_S = 20.0


class ClusterSession(FabricSession):
    """One fabric over the machines of ``launcher``, brought up with its controller; leaving the context removes both.

    ``data`` is the folder for events and logs of the controller.
    """

    def __init__(
        self,
        launcher: ClusterLauncher,
        settings: SpreadSettings,
        topo: Topo,
        data: Path,
        rest: RestAccess | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(settings, rest, say)
        self.cluster = launcher.cluster
        self.plan: FabricPlan = describe(topo)
        self.placed: Placed = placed(self.plan, self.cluster.names, settings.placement, pinned(topo))
        launcher.machine_of = {rank: self.placed.machine_of[host] for rank, host in enumerate(self.plan.hosts)}
        self.data = data
        self._topo = topo
        self._forwarding: dict[str, dict[str, Any]] = {}
        self._exact = False
        self._needs = underlay_needs(self.cluster, self.placed)

    def __enter__(self) -> ClusterSession:
        try:
            controlled = self.plan.controlled
            if controlled.switches:
                self._start_controller(controlled)  # which takes as long as the probe
            self._check_underlay()
            self._bring_up(controlled=bool(controlled.switches))
            if self.controller is not None:
                self.controller.wait_ready(check=self.check_network)
        except BaseException:
            self._stack.close()
            raise
        return self

    def _check_underlay(self) -> None:
        """Probe the network between the machines; ``MachineError`` if it does not do, and nothing is recorded then."""
        try:
            self._probe()
            refuse_underlay(self._needs, self._underlay)
        except MachineError:
            self._stack.close()
            if self.controller is not None:
                remove_file(self.controller.files.events)
                remove_file(self.controller.files.log)
            raise

    # ---- the fabric --------------------------------------------------------------------------------------------------

    def _start_controller(self, controlled: FabricPlan) -> None:
        """Start the controller in a namespace of its own, and lead the machines' connections to it."""
        (netns_fd,) = namespaces.make(1)
        self._stack.callback(os.close, netns_fd)
        with Netlink(netns_fd) as kernel:
            kernel.run([link_up(LO_INDEX, "lo")])
        files = replace(
            ControllerFiles.written(self.cluster.run.path, controlled, self.data), channel=self.cluster.channel
        )
        exact = self._exact = this_machine().takes(self.settings.datapath) != "ovs"
        process = ControllerProcess(
            files, self.settings.controller, netns_fd, self._rest, exact_barriers=exact, open_channel=True
        )
        self.controller = self._stack.enter_context(process)
        self.cluster.run.add_child(self.controller.pid)
        self.cluster.lead(lambda: _patiently(lambda: connected_in(netns_fd, OPENFLOW)))

    def _bring_up(self, *, controlled: bool) -> None:
        """Let each machine make its part, with tunnel identifiers that no other run on any of them has."""
        shared: dict[str, Any] = {"topology": topology_to_plain(self._topo), "plan": asdict(self.plan)}
        shared |= {"datapath": self.settings.datapath, "controlled": controlled}
        addresses = {name: machine.address for name, machine in self.cluster.machines.items()}
        self._stack.callback(self._take_down)
        for attempt in range(1, _ATTEMPTS + 1):
            drawn = first_number(f"{self.cluster.run.id} {self.plan.fabric}", attempt, len(self.placed.cuts))
            own = parts(self.placed, addresses, drawn)
            orders = {name: {**shared, "part": part_to_plain(part)} for name, part in own.items()}
            try:
                self._forwarding = self.cluster.ask("up", orders, timeout_s=_UP_S)
                break
            except MachineError as error:
                if attempt == _ATTEMPTS or not ("making the tunnel" in str(error) and "File exists" in str(error)):
                    raise
                self._take_down()
        ways = {name: one["datapath"] for name, one in self._forwarding.items() if self.placed.switches_on(name)}
        if len(set(ways.values())) > 1:
            said = ", ".join(f"{name} by {way}" for name, way in ways.items())
            raise MachineError(f"the machines forward packets in different ways ({said}); choose one with --datapath")
        if controlled and self._exact != (self.datapath != "ovs"):
            raise MachineError(
                f"the machines forward packets by {self.datapath}, which this machine would not choose; add --datapath "
                f"{self.datapath}"
            )

    def _take_down(self) -> None:
        try:
            self.cluster.ask("down")
        except MachineError:
            if not any(machine.connection.ended for machine in self.cluster.machines.values()):
                raise

    # ---- what a point needs ------------------------------------------------------------------------------------------

    @property
    def model_plan(self) -> FabricPlan:
        """The plan for the model: cut links have the delay of the network between their machines."""
        return delayed_plan(self.placed, self._underlay)

    @property
    def most_hosts(self) -> int:
        return max(len(self.placed.hosts_on(name)) for name in self.cluster.names)

    @property
    def control_s(self) -> float:
        """The round trip to the farthest machine, which requests and acknowledgements take."""
        return max(machine.clock.round_trip_s for machine in self.cluster.machines.values() if machine.clock)

    @property
    def datapath(self) -> str:
        first = self.placed.machine_of[self.plan.switches[0].name]
        return str(self._forwarding[first]["datapath"])

    @property
    def described(self) -> dict[str, Any]:
        machines = {
            name: {
                **machine.facts,
                "address": machine.address,
                "clock": machine.clock and machine.clock._asdict(),
                "forwarding": self._forwarding[name],
                "hosts": self.placed.hosts_on(name),
                "switches": self.placed.switches_on(name),
            }
            for name, machine in self.cluster.machines.items()
        }
        return {
            "datapath": self.datapath,
            "machines": machines,
            "underlay": [{"a": a, "b": b, **asdict(found)} for (a, b), found in self._underlay.items()],
            "cut_links": len(self.placed.cuts),
        }

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self.controller is None else (self.controller.pid,)

    def check_network(self) -> None:
        self.cluster.ask("check")

    def netns_fds(self) -> list[int]:
        """No namespace of a rank is of this process."""
        return [-1] * self.plan.ranks

    def counters(self) -> ClusterReadings:
        return ClusterReadings(self.cluster, self._probed, tunnels=bool(self.placed.cuts))

    def _probed(self, oldest_s: float) -> list[Event]:
        """Events about the network between the machines, which is probed again if the last probe is older."""
        if time.monotonic() - self._probed_at > oldest_s:
            self._probe()
        return underlay_events(self._needs, self._underlay, self._probed_at)

    def _probe(self) -> None:
        self._underlay, self._probed_at = probe_underlay(self.cluster, self._needs), time.monotonic()

    def collect(self, folder: Path) -> None:
        """Write the events of agents and samplers into ``folder``, at the times of this machine's clock."""

        def take(machine: str, file: str, events: list[Event]) -> None:
            number = self.cluster.names.index(machine)
            write_events(folder / f"{number}-{file}", with_machine(events, machine))

        write_events(folder / "clocks.jsonl", self.cluster.collect(take))


def _patiently(connect: Callable[[], socket.socket]) -> socket.socket:
    """A connection to the controller, which may have just been started."""
    end = time.monotonic() + _LISTENS_S
    while True:
        try:
            return connect()
        except (ConnectionRefusedError, FileNotFoundError):
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
