"""An edge network as a Mininet topology: clients in regions, a leaf server in each, a trunk, and the root server.

Hosts are ``root`` (root parameter server), ``control`` (control plane), ``leaf{r}`` and ``c{i}``; client i is in region
i % regions. The switch ``region{r}`` joins the hosts of a region, the ``trunk`` joins the regions and the root, and
``ctl`` joins root and control. The control plane has a port of its own in each region, so control messages need no
trunk, and the network has no loop: its switches may learn addresses, as stock Mininet's do.

The trunk is electrical, and then all regions share the root's link, or an optical circuit switch (OCS) whose port 1 is
the root's and which connects one region at a time.

Stock Mininet runs this topology too::

    sudo mn --custom topos/edge.py --topo edge,clients=8,regions=2 --switch fabric --controller none
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

try:
    from topos.fabric import FabricTopo, mac_address
except ImportError:  # run by ``mn --custom``: ``__file__`` is not set, and this project is not on ``sys.path``
    sys.dont_write_bytecode = True  # root would leave files in the checkout of a user
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))
    from topos.fabric import FabricTopo, mac_address

from railyard.errors import ConfigError
from topos.client_rates import client_rates
from topos.edge_plan import CONTROL, ROOT, EdgePlan, EdgeRegion, Trunk
from topos.fabric import StockSwitch
from topos.options import link_parameters, one_of, rate, whole

MOST_CLIENTS = 128
MOST_REGIONS = 64
TRUNK_DPID, REGION_DPID, CONTROL_DPID = 0x50000, 0x60000, 0x70000
_TRUNK_KIND, _REGION_KIND, _CONTROL_KIND = 5, 6, 7
_UPLINK, _CONTROL_PORT, _LEAF_PORT, _FIRST_CLIENT_PORT = 1, 2, 3, 4
"""Ports of a region's switch."""
_ROOT_PORT = 1
"""Port of the root on the trunk and on ``ctl``; the regions follow on the trunk."""
_RTO_MIN_MS = 500
"""Least retransmission time-out of every host. The queue of a slow access link holds packets for longer than the rate
of the sender's own port suggests: when the root sent 0.9 MB to each of 48 clients at once, 1136 to 1481 segments were
sent twice with the 200 ms of Linux, 3 to 68 with 500 ms, and none with 1 s. A lost last segment costs this time."""
_ROOT_IP, _ROOT_CONTROL_IP, _CONTROL_IP = "10.64.0.1", "10.65.0.1", "10.65.0.2"


def _region_ip(region: int, place: int) -> str:
    return f"10.64.{region + 1}.{place}"


def _leaf_ip(region: int) -> str:
    return _region_ip(region, 1)


def _control_ip(region: int) -> str:
    return _region_ip(region, 254)


def _client_rates(given: object, clients: int, regions: int) -> tuple[float, ...]:
    """The rate of each client: option ``client_mbps``, or without it the published ones."""
    if given is None:
        return client_rates(clients, regions)
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != clients:
            raise ConfigError(f"must give {clients} rates, one for each client, not {len(given)}", key="client_mbps")
        return tuple(rate("client_mbps", mbps) for mbps in given)
    return client_rates(clients, regions, rate("client_mbps", given))


