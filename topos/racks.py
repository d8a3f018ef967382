"""Racks of accelerators as Mininet topologies: a torus of chips, its spares, and who rents which slice.

A photonic rack is one optical switch that holds every port of every chip, those of a spare server too (LUMION,
arXiv 2505.23105; MORPHLUX, arXiv 2508.03674). In an electrical torus each chip has a node that forwards hop by hop
over links shared with others. Both have a front-end switch (``fe``) for management.

Stock Mininet runs it too (it splits options at commas, so a place is written with colons there)::

    sudo mn --custom topos/racks.py --topo rack,torus=4x4,tenants=4x1@0:0/2x2@0:2 --switch ovsbr
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

try:
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo, mac_address
except ImportError:  # run by ``mn --custom``, which gives no ``__file__`` and does not know where this project is
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo, mac_address

from railyard.errors import ConfigError
from topos.options import extents, one_of, rate, whole
from topos.plan import RackPlan, Tenant
from topos.slices import Slice
from topos.torus import Torus

RACK_FABRICS = ("photonic", "electrical-torus", "migrate")
RACK_DPID, NODE_DPID = 0x10000, 0x40000
_RACK_KIND, _NODE_KIND = 1, 4
_MOST_CHIPS = 4096
_MOST_TENANTS = 26


def _torus(shape: object, server: object) -> Torus:
    """The torus of options ``torus`` and ``server``."""
    torus = Torus(extents("torus", shape, 64), extents("server", server, 64))
    if not 2 <= torus.chips <= _MOST_CHIPS:
        raise ConfigError(f"must have from 2 to {_MOST_CHIPS} chips, not {torus.chips}", key="torus")
    if any(chips % block for chips, block in zip(torus.shape, torus.server, strict=True)):
        raise ConfigError(
            f"its extents must divide those of the torus ({_written(torus.shape)}), and {server} does not", key="server"
        )
    return torus


def _written(shape: Sequence[int]) -> str:
    return "x".join(str(extent) for extent in (shape if shape[2] > 1 else shape[:2]))


def _slices(key: str, text: object, torus: Torus) -> list[Slice]:
    """Slices joined by ``/`` or ``+``; none outside the torus, no two on one chip."""
    found = [Slice.parse(part, key) for part in str(text).replace("+", "/").split("/")]
    for piece in found:
        if not piece.fits(torus.shape):
            raise ConfigError(
                f"slice {piece} reaches outside the torus of {_written(torus.shape)}; place and extents together "
                "must stay within it",
                key=key,
            )
    _keep_apart(key, found, torus)
    return found


def _keep_apart(key: str, slices: Sequence[Slice], torus: Torus) -> None:
    owner: dict[int, Slice] = {}
    for piece in slices:
        for chip in piece.chips(torus):
            if chip in owner:
                raise ConfigError(f"slices {owner[chip]} and {piece} both hold chip {chip}; give each its own", key=key)
            owner[chip] = piece


class RackTopo(FabricTopo):
    """A rack of accelerators on a torus, with spares and tenants.

    Options (all may come as text, from ``mn``): ``torus`` chips in each dimension (``4x4``, ``4x4x4``) in servers of
    ``server`` chips; ``fabric`` ``photonic``, ``electrical-torus`` or ``migrate`` (two electrical tori, the second one
    spare); ``spare_servers`` outside the torus (photonic); ``reserve`` slices of the torus that stay free as spares, as
    in ``2x2@2,2`` (electrical-torus; else the last server); ``tenants`` slices that are rented, as in
    ``4x1@0,0/2x2@0,2``, named A, B, ... in this order (pieces of one tenant are joined by ``+``); ``port_mbps`` the
    rate of each port of a chip, ``front_end_mbps`` that of its management port, Mb/s; ``mtu`` in bytes.

    Raises ``ConfigError`` naming the option for a rack that cannot be.
    """

    rack: RackPlan

    def build(
        self,
        *stray: object,
        torus: str | Sequence[int] = "4x4",
        server: str | Sequence[int] = "2x2",
        fabric: str = "photonic",
        spare_servers: int | None = None,
        reserve: str | None = None,
        tenants: str | None = None,
        port_mbps: float = 100.0,
        front_end_mbps: float = 100.0,
        mtu: int = 9000,
    ) -> None:
        """Build the graph; called by ``Topo.__init__`` with the options above."""
        self.refuse_stray(stray)
        self.fabric = one_of("fabric", fabric, RACK_FABRICS)
        self.torus = _torus(torus, server)
        self._only_for("photonic", "spare_servers", spare_servers)
        self._only_for("electrical-torus", "reserve", reserve)
        chips, racks, kept_free = self.torus.chips, 1, []
        if fabric == "photonic":
            servers = whole("spare_servers", 1 if spare_servers is None else spare_servers, 1, _MOST_CHIPS)
            spares = tuple(range(chips, chips + servers * self.torus.chips_per_server))
        elif fabric == "migrate":
            racks, spares = 2, tuple(range(chips, 2 * chips))
        else:
            kept_free = self._reserve(reserve)
            spares = tuple(chip for piece in kept_free for chip in piece.chips(self.torus))
        rented = self._tenants(tenants, kept_free)
        self.rack = RackPlan(self.torus.shape, self.torus.server, racks, spares, rented)
        self._lay(port_mbps, front_end_mbps, mtu)

    def _only_for(self, fabric: str, key: str, value: object) -> None:
        if value is not None and self.fabric != fabric:
            raise ConfigError(f"is for fabric={fabric} only; leave it out with fabric={self.fabric}", key=key)

    def _reserve(self, text: str | None) -> list[Slice]:
        """Slices that stay free: those asked for, or else the last server of the torus."""
        if text is not None:
            return _slices("reserve", text, self.torus)
        x, y, z = (n - s for n, s in zip(self.torus.shape, self.torus.server, strict=True))
        return [Slice(self.torus.server, (x, y, z))]

    def _tenants(self, text: str | None, kept_free: Sequence[Slice]) -> tuple[Tenant, ...]:
        """Tenants A, B, ...: each its chips in ring order, piece by piece."""
        if text is None:
            return ()
        _keep_apart("tenants", [*kept_free, *_slices("tenants", text, self.torus)], self.torus)
        written = str(text).split("/")
        if len(written) > _MOST_TENANTS:
            raise ConfigError(f"there is room for {_MOST_TENANTS} tenants, not {len(written)}", key="tenants")
        pieces = [[Slice.parse(piece, "tenants") for piece in tenant.split("+")] for tenant in written]
        return tuple(
            Tenant(chr(ord("A") + place), tuple(chip for piece in own for chip in piece.ring(self.torus)))
            for place, own in enumerate(pieces)
        )

    def _lay(self, port_mbps: object, front_end_mbps: object, mtu: object) -> None:
        """Hosts, switches and links of the rack that the attributes say."""
        torus, outside = self.torus, sum(rank >= self.torus.chips * self.rack.racks for rank in self.rack.spares)
        ranks = torus.chips * self.rack.racks + outside
        self.gpus = torus.chips_per_server
        self.servers = ranks // self.gpus
        self.set_mtu(mtu)
        mbps = rate("port_mbps", port_mbps)
        if self.fabric == "photonic":
            self._add_optical_switch(ranks, mbps)
        else:
            self.ports_per_gpu = 1
            for first in range(0, ranks, torus.chips):
                self._add_nodes(first, mbps)
        self.add_front_end(ranks, front_end_mbps, "front_end_mbps")

    def _add_optical_switch(self, ranks: int, port_mbps: float) -> None:
        """``rack0``, with every port of every chip in order of ranks and lanes."""
        lanes = self.ports_per_gpu = len(self.torus.directions)
        if ranks * lanes > MOST_PORTS_PER_SWITCH:
            raise ConfigError(
                f"one switch has room for {MOST_PORTS_PER_SWITCH} ports, and {ranks} chips, spare ones included, "
                f"have {ranks * lanes}",
                key="torus",
            )
        self.add_switch("rack0", RACK_DPID, "ocs", "rail")
        for rank in range(ranks):
            self.add_rank(rank, _address(rank * lanes + 1))
            for lane in range(lanes):
                self._plug(rank, "rack0", rank * lanes + lane + 1, lane, (_RACK_KIND, 0), port_mbps)

    def _add_nodes(self, first: int, port_mbps: float) -> None:
        """One electrical torus, its chips numbered from ``first``: a node for each chip, and links between nodes."""
        torus = self.torus
        for rank in range(first, first + torus.chips):
            # ``learning``: the torus has loops, where a bridge that floods would do so for ever.
            self.add_switch(f"n{rank}", NODE_DPID + rank, "electrical", "rail", rank=rank, learning=False)
            self.add_rank(rank, _address(rank + 1))
            self._plug(rank, f"n{rank}", 1, 0, (_NODE_KIND, rank), port_mbps * len(torus.directions))
        for chip, out, there, back in torus.links():
            ends = [(first + chip, 2 + torus.directions.index(out)), (first + there, 2 + torus.directions.index(back))]
            (a, a_port), (b, b_port) = ends
            self.addLink(
                f"n{a}",
                f"n{b}",
                port1=a_port,
                port2=b_port,
                addr1=mac_address(_NODE_KIND, a, a_port, far_end=True),
                addr2=mac_address(_NODE_KIND, b, b_port, far_end=True),
                bw=port_mbps,
                mtu=self.mtu,
            )

    def _plug(self, rank: int, switch: str, number: int, lane: int, macs: tuple[int, int], mbps: float) -> None:
        """One scale-out port; all are in one subnet, each with an address of its own."""
        ip = _address(number if switch == "rack0" else rank + 1)
        interface = f"g{rank}-r{lane}"
        self.plug(rank, switch, number=number, interface=interface, ip=ip, macs=macs, rate_mbps=mbps, lane=lane)


def _address(number: int) -> str:
    return f"10.1.{number >> 8}.{number & 255}/16"


class MorphluxTopo(RackTopo):
    """The prototype of MORPHLUX (arXiv 2508.03674): 4 servers of one accelerator with 2 ports, on a torus of 2 x 2.

    Options: ``fabric`` ``photonic`` (both ports go where the circuits say) or ``electrical-torus`` (one port is fixed
    to x, one to y); ``tenants``, ``port_mbps``, ``front_end_mbps``, ``mtu`` as in ``RackTopo``. The hosts that nobody
    rents are the spares, where there are tenants.
    """

    def build(  # type: ignore[override]
        self,
        *stray: object,
        fabric: str = "photonic",
        tenants: str | None = None,
        port_mbps: float = 100.0,
        front_end_mbps: float = 100.0,
        mtu: int = 9000,
    ) -> None:
        """Build the graph; called by ``Topo.__init__`` with the options above."""
        self.refuse_stray(stray)
        self.fabric = one_of("fabric", fabric, RACK_FABRICS[:2])
        self.torus = Torus((2, 2, 1), (1, 1, 1))
        rented = self._tenants(tenants, ())
        taken = {chip for tenant in rented for chip in tenant.ranks} or set(range(self.torus.chips))
        spares = tuple(chip for chip in range(self.torus.chips) if chip not in taken)
        self.rack = RackPlan(self.torus.shape, self.torus.server, 1, spares, rented)
        self._lay(port_mbps, front_end_mbps, mtu)


topos = {"rack": RackTopo, "morphlux": MorphluxTopo}
