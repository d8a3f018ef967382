"""A fabric that is up, as a context manager: its parts on one machine or several, its controller, calls to that.

A fabric whose switches all forward by themselves gets no controller.
"""

from __future__ import annotations

import os
import socket
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from mininet.topo import Topo

from controllers.engine.jobs import Job
from controllers.northbound.client import ChannelClient
from experiments.controller_process import READY_TIMEOUT_S, ControllerFiles, ControllerProcess
from experiments.remote_controller import RemoteController
from experiments.rest_access import RestAccess
from experiments.settings import PacketSettings
from experiments.spread.machines import Cluster, UnderlayProbes
from experiments.spread.parts import first_number, part_to_plain, parts, read_from_plain, topology_to_plain
from measure.live.calibration import this_machine
from measure.live.counters import LinkCounters
from measure.live.delivery import Port, PortCounters
from measure.metrics.checks import with_machine
from railyard.errors import ControlError, MachineError
from railyard.ownership import remove_file
from railyard.plugin import absolute_name
from railyard.process.start import has_ended
from railyard.protocol import Hop
from railyard.timeline import Event, write_events
from topos.describe import pinned
from topos.describe import plan as describe
from topos.kernel import namespaces
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.iperf import IperfResult, result_of
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.relay import connected_in
from topos.placement import Placed, placed
from topos.plan import FabricPlan

_PROBED_S = 30.0
"""How long ago the network may have been probed at the first reading; a later reading always probes it again."""
_UP_S = 120.0
_ATTEMPTS = 3
"""Ranges of tunnel identifiers that are tried, where another run on a machine has some of them."""
_LISTENS_S = 20.0


class CounterReader:
    """Reads the counters of a fabric that is up, of all its parts.

    ``tunnels``: some links are tunnels between machines (``measure.live.delivery.Delivery``).
    """

    def __init__(self, cluster: Cluster, underlay: UnderlayProbes, *, tunnels: bool) -> None:
        self.tunnels = tunnels
        self._cluster = cluster
        self._underlay = underlay
        self._oldest_s = _PROBED_S
        cluster.ask("begin_readings")

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network and of the sampler on this machine; ``check`` names one that has ended."""
        return () if self._cluster.here is None else self._cluster.here.pids

    def check(self) -> None:
        """Raise ``MachineError`` if a machine is gone, or a process of its part or its sampler has ended."""
        self._cluster.ask("check")

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports."""
        events, self._oldest_s = self._underlay.events(self._oldest_s), 0.0
        ports: dict[Port, LinkCounters] = {}
        for machine, found in self._cluster.ask("read").items():
            own, counted = found if self._cluster.here is not None else read_from_plain(found)
            events += own if self._cluster.here is not None else with_machine(own, machine)
            ports |= counted
        return events, ports

    @contextmanager
    def sampler(self, log: Path) -> Iterator[None]:
        """Sample on each machine into ``log``, or on other machines into what ``Session.collect`` brings."""
        self._cluster.ask("begin_sampling", {name: {"log": str(log)} for name in self._cluster.names})
        try:
            yield
        finally:
            self._cluster.ask("end_sampling")