class EdgeTopo(FabricTopo):
    """An edge network of ``clients`` clients (at most 128) in ``regions`` regions (at most 64).

    Options (all may come as text, from ``mn``):

    - ``client_mbps``: rate of every client's access link, Mb/s, or a list with one rate for each client; by default the
      published rates (``topos.client_rates``);
    - ``trunk_mbps``: rate of the root's port and of each region's uplink; ``leaf_mbps``: rate of a leaf server's port;
      ``control_mbps``: rate of each port of the control plane and of the root's port to it;
    - ``access_delay_ms``, ``trunk_delay_ms``, ``control_delay_ms``: propagation delay, one way, of a client's link, of
      a region's uplink, and of the control plane's link to a region; ``jitter_ms``: jitter of a client's link;
    - ``access_loss``, ``trunk_loss``: random loss on a client's link and on a region's uplink, percent, each way;
    - ``trunk``: ``electrical`` or ``ocs``; ``root_ports``: how many regions the ``ocs`` has ports for (default: all);
    - ``mtu``: in bytes.

    Every switch but an optical trunk learns addresses and forwards without a controller. Raises ``ConfigError`` naming
    the option for a network that cannot be built.
    """

    edge: EdgePlan

    def build(
        self,
        *unnamed: object,
        clients: int = 48,
        regions: int = 4,
        client_mbps: float | Sequence[float] | None = None,
        trunk_mbps: float = 100.0,
        leaf_mbps: float = 1000.0,
        control_mbps: float = 100.0,
        access_delay_ms: float = 0.0,
        trunk_delay_ms: float = 0.0,
        control_delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        access_loss: float = 0.0,
        trunk_loss: float = 0.0,
        trunk: str = "electrical",
        root_ports: int | None = None,
        mtu: int = 1500,
    ) -> None:
        self.refuse_unnamed(unnamed)
        count = whole("clients", clients, 1, MOST_CLIENTS)
        areas = self._region_count(regions, count)
        self.fabric = f"edge-{one_of('trunk', trunk, get_args(Trunk))}"
        self._check_root_ports(areas, trunk, root_ports)
        self.client_mbps = _client_rates(client_mbps, count, areas)
        self.trunk_mbps, self.leaf_mbps = rate("trunk_mbps", trunk_mbps), rate("leaf_mbps", leaf_mbps)
        self.control_mbps = rate("control_mbps", control_mbps)
        self._access = link_parameters(access_delay_ms, jitter_ms, access_loss, "access_")
        self._uplink = link_parameters(trunk_delay_ms, 0.0, trunk_loss, "trunk_")
        self._control = link_parameters(control_delay_ms, 0.0, 0.0, "control_")
        self.set_frames(mtu)
        self.servers, self.gpus, self.ports_per_gpu = 2 + areas + count, 1, 1
        members = [tuple(range(region, count, areas)) for region in range(areas)]
        self.edge = EdgePlan(
            trunk="ocs" if trunk == "ocs" else "electrical",
            trunk_mbps=self.trunk_mbps,
            root_ip=_ROOT_IP,
            control_ip=_CONTROL_IP,
            regions=tuple(
                EdgeRegion(f"region{r}", _leaf_ip(r), _control_ip(r), _ROOT_PORT + 1 + r, members[r])
                for r in range(areas)
            ),
        )
        self._add_servers()
        for region in range(areas):
            self._add_region(region)

    def _region_count(self, regions: object, clients: int) -> int:
        count = whole("regions", regions, 1, MOST_REGIONS)
        if count > clients:
            raise ConfigError(f"must be at most {clients}, the number of clients, not {count}", key="regions")
        return count

    def _check_root_ports(self, regions: int, trunk: str, root_ports: object) -> None:
        if root_ports is None:
            return
        if trunk != "ocs":
            raise ConfigError(f"is for trunk=ocs only; leave it out with trunk={trunk}", key="root_ports")
        ports = whole("root_ports", root_ports, 1, MOST_REGIONS)
        if regions > ports:
            raise ConfigError(
                f"must be at most root_ports ({ports}), not {regions}, since the optical trunk has one port for each "
                "region beside the root's; take fewer regions or more ports",
                key="regions",
            )

    def host_name(self, rank: int) -> str:
        """The name of the host of ``rank``: ``root``, ``control``, ``leaf0``, ..., ``c0``, ..."""
        if rank in (ROOT, CONTROL):
            return ("root", "control")[rank]
        place = rank - self.edge.leaf_rank(0)
        regions = len(self.edge.regions)
        return f"leaf{place}" if place < regions else f"c{place - regions}"

    def _add_servers(self) -> None:
        self.add_switch("trunk", TRUNK_DPID, self.edge.trunk, "rail", controlled=self.edge.trunk == "ocs")
        self.add_switch("ctl", CONTROL_DPID, "electrical", "control", controlled=False)
        self.add_rank(ROOT, f"{_ROOT_IP}/16")
        self.add_rank(CONTROL, f"{_CONTROL_IP}/24")
        self.plug(
            ROOT,
            "trunk",
            number=_ROOT_PORT,
            interface="root-trunk",
            ip=f"{_ROOT_IP}/16",
            macs=(_TRUNK_KIND, 0),
            rate_mbps=self.trunk_mbps,
            rto_min_ms=_RTO_MIN_MS,
        )
        for rank, ip in ((ROOT, _ROOT_CONTROL_IP), (CONTROL, _CONTROL_IP)):
            self.plug(
                rank,
                "ctl",
                number=_ROOT_PORT + rank,
                interface=f"{self.host_name(rank)}-ctl",
                ip=f"{ip}/24",
                macs=(_CONTROL_KIND, 0),
                rate_mbps=self.control_mbps,
                rto_min_ms=_RTO_MIN_MS,
            )

    def _add_region(self, region: int) -> None:
        """Add the switch of a region with its uplink, leaf server, clients and port of the control plane."""
        place = self.edge.regions[region]
        self.add_switch(place.switch, REGION_DPID + region, "electrical", "access", controlled=False)
        self.addLink(
            place.switch,
            "trunk",
            port1=_UPLINK,
            port2=place.trunk_port,
            addr1=mac_address(_REGION_KIND, region, _UPLINK, far_end=True),
            addr2=mac_address(_TRUNK_KIND, 0, place.trunk_port, far_end=True),
            bw=self.trunk_mbps,
            mtu=self.mtu,
            **self._uplink,
        )
        # The control plane's routes tell the regions apart, so its networks there are smaller than those of the hosts.
        self._plug(CONTROL, region, _CONTROL_PORT, f"{place.control_ip}/24", self.control_mbps, region, **self._control)
        leaf = self.edge.leaf_rank(region)
        self.add_rank(leaf, f"{place.leaf_ip}/16")
        self._plug(leaf, region, _LEAF_PORT, f"{place.leaf_ip}/16", self.leaf_mbps)
        for index, client in enumerate(place.clients):
            rank, ip = self.edge.client_rank(client), f"{_region_ip(region, 10 + index)}/16"
            self.add_rank(rank, ip)
            self._plug(rank, region, _FIRST_CLIENT_PORT + index, ip, self.client_mbps[client], **self._access)

    def _plug(self, rank: int, region: int, port: int, ip: str, mbps: float, lane: int = 0, **more: Any) -> None:
        self.plug(
            rank,
            f"region{region}",
            number=port,
            interface=f"{self.host_name(rank)}-r{region}",
            ip=ip,
            macs=(_REGION_KIND, region),
            rate_mbps=mbps,
            lane=lane,
            rto_min_ms=_RTO_MIN_MS,
            **more,
        )


topos = {"edge": EdgeTopo}
switches = {"fabric": StockSwitch}
