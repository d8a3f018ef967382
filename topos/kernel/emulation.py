"""A Mininet net that is brought up and down in batches.

The net is a ``mininet.net.Mininet`` and its nodes are Mininet nodes, so ``CLI(net)``, ``net.get('g0').cmd(...)``
and ``net.pingAll()`` work. Instead of one by one, all namespaces, all links and all bridges are made together.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from mininet import net
from mininet.log import output
from mininet.net import Mininet
from mininet.topo import Topo

from railyard.errors import ConfigError, MachineError
from railyard.limits import allow_open_files, files_of, memory_of, need_memory
from railyard.priority import set_real_time
from railyard.tools import safe_path
from topos import describe
from topos.kernel import namespaces, tuning, wiring
from topos.kernel.fastpath.offload import Forwarding, Offload, check_forwarding, check_path, tap_name
from topos.kernel.iperf import IperfLane, answers, measure_iperf
from topos.kernel.link_delays import Choice, LinkDelays
from topos.kernel.links import WHOLE, Part, RecordedIntf, RecordedLink
from topos.kernel.live_links import LiveLinks
from topos.kernel.namespaces import HostEnd, inside
from topos.kernel.needs import check_needs
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.nodes import LazyNode, RailHost, RailSwitch
from topos.kernel.ovs import Datapath, PrivateOvs
from topos.kernel.run_registry import RegisteredRun
from topos.kernel.transport import Transport, usable_transport
from topos.options import number
from topos.plan import FabricPlan


@contextmanager
def machine_left_alone() -> Iterator[None]:
    """Keep ``Mininet.__init__`` from raising ten settings of the whole machine, which would stay so.

    It calls ``Mininet.init`` by the name of the class, so that no subclass can replace it. From now on Mininet finds
    its tools in absolute folders only, and ends the terminals of a net (``xterm`` of its command line) by their process
    ids alone: it also kills everything whose command line matches ``mnexec.*socat``, whoever started it.
    """
    net.cleanUpScreens = lambda: None
    os.environ["PATH"] = safe_path()
    inited, Mininet.inited = Mininet.inited, True
    try:
        yield
    finally:
        Mininet.inited = inited


PortSpeed = Literal["emulated", "real"]
OPENFLOW = "127.0.0.1", 6653
"""Address of the controller in the namespace of the switches."""
HOSTS_FOLDER = "hosts"
"""Folder in that of a run where ``topos.kernel.reach`` keeps ``/etc/hosts`` of each host."""
_LAST_MOMENT_S = 0.5
_LONGEST_DARK_S = 3600.0


class Emulation(Mininet):  # type: ignore[misc]
    """A fabric emulated by Mininet and a private Open vSwitch.

    - ``topo``: any Mininet topology; a ``RailTopo``, a ``RackTopo`` or an ``EdgeTopo`` also has a ``plan``;
    - ``run_dir``: the folder of a ``RegisteredRun``; None registers a run and removes it at the end;
    - ``datapath``: how packets of simple flows are forwarded: ``bpf`` in the kernel, for Open vSwitch, ``ovs`` by
      Open vSwitch itself; ``auto`` takes the first of these that the kernel has;
    - ``open_vswitch``: Open vSwitch's own datapath, ``system`` (the kernel's) or ``netdev`` (userspace); ``auto`` takes
      the kernel's where the kernel has one;
    - ``link_delay``: how delayed links hold packets, ``netem`` or ``relay`` (``auto``: netem where the kernel has it);
    - ``openflow``: address and port of the controller inside the yard, on its loopback interface (the fast path waits
      up to 10 ms for a connection to an address that neither answers nor refuses); None starts no control channel:
      electrical switches then learn addresses by themselves (except the nodes of a torus) and optical ones stay dark;
    - ``packet_ins``: whether the controller may be sent packets and send them on, as any but Railyard's own may. Then
      packets that Open vSwitch reads have all checksums filled in and fit the MTU, which costs it processor time;
    - ``port_speed``: what OpenFlow tells as the speed of a port: ``emulated``, the rate of its link, or ``real``, that
      by ``rate_scale`` (emulated rate / real rate); None: what Open vSwitch says of its own ports;
    - ``stp``: whether electrical switches agree on a spanning tree (RSTP), which stands when ``start`` returns. Open
      vSwitch makes it of ports of its own, so it needs the datapath ``ovs``, which ``auto`` then takes;
    - ``part``: the part of the topology to make, where other machines make the rest;
    - ``transport``: congestion control of all hosts; None takes cubic, or reno where the kernel has no cubic.

    Links and nodes may be added until ``start``, which must run in a thread that lasts as long as the net, since the
    daemons die with it. Raises ``MachineError`` where the machine lacks something and ``ConfigError`` for bad options.
    """

    def __init__(
        self,
        topo: Topo | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        datapath: Forwarding = "auto",
        openflow: tuple[str, int] | None = OPENFLOW,
        link_delay: Choice = "auto",
        open_vswitch: Datapath = "auto",
        part: Part = WHOLE,
        packet_ins: bool = True,
        transport: Transport | None = None,
        port_speed: PortSpeed | None = None,
        rate_scale: float = 1.0,
        stp: bool = False,
        **mininet: Any,
    ) -> None:
        self._running = False
        self._closed = False
        self._plan: FabricPlan | None = None
        self._undo = ExitStack()
        self._fds: dict[str, int] = {}
        self._live: LiveLinks | None = None
        self.openflow = openflow
        self._packet_ins = packet_ins
        self.datapath = check_forwarding(datapath)
        self._offload: Offload | None = None
        self._why = ""
        self._stp = stp
        if stp and datapath == "bpf":
            raise ConfigError("is made of the ports of Open vSwitch; take datapath ovs or auto with it", key="stp")
        if stp and datapath == "auto":
            self.datapath, self._why = "ovs", "a spanning tree is made of the ports of Open vSwitch"
        multiples = {None: None, "emulated": 1.0, "real": 1 / rate_scale}
        if port_speed not in multiples:
            raise ConfigError(f"must be emulated, real or None, not {port_speed}", key="port_speed")
        self._speed_multiple = multiples[port_speed]
        self.part = part
        if os.geteuid() != 0:
            raise MachineError("making a net needs root; run it with sudo")
        check_needs()
        self.transport = usable_transport(transport)
        try:
            self.yard = self._make_yard(run_dir, open_vswitch)
            mininet = {"host": RailHost, "switch": RailSwitch, "link": RecordedLink} | mininet
            self.delays = LinkDelays((), link_delay)
            with machine_left_alone():
                super().__init__(topo=topo, controller=None, **mininet)
        except BaseException:
            self._undo_all()
            raise
        atexit.register(self.stop)

    def _make_yard(self, run_dir: str | os.PathLike[str] | None, datapath: Datapath) -> PrivateOvs:
        if run_dir is None:
            run = RegisteredRun.open()
            self._undo.callback(run.close)
        else:
            run = RegisteredRun(Path(run_dir))
            run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run = run
        (fd,) = namespaces.make(1)
        self._undo.callback(os.close, fd)
        with namespaces.inside(fd):
            namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        with Netlink(fd) as kernel:
            kernel.run([link_up(LO_INDEX, "lo")])
        return PrivateOvs(run.path, fd, datapath, run.add_child)

    @property
    def _own_hosts(self) -> list[Any]:
        return [host for host in self.hosts if self.part.has(host.name)]

    @property
    def _own_switches(self) -> list[Any]:
        return [switch for switch in self.switches if self.part.has(switch.name)]

    @property
    def plan(self) -> FabricPlan:
        """The plan of the fabric; ``ConfigError`` for a topology whose hosts are not ranks."""
        if self._plan is None:
            self._plan = describe.plan(self.topo)
        return self._plan

    def netns_fd(self, host_name: str) -> int:
        """Descriptor of a host's namespace, open until ``stop``; ``ConfigError`` for an unknown host."""
        try:
            return self._fds[host_name]
        except KeyError:
            known = "the net is not started" if not self._fds else f"hosts are {', '.join(list(self._fds)[:4])}, ..."
            raise ConfigError(f"there is no namespace of {host_name}; {known}") from None

    def start(self) -> None:
        """Bring the net up; returns when every link is up and Open vSwitch has made every bridge."""
        if self._running:
            return
        if self._closed:
            raise MachineError("this net was stopped; make a new Emulation")
        try:
            hosts, ports = len(self._own_hosts), sum(len(switch.intfList()) for switch in self._own_switches)
            allow_open_files(files_of(hosts, ports), f"a fabric of {hosts} hosts")
            need_memory(memory_of(hosts), f"a fabric of {hosts} hosts")
            self._undo.callback(self.yard.stop)
            self._begin_offload(ports)
            self.yard.start()
            self._make_hosts()
            self._make_links()
            self._choose_datapath()
            fast_path = self._offload is not None
            self.yard.add(wiring.bridges(self._own_switches, self._controller_of, fast_path, self._stp))
            if not self._stp:  # whose switches learn, since a table might lead into a blocked link
                self.yard.forward(wiring.forwarding(self._own_switches, self.openflow is not None))
            with Netlink(self.yard.netns_fd) as kernel:
                kernel.run(wiring.switch_shaping(self._own_switches))
            self._finish_checksums()
            self._attach()
            if self._stp:
                self.yard.wait_tree()
            self._ready()
        except BaseException:
            with suppress(MachineError):  # the first error counts: what could not be deleted ends with its namespace
                self._undo_all()
            raise
        self._running = True
        ours = self.part, self._fds, self.yard.netns_fd, self.delays
        self._live = LiveLinks(self.nameToNode, self.switches, *ours, self._set_default_route)

    def _begin_offload(self, ports: int) -> None:
        if self.datapath == "ovs" or not ports:
            self.datapath = "ovs"
            return
        self.yard.own_dir = self.run.path / "ovs"
        self.yard.own_dir.mkdir(mode=0o700, exist_ok=True)
        names = [switch.name for switch in self._own_switches]
        check_path(self.yard.own_dir, names)
        places = self.yard.netns_fd, self.run.path, self.yard.own_dir
        flows = 2 * (ports + len(self.hosts) * len(names))
        self._offload = Offload(*places, names, self.datapath, self.openflow, ports=ports, flows=flows)
        self._undo.callback(self._offload.close)
        self._offload.begin()

    def _choose_datapath(self) -> None:
        """Take the fastest way to forward that the kernel has, or the one asked for."""
        if self._offload is None:
            return
        self._offload.ready()
        self.run.add_child(self._offload.pid)
        self.datapath = self._offload.choose()
        self._why = self._offload.why
        if self.datapath == "ovs":
            self._offload.close()
            self._offload = None
            for switch in self._own_switches:  # where ovs-ofctl looks for them
                (self.run.path / f"{switch.name}.mgmt").symlink_to(self.yard.own_dir / f"{switch.name}.mgmt")

    @property
    def forwarding(self) -> dict[str, str]:
        """How packets are forwarded: the datapath, why not a faster one, and Open vSwitch's own datapath."""
        own = {"system": "kernel", "netdev": "userspace"}[self.yard.datapath]
        return {"datapath": self.datapath, "why": self._why, "open_vswitch": own}

    def _finish_checksums(self) -> None:
        """Let packets be finished where they leave for Open vSwitch, if a controller may be sent them.

        Userspace Open vSwitch (3.1) knows what is unfinished as long as it forwards a packet itself. A packet-in has no
        place for that, so the receiver would discard the packet-out; the datapath of the kernel finishes it. With a
        fast path it is the taps that send to Open vSwitch, so that what the kernel forwards stays as it is.
        """
        if not self._packet_ins or self.openflow is None or self.yard.datapath == "system":
            return
        if self._offload is not None:
            ends = [intf for switch in self._own_switches for intf in switch.intfList()]
            with inside(self.yard.netns_fd):
                namespaces.finish_checksums(tap_name(end.index) for end in ends)
            return
        for host in self._own_hosts:
            with inside(self._fds[host.name]):
                namespaces.finish_checksums(intf.name for intf in host.intfList())

    def _attach(self) -> None:
        """Bring the ports of Open vSwitch up, and let the fast path forward between them and the links."""
        if self._offload is None:
            if self._speed_multiple is not None and self._own_switches:
                raise ConfigError(
                    "needs the fast path, which answers for ports: those of datapath ovs are veths, of a fixed speed",
                    key="port_speed",
                )
            return
        ends = [(switch, intf) for switch in self._own_switches for intf in switch.intfList()]
        with inside(self.yard.netns_fd):
            taps = [(socket.if_nametoindex(tap_name(intf.index)), tap_name(intf.index)) for _, intf in ends]
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(link_up(index, name) for index, name in taps)
        speeds = {} if self._speed_multiple is None else wiring.port_speeds(self._own_switches, self._speed_multiple)
        self._offload.attach(
            [(switch.name, switch.ports[intf], intf.name, intf.index) for switch, intf in ends],
            speeds,
            exchanged=self.yard.datapath == "system",  # which counts at internal ports as their other end would
        )
        if self.openflow is not None:
            set_real_time(self.yard.pids["ovs-vswitchd"])  # it has little to do but to answer the controller

    def _make_hosts(self) -> None:
        for host, fd in zip(self._own_hosts, namespaces.make(len(self._own_hosts)), strict=True):
            self._fds[host.name] = fd
        self._undo.callback(self._close_namespaces)
        for host in self._own_hosts:
            with namespaces.inside(self._fds[host.name]):
                namespaces.write_sysctls(tuning.host_sysctls(wiring.shaped_ports(host)))
            host.transport = self.transport

    def _make_links(self) -> None:
        """Make all veth pairs from the yard, then each host's addresses, routes, neighbours and shaping."""
        wiring.number_interfaces(self.links)
        whole = [link for link in self.links if self.part.has(link.intf1.node.name, link.intf2.node.name)]
        self.delays = LinkDelays(whole, self.delays.choice)
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(wiring.link_requests(whole, self._fds))
        with Netlink() as kernel:
            kernel.run(wiring.tunnel_requests(self.links, self._fds, self.yard.netns_fd, self.part.tunnels))
        self.delays.make(self._fds, self.yard.netns_fd)
        if self.delays.relay is not None:
            self.run.add_child(self.delays.relay.pid)
        for name, requests in wiring.host_requests(self._own_hosts, self.switches):
            with Netlink(self._fds[name]) as kernel:
                kernel.run(requests)

    def _controller_of(self, switch: RailSwitch) -> str | None:
        """Where the bridge of a switch connects to: the controller, or the fast path in front of it."""
        if self.openflow is None or not switch.controlled:
            return None
        if self._offload is None:
            return f"tcp:{self.openflow[0]}:{self.openflow[1]}"
        return f"unix:{self.yard.own_dir / switch.name}.controller"

    def _ready(self) -> None:
        """Let nodes, links and interfaces behave as in stock Mininet from now on."""
        for link in self.links:
            link.intf1.made = link.intf2.made = True
        for node in (*self._own_hosts, *self._own_switches):
            node.on_child = self.run.add_child
            node.environment = self.run.environment
            if isinstance(node, RailSwitch):
                node.environment |= self.yard.environment
            else:
                node.hosts_file = str(self.run.path / HOSTS_FOLDER / node.name)
            node.ready(self._fds.get(node.name, self.yard.netns_fd))
        for host in self._own_hosts:
            self._set_default_route(host)

    def _set_default_route(self, host: Any) -> None:
        if host.params.get("defaultRoute"):
            host.setDefaultRoute(host.params["defaultRoute"])

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network: Open vSwitch, fast path, relay of delays. ``check`` names one that has ended."""
        others = (self._offload, self.delays.relay)
        return (*self.yard.pids.values(), *(process.pid for process in others if process is not None))

    def check(self) -> None:
        """Raise ``MachineError`` if a process of the network has ended: Open vSwitch, fast path, relay of delays."""
        self.yard.check()
        if self._offload is not None:
            try:
                self._offload.check()
            except MachineError:
                self.yard.check(_LAST_MOMENT_S)  # the fast path ends as soon as Open vSwitch closes its sockets
                raise
        self.delays.check()

    def keep_dark(self, seconds: float) -> None:
        """Keep ports of optical switches dark for ``seconds`` from each change of their circuits, whoever asks for it.

        This holds until the next call; 0 ends it. Dark ports pass nothing, and replies to barriers and to commits of
        bundles come when there is light. ``MachineError`` with datapath ``ovs``, which cannot do that.
        """
        number("seconds", seconds, 0, _LONGEST_DARK_S, "s")
        if not self._running:
            raise ConfigError("dark times can be kept only while the net is up")
        if self._offload is not None:
            self._offload.keep_dark(seconds, [switch.name for switch in self._own_switches if switch.kind == "ocs"])
        elif seconds:
            raise MachineError("the dark time of circuits needs datapath bpf, and this net forwards by ovs")

    def cut(self, host_name: str) -> None:
        """Take all links of a host down at once, in a torus those of its node too (the chip's router fails with it).

        The interfaces at the other ends lose their carrier. Of a host of another part the ends in this part are taken
        down. Does nothing for a host that is cut already. Raises ``ConfigError`` for an unknown host.
        """
        self._check_host(host_name)
        if not self.live.has_failed(host_name):
            self.live.fail(host_name)

    def mend(self, host_name: str) -> None:
        """Undo ``cut``, if the host is cut. Its links pass packets as soon as OpenFlow has their ports live again."""
        self._check_host(host_name)
        if self.live.has_failed(host_name):
            self.live.restore(host_name)

    def set_link(
        self,
        a: str,
        b: str | None = None,
        *,
        rate_mbps: float | None = None,
        delay_ms: float | None = None,
        loss_percent: float | None = None,
    ) -> None:
        """Change the links between nodes ``a`` and ``b``, or those that ``a`` alone names (``LiveLinks.set``)."""
        name = a if b is None else f"{a}-{b}"
        self.live.set(name, rate_mbps, delay_ms, loss_percent)

    def fail(self, name: str) -> None:
        """Take a host, a switch, a port (``rail0:3``) or a link (``g0-rail0``, ``g0-r1``) down (``LiveLinks.fail``)."""
        self.live.fail(name)

    def restore(self, name: str) -> None:
        """Undo ``fail``; ``ConfigError`` for what has not failed."""
        self.live.restore(name)

    def set_transport(self, host: str, name: str) -> None:
        """Let new connections of a host use congestion control ``name``; ``ConfigError`` if they cannot."""
        self.live.set_transport(host, name)

    @property
    def live(self) -> LiveLinks:
        """The links, to be changed; ``ConfigError`` unless the net is up."""
        if self._live is None:
            raise ConfigError("the net is not started, so its links cannot be changed")
        return self._live

    def ping(self, hosts: Sequence[Any] | None = None, timeout: str | float | None = None) -> float:
        """Ping between all ``hosts`` as in Mininet, with 1 s for an answer unless ``timeout`` says more."""
        return float(super().ping(hosts, _ping_timeout(timeout)))

    def pingFull(self, hosts: Sequence[Any] | None = None, timeout: str | float | None = None) -> list[Any]:
        return list(super().pingFull(hosts, _ping_timeout(timeout)))

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: Literal["TCP", "UDP"] = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: float = 5,
        port: int = 5001,
    ) -> list[str]:
        """Measure from the first of two ``hosts`` to the second; returns the rates of receiver and sender, as Mininet.

        iperf3 measures, over the first pair of their ports that reach each other; ``fmt`` and ``port`` are ignored.
        Raises ``ConfigError`` for hosts between which no pair does, and ``MachineError`` if iperf3 gives no result.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        lanes = self._lanes_between(client, server)
        lane = next((lane for lane, good in zip(lanes, answers(lanes), strict=True) if good), None)
        if lane is None:
            raise ConfigError(
                f"no port of {client} reaches one of {server} (no ping was answered in 1 s); "
                "on an optical switch a circuit must join them"
            )
        output(f"*** Iperf: testing {l4Type} from {client} ({lane.client.ip}) to {server} ({lane.server.ip})\n")
        result = measure_iperf([lane], seconds, udp_rate=udpBw if l4Type == "UDP" else None)
        rates = [f"{mbps:.4g} Mbits/sec" for mbps in (result.mbps, *result.sent_mbps)]
        results = [udpBw, *rates] if l4Type == "UDP" else rates
        output(f"*** Results: {results}\n")
        return results

    def _lanes_between(self, client: Any, server: Any) -> list[IperfLane]:
        """All pairs of a port of one host and a port of the other in the same IP network."""
        if client is server:
            raise ConfigError(f"iperf needs two hosts, not {client} twice")
        ends, far_ends = ([(intf.network, self._end(intf)) for intf in host.intfList()] for host in (client, server))
        lanes = [
            IperfLane(end, far) for network, end in ends for other, far in far_ends if network and network == other
        ]
        if not lanes:
            raise ConfigError(f"{client} and {server} have no network in common")
        return lanes

    def _end(self, intf: RecordedIntf) -> HostEnd:
        return HostEnd(self.netns_fd(intf.node.name), intf.name, intf.ip)

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Take the links between two nodes ``up`` or ``down``, as in Mininet; the routes of hosts come up with them."""
        if src not in self or dst not in self or not self[src].connectionsTo(self[dst]):
            super().configLinkStatus(src, dst, status)  # which says what is wrong
        elif status == "up":
            self.live.bring_up(f"{src}-{dst}")
        elif not self.live.has_failed(f"{src}-{dst}"):
            self.live.fail(f"{src}-{dst}")

    def _check_host(self, host_name: str) -> None:
        if self.part.has(host_name):
            self.netns_fd(host_name)

    def addLink(self, *args: Any, **params: Any) -> Any:
        self._check_open("a link")
        return super().addLink(*args, **params)

    def addHost(self, name: str, cls: type[LazyNode] | None = None, **params: Any) -> Any:
        self._check_open("a host")
        return super().addHost(name, cls, **params)

    def addSwitch(self, name: str, cls: type[LazyNode] | None = None, **params: Any) -> Any:
        self._check_open("a switch")
        return super().addSwitch(name, cls, **params)

    def _check_open(self, what: str) -> None:
        if self._running:
            raise ConfigError(f"{what} can be added only before the net is started")

    def configHosts(self) -> None:
        """Record the hosts' addresses, which ``start`` then sets."""
        for host in self.hosts:
            host.configDefault()

    def waitConnected(self, timeout: float | None = None, delay: float = 0.01) -> bool:
        """Wait until every bridge is connected to its controller; False if that takes longer than ``timeout`` s."""
        end = None if timeout is None or timeout is True else time.monotonic() + timeout
        expected = sum(switch.controlled for switch in self._own_switches) if self.openflow else 0
        while not self.yard.is_connected(expected):
            self.yard.check()
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(delay)
        return True

    def stop(self) -> None:
        """Take the net down and return when all of it is removed; a second call does nothing.

        Raises ``MachineError`` naming the interfaces that could not be removed.
        """
        if self._closed:
            return
        try:
            if self.terms:
                self.stopXterms()
            for node in (*self.hosts, *self.switches):
                node.terminate()
        finally:
            self._undo_all()

    def _undo_all(self) -> None:
        """Run all undo steps in reverse order, also after one fails; then raise the error."""
        self._closed = True
        self._running = False
        self._live = None
        atexit.unregister(self.stop)
        self._undo.close()

    def _close_namespaces(self) -> None:
        """Delete the links, at the hosts' ends too, then close the hosts' namespaces."""
        try:
            if self._offload is not None:
                self._offload.close()
            self.yard.stop()
            self.run.end_children()
            if self.delays.netns_fd is not None:
                wiring.clear_links(self.delays.netns_fd, self.delays.interfaces)
            wiring.clear_links(self.yard.netns_fd, wiring.yard_interfaces(self.links, self.switches))
            for fd in self._fds.values() if self.part.tunnels else ():  # a tunnel does not go with its other end
                wiring.clear_links(fd, self.part.tunnels)
        finally:
            self.delays.close()
            for fd in self._fds.values():
                os.close(fd)
            self._fds.clear()

    def __enter__(self) -> Emulation:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _ping_timeout(given: str | float | None) -> str:
    return f"{number('timeout', given or 1, 0.001, 3600, 's'):g}"
