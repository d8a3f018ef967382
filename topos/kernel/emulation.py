"""Mininet, brought up and down in batches.

The net is a ``mininet.net.Mininet`` and its nodes are Mininet nodes, so ``CLI(net)``, ``net.get('g0').cmd(...)``
and ``net.pingAll()`` work. Ours is the kernel work: all namespaces, all links, all bridges, each in one go.
"""

from __future__ import annotations

import atexit
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.topo import Topo

from railyard.errors import ConfigError, MachineError
from topos import describe
from topos.kernel import namespaces, tuning
from topos.kernel.links import RecordedLink
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.nodes import LazyNode, RailHost, RailSwitch
from topos.kernel.ovs import Bridge, BridgePort, Datapath, PrivateOvs
from topos.kernel.remains import Run
from topos.kernel.wiring import (
    clear_links,
    cut_requests,
    host_requests,
    link_requests,
    mend_requests,
    number_interfaces,
    own_ends,
    switch_shaping,
)
from topos.plan import FabricPlan

_CONTROLLER = ("127.0.0.1", 6653)


@dataclass
class Yard:
    """Where the switches live: the run's folder, the namespace and the private Open vSwitch in it."""

    run_dir: Path
    netns_fd: int
    ovs: PrivateOvs

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each Open vSwitch daemon."""
        return self.ovs.pids

    @property
    def datapath(self) -> str:
        """``system`` (the kernel's) or ``netdev`` (userspace)."""
        return self.ovs.datapath


class Emulation(Mininet):  # type: ignore[misc]
    """A running fabric.

    ``topo``: any Mininet topology; a ``RailTopo`` or a ``RackTopo`` also has a ``plan``. ``run_dir``: the folder of a
    registered ``Run``; None registers one and removes it at the end. ``datapath``: ``auto`` takes the kernel's where
    it has one. ``openflow``: address and port of the controller inside the yard; None starts no control channel, and
    electrical switches then learn addresses by themselves (but for the nodes of a torus) while optical ones stay dark.
    ``host_tuning`` sets the hosts' stacks. Links and nodes may be added until ``start``.

    Start it in a thread that lasts as long as the net (the daemons die with it). Raises ``MachineError`` for
    what the machine cannot do and ``ConfigError`` for what cannot be asked.
    """

    def __init__(
        self,
        topo: Topo | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        datapath: Datapath = "auto",
        openflow: tuple[str, int] | None = _CONTROLLER,
        host_tuning: tuning.HostTuning | None = None,
        **mininet: Any,
    ) -> None:
        self._running = False
        self._closed = False
        self._plan: FabricPlan | None = None
        self._undo: list[Callable[[], None]] = []
        self._fds: dict[str, int] = {}
        self._cut: set[str] = set()
        self.openflow = openflow
        self.host_tuning = host_tuning or tuning.HostTuning()
        _need_root()
        try:
            self.yard = self._make_yard(run_dir, datapath)
            mininet = {"host": RailHost, "switch": RailSwitch, "link": RecordedLink} | mininet
            super().__init__(topo=topo, controller=None, **mininet)
        except BaseException:
            self._undo_all()
            raise
        atexit.register(self.stop)

    def _make_yard(self, run_dir: str | os.PathLike[str] | None, datapath: Datapath) -> Yard:
        if run_dir is None:
            run = Run.open()
            self._undo.append(run.close)
        else:
            run = Run(Path(run_dir))
            run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run = run
        (fd,) = namespaces.make(1)
        self._undo.append(lambda: os.close(fd))
        with namespaces.inside(fd):
            namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        with Netlink(fd) as kernel:
            kernel.run([link_up(LO_INDEX, "lo")])
        ovs = PrivateOvs(run.path, fd, datapath, run.add_child)
        return Yard(run.path, fd, ovs)

    @classmethod
    def init(cls) -> None:
        """Allow this process enough open files; nothing of the machine's own settings is changed."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    @property
    def plan(self) -> FabricPlan:
        """The fabric as data; ``ConfigError`` for a topology whose hosts are no ranks."""
        if self._plan is None:
            self._plan = describe.plan(self.topo)
        return self._plan

    def netns_fd(self, host_name: str) -> int:
        """Descriptor of a host's namespace, open until ``stop``."""
        try:
            return self._fds[host_name]
        except KeyError:
            known = "the net is not started" if not self._fds else f"hosts are {', '.join(list(self._fds)[:4])}, ..."
            raise ConfigError(f"there is no namespace of {host_name}; {known}") from None

    def start(self) -> None:
        """Bring everything up; returns when every link is up and every bridge forwards what it may."""
        if self._running:
            return
        if self._closed:
            raise MachineError("this net was stopped; make a new Emulation")
        try:
            self._undo.append(self.yard.ovs.stop)
            self.yard.ovs.start()
            self._make_hosts()
            self._make_links()
            self.yard.ovs.add([self._bridge(switch) for switch in self.switches])
            self._shape_switches()
            self._ready()
        except BaseException:
            self._undo_all()
            raise
        self._running = True

    def _make_hosts(self) -> None:
        """Namespaces and their sysctls."""
        for host, fd in zip(self.hosts, namespaces.make(len(self.hosts)), strict=True):
            self._fds[host.name] = fd
        self._undo.append(self._close_namespaces)
        for host in self.hosts:
            ports = [(intf.rate_mbps, intf.mtu) for intf in host.intfList() if intf.rate_mbps is not None]
            with namespaces.inside(self._fds[host.name]):
                namespaces.write_sysctls(self.host_tuning.sysctls(ports))

    def _make_links(self) -> None:
        """All veth pairs from the yard, then each host's addresses, routes, neighbours and shaping."""
        number_interfaces(self.links)
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(link_requests(self.links, self._fds))
        for name, requests in host_requests(self.hosts, self.switches, self.host_tuning):
            with Netlink(self._fds[name]) as kernel:
                kernel.run(requests)

    def _shape_switches(self) -> None:
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(switch_shaping(self.switches))

    def _bridge(self, switch: RailSwitch) -> Bridge:
        targets = () if self.openflow is None else (f"tcp:{self.openflow[0]}:{self.openflow[1]}",)
        return Bridge(
            name=switch.name,
            dpid=int(switch.dpid, 16),
            ports=tuple(BridgePort(intf.name, switch.ports[intf]) for intf in switch.intfList()),
            controllers=targets,
            standalone=switch.learning and self.openflow is None,
        )

    def _ready(self) -> None:
        """From now on nodes act as in stock Mininet."""
        for link in self.links:
            link.intf1.made = link.intf2.made = True
        for node in (*self.hosts, *self.switches):
            node.on_child = self.run.add_child
            if isinstance(node, RailSwitch):
                node.environment = self.yard.ovs.environment
            node.ready(self._fds.get(node.name, self.yard.netns_fd))
        for host in self.hosts:
            if host.params.get("defaultRoute"):
                host.setDefaultRoute(host.params["defaultRoute"])

    def cut(self, host_name: str) -> None:
        """Take all links of a host down at once; in a torus those of its node too, since a chip's router dies with it.

        Its neighbours and the switches see their carrier go. A host that is cut already stays so. Raises
        ``ConfigError`` for a host that is not there.
        """
        host = self._known(host_name)
        if host_name in self._cut:
            return
        self._cut.add(host_name)
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(cut_requests(own_ends(host, self.switches)))
        with Netlink(self._fds[host_name]) as kernel:
            kernel.run(cut_requests(host.intfList()))

    def mend(self, host_name: str) -> None:
        """Undo ``cut``: links, routes and neighbours are as before. Does nothing to a host that is not cut."""
        host = self._known(host_name)
        if host_name not in self._cut:
            return
        with Netlink(self._fds[host_name]) as kernel:
            kernel.run(mend_requests(host, self.switches, self.host_tuning))
        with Netlink(self.yard.netns_fd) as kernel:
            kernel.run(link_up(intf.index, intf.name) for intf in own_ends(host, self.switches))
        self._cut.discard(host_name)

    def _known(self, host_name: str) -> Any:
        """The host; raises ``ConfigError`` where there is none of that name or the net is not up."""
        self.netns_fd(host_name)
        return self.nameToNode[host_name]

    def addLink(self, *args: Any, **params: Any) -> Any:
        """As in Mininet, until ``start``."""
        self._check_open("a link")
        return super().addLink(*args, **params)

    def addHost(self, name: str, cls: type[LazyNode] | None = None, **params: Any) -> Any:
        """As in Mininet, until ``start``."""
        self._check_open("a host")
        return super().addHost(name, cls, **params)

    def addSwitch(self, name: str, cls: type[LazyNode] | None = None, **params: Any) -> Any:
        """As in Mininet, until ``start``."""
        self._check_open("a switch")
        return super().addSwitch(name, cls, **params)

    def _check_open(self, what: str) -> None:
        if self._running:
            raise ConfigError(f"{what} can be added only before the net is started")

    def configHosts(self) -> None:
        """Note the hosts' addresses."""
        for host in self.hosts:
            host.configDefault()

    def waitConnected(self, timeout: float | None = None, delay: float = 0.01) -> bool:
        """Wait until every bridge that has a controller is connected to it; False when ``timeout`` seconds passed."""
        end = None if timeout is None or timeout is True else time.monotonic() + timeout
        expected = len(self.switches) if self.openflow else 0
        while not self.yard.ovs.is_connected(expected):
            self.yard.ovs.check()
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(delay)
        return True

    def stop(self) -> None:
        """Take everything down and wait until it is gone; a second call does nothing.

        Raises ``MachineError`` naming the interfaces that did not go.
        """
        if self._closed:
            return
        if self.terms:
            self.stopXterms()
        try:
            for node in (*self.hosts, *self.switches):
                node.terminate()
        finally:
            self._undo_all()

    def _undo_all(self) -> None:
        """Undo, last first, what was done; all of it, even where a part fails."""
        self._closed = True
        self._running = False
        atexit.unregister(self.stop)
        failed: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                failed = failed or error
        if failed:
            raise failed

    def _close_namespaces(self) -> None:
        """Delete the links, which takes them from the hosts too, then let the hosts' namespaces go."""
        self.yard.ovs.stop()
        self.run.end_children()
        try:
            clear_links(self.yard.netns_fd, self._yard_interfaces())
        finally:
            for fd in self._fds.values():
                os.close(fd)
            self._fds.clear()

    def _yard_interfaces(self) -> set[str]:
        """Names of all that this net put into the yard."""
        ends = (intf for link in self.links for intf in (link.intf1, link.intf2))
        return {intf.name for intf in ends if isinstance(intf.node, RailSwitch)} | {s.name for s in self.switches}

    def __enter__(self) -> Emulation:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _need_root() -> None:
    if os.geteuid() != 0:
        raise MachineError("making a net needs root; run it with sudo")