class Session:
    """One fabric, brought up with its controller, if it has switches that need one; leaving the context removes both.

    ``data`` is the folder for events and logs of the controller, by default one in that of the run, which goes with it.
    ``rest`` is the access to a REST interface; without it there is none. ``say`` takes sentences for the progress of
    the run. ``cluster`` has the machines that make the fabric, by default this one alone. ``rate_scale`` (emulated rate
    / real rate) is for ports that tell their real speed.
    """

    def __init__(
        self,
        settings: PacketSettings,
        topo: Topo,
        data: Path | None = None,
        rest: RestAccess | None = None,
        say: Callable[[str], None] = lambda text: None,
        cluster: Cluster | None = None,
        rate_scale: float = 1.0,
    ) -> None:
        self.settings = settings
        self._rate_scale = rate_scale
        self.say = say
        self.plan = describe(topo)
        self._recorded: tuple[int | None, float] = None, 0.0
        self.results: Path | None = None
        """The results folder of the points under way, where it is another one than ``data``."""
        self.controller: ControllerProcess | None = None
        self.remote: RemoteController | None = None
        self.cluster = cluster = cluster or Cluster()
        spread = (getattr(settings, "placement", "single"), pinned(topo)) if cluster.machines else ("single", None)
        self.placed: Placed = placed(self.plan, cluster.names, *spread)
        self._underlay = UnderlayProbes(cluster, self.placed)
        self._data = data
        self._rest = rest
        self._topo = topo
        self._forwarding: dict[str, dict[str, str]] = {}
        self._new_controller: Callable[[bool], ControllerProcess]
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        try:
            ours = bool(self.plan.controlled.switches) and self.settings.controller != "remote"
            if self.cluster.here is None:
                if ours:
                    self._start_apart()  # which takes as long as the probe
                self._check_underlay()
            self._bring_up()
            if ours and self.controller is None:
                self._start_in(self.net)
            elif self.plan.controlled.switches and not ours:
                self._reach_remote(self.net)
                if self.settings.app_path is not None:
                    self._start_in(self.net, self.settings.app_path)
            if self.controller is not None:
                self.controller.wait_ready(check=self.check_network)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    # ---- the parts ---------------------------------------------------------------------------------------------------

    def _bring_up(self) -> None:
        """Make every part, with tunnel identifiers that no other run on any machine has."""
        self._stack.callback(self._take_down)
        plain = {
            "datapath": self.settings.datapath,
            "packet_ins": self.settings.controller == "remote",
            "transport": self.settings.transport,
            "port_speed": self.settings.port_speed,
            "rate_scale": self._rate_scale,
        }
        if self.cluster.here is not None:
            orders: dict[str, Any] = {**plain, "topology": self._topo, "plan": self.plan}
            self._forwarding = self.cluster.ask("up", {self.cluster.names[0]: orders})
            return
        shared = {**plain, "topology": topology_to_plain(self._topo), "plan": asdict(self.plan)}
        addresses = {name: machine.address for name, machine in self.cluster.machines.items()}
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
        self._check_datapath()

    def _check_datapath(self) -> None:
        ways = {name: one["datapath"] for name, one in self._forwarding.items() if self.placed.switches_on(name)}
        if len(set(ways.values())) > 1:
            said = ", ".join(f"{name} by {way}" for name, way in ways.items())
            raise MachineError(f"the machines forward packets in different ways ({said}); choose one with --datapath")
        if self.controller is not None and self._exact != (self.datapath != "ovs"):
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

    def _check_underlay(self) -> None:
        """Probe the network between the machines; ``MachineError`` if it does not do, and nothing is recorded then."""
        try:
            self._underlay.check()
        except MachineError:
            self._stack.close()
            if self.controller is not None:
                remove_file(self.controller.files.events)
                remove_file(self.controller.files.log)
            raise

    def _ask_of(self, rank: int, op: str, **fields: Any) -> Any:
        machine = self.placed.machine_of[self.plan.hosts[rank]]
        return self.cluster.ask(op, {machine: fields})[machine]

    # ---- the controller ----------------------------------------------------------------------------------------------

    def _start_in(self, net: Emulation, app_path: Path | None = None) -> None:
        """Start the controller in the namespace of the switches; one with ``app_path`` asks an app for circuits."""
        options: dict[str, Any] = {"ovsdb": net.yard.database}
        if app_path is not None:
            self.say(f"your controller is asked for circuits at {app_path}")
            options = {"own_app": (app_path, net.run.path)}
        self._start(net.yard.netns_fd, exact_barriers=self.datapath != "ovs", **options)

    def _start_apart(self) -> None:
        """Start the controller in a namespace of its own, and lead the machines' connections to it."""
        (netns_fd,) = namespaces.make(1)
        self._stack.callback(os.close, netns_fd)
        with Netlink(netns_fd) as kernel:
            kernel.run([link_up(LO_INDEX, "lo")])
        self._exact = this_machine().takes(self.settings.datapath) != "ovs"
        self._start(netns_fd, self.cluster.channel, exact_barriers=self._exact, open_channel=True)
        self.cluster.lead(lambda: _patiently(lambda: connected_in(netns_fd, OPENFLOW)))

    def _start(self, netns_fd: int, channel: Path | None = None, **options: Any) -> None:
        files = ControllerFiles.written(self.cluster.run.path, self.plan.controlled, self.data)
        files = replace(files, channel=channel or files.channel)
        framework = self.settings.controller
        self._new_controller = lambda takes_over: ControllerProcess(
            files, framework, netns_fd, self._rest, takes_over=takes_over, **options
        )
        self._start_controller()

    def _start_controller(self, *, takes_over: bool = False) -> None:
        self.controller = self._stack.enter_context(self._new_controller(takes_over))
        self.cluster.run.add_child(self.controller.pid)

    def restart_controller(self, *, takes_over: bool = False) -> None:
        """Start a controller in place of one that has ended: the new one knows the fabric, and no job.

        ``takes_over``: the switches keep their circuits. ``ControlError`` when the new controller does not get ready.
        """
        assert self.controller is not None
        self.controller.stop()
        self._start_controller(takes_over=takes_over)
        self.controller.wait_ready(check=self.check_network)
        self.record(*self._recorded)

    def _reach_remote(self, net: Emulation) -> None:
        self.remote = RemoteController(net, self.settings.remote)
        self._stack.callback(self.remote.close)
        self.remote.wait_connected(READY_TIMEOUT_S)

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

    def register(self, job: Job, policy: str, *, resumes: bool = False) -> None:
        """Register a job with the controller and wait until its starting circuits are up.

        One that ``resumes`` keeps the circuits that it has. With a remote controller the fabric keeps the dark times of
        the job's delays from then on, where it can. ``ControlError`` if that controller left and did not come back.
        """
        exact = self.remote is not None and self.datapath != "ovs"
        if self.remote is not None:
            self.remote.wait_connected(READY_TIMEOUT_S)
        if exact:
            self.net.keep_dark(0.0)
        self.call("register", job=job, policy=absolute_name(policy), resumes=resumes)
        if exact:
            self.net.keep_dark(job.dark_s)

    def check(self, patience_s: float = 0.0) -> None:
        """Raise ``ControlError`` if the controller has ended, ``MachineError`` if a process of the network has.

        A controller that is ending closes its sockets first: ``patience_s`` is how long to wait for its end.
        """
        self.check_network()
        if self.controller is None:
            return
        if has_ended(self.controller.pid, patience_s):
            raise ControlError(self.controller.last_words)

    def check_network(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended, or a machine is gone."""
        self.cluster.ask("check")

    def record(self, point: int | None, since: float = 0.0) -> None:
        """Have the controller write its events to the folder of ``point`` from now on, with those from ``since`` on.

        Acts over REST since the last point are among them. None: the point has ended.
        """
        self._recorded = point, since
        self.call("record", point=point, since=since, results=self.results and str(self.results))

    # ---- what is up --------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Path:
        if self._data is None:
            self._data = self.cluster.run.path / "data"
            self._data.mkdir()
        return self._data

    @property
    def net(self) -> Emulation:
        """The network, where this machine makes all of it."""
        assert self.cluster.here is not None, "the fabric is on this machine"
        return self.cluster.here.net

    @property
    def model_plan(self) -> FabricPlan:
        """The plan for the model: cut links have the delay of the network between their machines."""
        return self._underlay.delayed_plan

    @property
    def most_hosts(self) -> int:
        """Number of hosts on the machine that has the most of them."""
        return max(len(self.placed.hosts_on(name)) for name in self.cluster.names)

    @property
    def control_s(self) -> float:
        """The round trip to the farthest machine in seconds, which requests and acknowledgements take."""
        return max((m.clock.round_trip_s for m in self.cluster.machines.values() if m.clock), default=0.0)

    @property
    def datapath(self) -> str:
        """How packets are forwarded: ``bpf`` or ``ovs``."""
        return self._forwarding[self.placed.machine_of[self.plan.switches[0].name]]["datapath"]

    @property
    def described(self) -> dict[str, Any]:
        """Keys of the manifest about the fabric that is up: ``datapath``, ``forwarding``, ``link_delay`` and others."""
        forwarding = {name: dict(found) for name, found in self._forwarding.items()}
        delays = {name: found.pop("link_delay") for name, found in forwarding.items()}
        if self.cluster.here is not None:
            (name,) = self.cluster.names
            return {"datapath": self.datapath, "forwarding": forwarding[name], "link_delay": delays[name]}
        machines = {
            name: {
                **machine.facts,
                "address": machine.address,
                "clock": machine.clock and machine.clock._asdict(),
                "forwarding": forwarding[name],
                "hosts": self.placed.hosts_on(name),
                "switches": self.placed.switches_on(name),
            }
            for name, machine in self.cluster.machines.items()
        }
        return {
            "datapath": self.datapath,
            "machines": machines,
            "underlay": [{"a": a, "b": b, **asdict(found)} for (a, b), found in self._underlay.found.items()],
            "cut_links": len(self.placed.cuts),
        }

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network on this machine and of the controller; ``check`` names one that has ended."""
        network = () if self.cluster.here is None else self.cluster.here.pids
        return (*network, *([] if self.controller is None else [self.controller.pid]))

    def netns_fds(self) -> list[int]:
        """File descriptors of the ranks' network namespaces, by rank; -1 for one on another machine."""
        here = self.cluster.here
        return [-1 if here is None else here.netns_fd(host) for host in self.plan.hosts]

    @property
    def machine_of(self) -> dict[int, str]:
        return {rank: self.placed.machine_of[host] for rank, host in enumerate(self.plan.hosts)}

    # ---- what is done with it ----------------------------------------------------------------------------------------

    def counters(self) -> CounterReader:
        return CounterReader(self.cluster, self._underlay, tunnels=bool(self.placed.cuts))

    def collect(self, folder: Path) -> None:
        """Bring what agents and samplers wrote on other machines into ``folder``, at the times of this clock."""
        if not self.cluster.machines:
            return

        def take(machine: str, file: str, events: list[Event]) -> None:
            number = self.cluster.names.index(machine)
            write_events(folder / f"{number}-{file}", with_machine(events, machine))

        write_events(folder / "clocks.jsonl", self.cluster.collect(take))

    def cut(self, rank: int) -> None:
        """Cut all links of a rank, in a torus those of its node too."""
        self.cluster.ask("cut", {name: {"host": self.plan.hosts[rank]} for name in self.cluster.names})

    def read_disk(self, rank: int, store: str, name: str) -> Iterator[bytes]:
        """The content of a file of ``store``, the folder that represents the disk of a rank, in pieces."""
        offset = 0
        while piece := b64decode(self._ask_of(rank, "read_disk", store=store, name=name, offset=offset)):
            yield piece
            offset += len(piece)

    def iperf(self, paths: Sequence[Hop], seconds: float, *, omit_s: float) -> IperfResult:
        """Measure by iperf3 over all ``paths`` at once, as ``topos.kernel.iperf.measure_iperf``."""
        servers: dict[str, list[Any]] = {}
        clients: dict[str, list[Any]] = {}
        for number, (rank, lane, peer, peer_lane) in enumerate(paths):
            here, there = (self.plan.rail_of(r).port(r, one) for r, one in ((rank, lane), (peer, peer_lane)))
            machine, far_machine = (self.placed.machine_of[end.host] for end in (here, there))
            clients.setdefault(machine, []).append((number, here.host, here.interface, here.ip, there.ip))
            servers.setdefault(far_machine, []).append((number, there.host, there.interface, there.ip))
        fields = {name: {"servers": own, "seconds": seconds + omit_s} for name, own in servers.items()}
        try:
            self.cluster.ask("begin_iperf", fields)
            fields = {name: {"clients": own, "seconds": seconds, "omit_s": omit_s} for name, own in clients.items()}
            found = self.cluster.ask("iperf", fields, timeout_s=seconds + omit_s + _UP_S)
        finally:
            self.cluster.ask("end_iperf", {name: {} for name in servers})
        return result_of({number: lane for own in found.values() for number, *lane in own}, seconds)


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
