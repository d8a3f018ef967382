"""The base class of Railyard's Mininet topologies: hosts are ranks, and links have a rate, an MTU and a lane.

``topos.rails``, ``topos.racks`` and ``topos.edge`` build on it; ``topos.describe`` derives the plan from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from shutil import which
from types import MappingProxyType
from typing import Any

from mininet.log import error
from mininet.node import OVSSwitch
from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.edge_plan import EdgePlan
from topos.options import link_parameters, rate, whole
from topos.plan import MeshPlan, RackPlan

MOST_PORTS_PER_SWITCH = 32000
FRONT_END_DPID = 0x30000
_FRONT_END_KIND = 3


def mac_address(kind: int, index: int, port: int, far_end: bool = False) -> str:
    """The MAC address of the host's end of the link at port ``port`` of a switch, or of the switch's end (``far_end``).

    ``kind`` is the kind of the switch (1 rail, 2 scale-up, 3 front-end, 4 node of a torus,
    5 trunk, 6 region, 7 control), ``index`` its number.
    """
    first = 0x06 if far_end else 0x02
    return ":".join(f"{b:02x}" for b in (first, kind, index >> 8, index & 255, port >> 8, port & 255))


class FabricTopo(Topo):  # type: ignore[misc]
    """A topology whose hosts are ranks, accelerators ``g{rank}`` by default.

    Subclasses set its attributes in ``build``.
    """

    fabric: str
    servers: int
    gpus: int
    """Number of accelerators in a server."""
    ports_per_gpu: int
    mtu: int
    overhead: int = 0
    """Bytes that rates count for each packet beside its headers (24 in Ethernet: preamble 8, CRC 4, gap 12)."""
    burst: int = 0
    """Least depth in bytes of the token buckets of hosts (``railyard.scale.shared_burst_bytes``)."""
    rack: RackPlan | None = None
    """Geometry of the racks; None on rails."""
    link_options: Mapping[str, Any] = MappingProxyType({})
    """Mininet's parameters ``delay``, ``jitter`` and ``loss`` of the links of the network "rail"."""
    edge: EdgePlan | None = None
    """Regions and servers of an edge network; None on other fabrics."""
    spare_servers: int = 0
    """Number of the last servers that are kept free to replace failed ones; 0 in racks, whose spares are chips."""
    mesh: MeshPlan | None = None
    """Photonic mesh inside every optical rail; None where a rail can hold any matching."""

    def refuse_unnamed(self, unnamed: Iterable[object]) -> None:
        """Raise ``ConfigError`` for options without a name, which ``mn`` makes of an option with a comma in it."""
        for value in unnamed:
            raise ConfigError(
                f"write options as name=value, not {value} alone (for mn, which splits at every comma, write the "
                "place of a slice with colons, as in 2x2@0:2)",
                key="topo",
            )

    def set_frames(self, mtu: object, overhead: object = 0) -> None:
        """Set MTU and ``overhead`` of links in bytes; ``ConfigError`` unless 576 to 9216 and 0 to 64."""
        self.mtu, self.overhead = whole("mtu", mtu, 576, 9216), whole("overhead", overhead, 0, 64)

    def set_link_options(self, delay_ms: object, jitter_ms: object, loss: object) -> None:
        """Set delay, jitter (ms) and loss (percent) of the links of the network "rail", each way.

        ``ConfigError`` naming the option for a value that no link can have.
        """
        self.link_options = link_parameters(delay_ms, jitter_ms, loss)

    def host_name(self, rank: int) -> str:
        return f"g{rank}"

    def add_rank(self, rank: int, ip: str) -> None:
        """Add the host of ``rank``; ``ip`` is the address of its first interface, with prefix length."""
        self.addHost(self.host_name(rank), ip=ip, rank=rank)

    def add_switch(self, name: str, dpid: int, kind: str, network: str, **more: Any) -> None:
        """Add a switch; ``more`` are parameters of ``topos.kernel.nodes.RailSwitch``."""
        self.addSwitch(name, dpid=f"{dpid:016x}", kind=kind, network=network, **more)

    def add_front_end(self, ranks: int, rate_mbps: object, key: str) -> None:
        """Add the switch ``fe`` for management traffic, with one port of ``rate_mbps`` Mb/s per rank.

        ``key`` is the option that gives the rate. Raises ``ConfigError`` for more ranks than a switch has ports.
        """
        if ranks > MOST_PORTS_PER_SWITCH:
            raise ConfigError(f"one switch has room for {MOST_PORTS_PER_SWITCH} GPUs", key="front_end")
        mbps = rate(key, rate_mbps)
        self.add_switch("fe", FRONT_END_DPID, "electrical", "front-end")
        for rank in range(ranks):
            number = rank + 1
            self.plug(
                rank,
                "fe",
                number=number,
                interface=f"g{rank}-fe",
                ip=f"10.250.{number >> 8}.{number & 255}/16",
                macs=(_FRONT_END_KIND, 0),
                rate_mbps=mbps,
            )

    def plug(
        self,
        rank: int,
        switch: str,
        *,
        number: int,
        interface: str,
        ip: str,
        macs: tuple[int, int],
        rate_mbps: float,
        lane: int = 0,
        **more: Any,
    ) -> None:
        """Add a link from the host of ``rank`` to OpenFlow port ``number`` of ``switch``.

        The rate is passed as Mininet's own parameter ``bw``, so ``mn --link tc`` shapes the link as well; ``more`` are
        other parameters of Mininet's links (``topos.options.link_parameters``).
        """
        self.addLink(
            self.host_name(rank),
            switch,
            port2=number,
            intfName1=interface,
            addr1=mac_address(*macs, number),
            addr2=mac_address(*macs, number, far_end=True),
            params1={"ip": ip},
            bw=rate_mbps,
            mtu=self.mtu,
            overhead=self.overhead,
            burst=self.burst,
            lane=lane,
            **more,
        )


class StockSwitch(OVSSwitch):  # type: ignore[misc]
    """A bridge of the system's Open vSwitch: an electrical switch forwards by itself, an optical one stays dark.

    A switch that does not learn passes what a controller installs, and nothing without one. Where the kernel has no
    module ``openvswitch``, Open vSwitch switches in userspace.
    """

    def __init__(self, name: str, kind: str = "electrical", **params: Any) -> None:
        learning = params.get("learning", kind == "electrical")
        options = {"failMode": "standalone" if learning else "secure"}
        if not os.path.isdir("/sys/module/openvswitch"):
            options["datapath"] = "user"
        super().__init__(name, **(options | params))

    def start(self, controllers: Any) -> None:
        """Start the bridge, and have the hosts at its ports finish their checksums where nothing else would.

        Userspace finishes those of a virtual link with userspace-tso-enable alone (scripts/setup.sh sets it), and never
        those of packets that a controller sends on. Receivers discard TCP and UDP with an unfinished one, but no ping.
        """
        super().start(controllers)
        finished = "true" in self.cmd("ovs-vsctl --if-exists get Open_vSwitch . other_config:userspace-tso-enable")
        if self.datapath == "user" and (controllers or not finished):
            if which("ethtool") is None:
                error(f"*** {self.name}: TCP and UDP will be lost without ethtool; install the package ethtool\n")
            for link in (intf.link for intf in self.intfList() if intf.link is not None):
                for end in (link.intf1, link.intf2):
                    end.node.cmd("ethtool", "-K", end.name, "tx", "off")
