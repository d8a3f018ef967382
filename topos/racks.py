"""Racks of accelerators as Mininet topologies: a torus of chips, its spares and its tenants.

A photonic rack is one optical switch with every port of every chip, those of a spare server included (LUMION,
arXiv 2505.23105; MORPHLUX, arXiv 2508.03674). In an electrical torus each chip has a node that forwards hop by hop
over links shared with other chips. Both have a front-end switch (``fe``) for management.

Stock Mininet runs these topologies too; since ``mn`` splits options at commas, a place is written with colons. Without
a controller the front end alone carries traffic::

    sudo mn --custom topos/racks.py --topo rack,torus=4x4,tenants=4x1@0:0/2x2@0:2 --switch fabric --controller none
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

try:
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo, mac_address
except ImportError:  # run by ``mn --custom``: ``__file__`` is not set, and this project is not on ``sys.path``
    sys.dont_write_bytecode = True  # root would leave files in the checkout of a user
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo, mac_address

from railyard.errors import ConfigError
from topos.fabric import StockSwitch
from topos.options import extents, one_of, rate, whole
from topos.plan import RackPlan, Tenant
from topos.slices import Slice
from topos.torus import PLACES, Torus, free_servers

RACK_FABRICS = ("photonic", "electrical-torus", "migrate")
RACK_DPID, NODE_DPID = 0x10000, 0x40000
_RACK_KIND, _NODE_KIND = 1, 4
_MOST_CHIPS = 4096
_MOST_TENANTS = 26


def _torus(shape: object, server: object) -> Torus:
    torus = Torus(extents("torus", shape, 64), extents("server", server, 64))
    if not 2 <= torus.chips <= _MOST_CHIPS:
        raise ConfigError(f"must have from 2 to {_MOST_CHIPS} chips, not {torus.chips}", key="torus")
    if any(chips % block for chips, block in zip(torus.shape, torus.server, strict=True)):
        raise ConfigError(
            f"must have extents that divide those of the torus ({_written(torus.shape)}), not {server}", key="server"
        )
    return torus


def _written(shape: Sequence[int]) -> str:
    return "x".join(str(extent) for extent in (shape if shape[2] > 1 else shape[:2]))


def _slices(key: str, text: object, torus: Torus) -> list[Slice]:
    """Parse slices joined by ``/`` or ``+``; ``ConfigError`` for one outside the torus."""
    slices = [Slice.parse(part, key) for part in str(text).replace("+", "/").split("/")]
    for piece in slices:
        if not piece.fits(torus.shape):
            raise ConfigError(
                f"slice {piece} reaches outside the torus of {_written(torus.shape)}; place plus extents "
                "must not exceed it",
                key=key,
            )
    return slices


def _refuse_overlap(key: str, slices: Sequence[Slice], torus: Torus) -> None:
    owner: dict[int, Slice] = {}
    for piece in slices:
        for chip in piece.chips(torus):
            if chip in owner:
                raise ConfigError(
                    f"slices {owner[chip]} and {piece} both hold chip {chip}; give each chip to one", key=key
                )
            owner[chip] = piece


class RackTopo(FabricTopo):
    """A rack of accelerators on a torus, with spares and tenants.

    Options (all may come as text, from ``mn``):

    - ``torus``: chips in each dimension (``4x4``, ``4x4x4``); ``server``: chips of a server, likewise;
    - ``fabric``: ``photonic``, ``electrical-torus`` or ``migrate`` (two electrical tori, the second one spare);
    - ``spare_servers``: number of spare servers outside the torus (photonic only, default 1);
    - ``reserve``: slices of the torus that stay free as spares, as in ``2x2@2,2`` (electrical-torus only, default the
      last server), or one of ``topos.torus.PLACES`` (also on a photonic rack, then without a spare server outside);
    - ``tenants``: slices of the tenants, as in ``4x1@0,0/2x2@0,2``, named A, B, ... in this order (pieces of one tenant
      are joined by ``+``);
    - ``port_mbps``: rate of each port of a chip, Mb/s; ``front_end_mbps``: rate of its management port, Mb/s;
    - ``mtu``: in bytes; ``overhead``: bytes that rates count for each packet beside its headers;
    - ``delay_ms``, ``jitter_ms``, ``loss``: propagation delay, its jitter (ms) and random loss (percent) of each link
      of the torus or to the optical switch, one way.

    Raises ``ConfigError`` naming the option for a rack that cannot be built.
    """

    rack: RackPlan

    def build(
        self,
        *unnamed: object,
        torus: str | Sequence[int] = "4x4",
        server: str | Sequence[int] = "2x2",
        fabric: str = "photonic",
        spare_servers: int | None = None,
        reserve: str | None = None,
        tenants: str | None = None,
        port_mbps: float = 100.0,
        front_end_mbps: float = 100.0,
        mtu: int = 9000,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        loss: float = 0.0,
        overhead: int = 0,
    ) -> None:
        self.refuse_unnamed(unnamed)
        self.set_link_options(delay_ms, jitter_ms, loss)
        self.fabric = one_of("fabric", fabric, RACK_FABRICS)
        self.torus = _torus(torus, server)
        self._only_for("photonic", "spare_servers", spare_servers)
        if reserve not in PLACES or fabric == "migrate":
            self._only_for("electrical-torus", "reserve", reserve)
        chips, racks, reserved = self.torus.chips, 1, []
        if reserve is not None and reserve in PLACES:
            rented = [rank for tenant in self._tenants(tenants, ()) for rank in tenant.ranks]
            if not rented or not free_servers(self.torus, rented):
                raise ConfigError(f"{reserve} needs a tenant, and a server that none has", key="reserve")
            spares = PLACES[reserve](self.torus, rented)
        elif fabric == "photonic":
            servers = whole("spare_servers", 1 if spare_servers is None else spare_servers, 1, _MOST_CHIPS)
            spares = tuple(range(chips, chips + servers * self.torus.chips_per_server))
        elif fabric == "migrate":
            racks, spares = 2, tuple(range(chips, 2 * chips))
        else:
            reserved = self._reserve(reserve)
            spares = tuple(chip for piece in reserved for chip in piece.chips(self.torus))
        tenant_plans = self._tenants(tenants, reserved)
        self.rack = RackPlan(self.torus.shape, self.torus.server, racks, spares, tenant_plans)
        self._build_rack(port_mbps, front_end_mbps, mtu, overhead)

    def _only_for(self, fabric: str, key: str, value: object) -> None:
        if value is not None and self.fabric != fabric:
            raise ConfigError(f"is for fabric={fabric} only; leave it out with fabric={self.fabric}", key=key)

    def _reserve(self, text: str | None) -> list[Slice]:
        """Slices of the torus that stay free: those of option ``reserve``, or else the last server."""
        if text is not None:
            reserved = _slices("reserve", text, self.torus)
            _refuse_overlap("reserve", reserved, self.torus)
            return reserved
        x, y, z = (n - s for n, s in zip(self.torus.shape, self.torus.server, strict=True))
        return [Slice(self.torus.server, (x, y, z))]

    def _tenants(self, text: str | None, reserved: Sequence[Slice]) -> tuple[Tenant, ...]:
        """Tenants A, B, ... of option ``tenants``; the chips of a piece are in ring order."""
        if text is None:
            return ()
        tenants = [_slices("tenants", tenant, self.torus) for tenant in str(text).split("/")]
        _refuse_overlap("tenants", [*reserved, *(piece for own in tenants for piece in own)], self.torus)
        if len(tenants) > _MOST_TENANTS:
            raise ConfigError(f"there is room for {_MOST_TENANTS} tenants, not {len(tenants)}", key="tenants")
        rings = [tuple(chip for piece in own for chip in piece.ring(self.torus)) for own in tenants]
        return tuple(Tenant(chr(ord("A") + place), ring) for place, ring in enumerate(rings))

    def _build_rack(self, port_mbps: object, front_end_mbps: object, mtu: object, overhead: object) -> None:
        torus, outside = self.torus, sum(rank >= self.torus.chips * self.rack.racks for rank in self.rack.spares)
        ranks = torus.chips * self.rack.racks + outside
        self.gpus = torus.chips_per_server
        self.servers = ranks // self.gpus
        self.set_frames(mtu, overhead)
        mbps = rate("port_mbps", port_mbps)
        if self.fabric == "photonic":
            self._add_optical_switch(ranks, mbps)
        else:
            self.ports_per_gpu = 1
            for first in range(0, ranks, torus.chips):
                self._add_nodes(first, mbps)
        self.add_front_end(ranks, front_end_mbps, "front_end_mbps")

    def _add_optical_switch(self, ranks: int, port_mbps: float) -> None:
        """Add the switch ``rack0``, with every port of every chip in order of ranks and lanes."""
        lanes = self.ports_per_gpu = len(self.torus.directions)
        if ranks * lanes > MOST_PORTS_PER_SWITCH:
            raise ConfigError(
                f"one switch has room for {MOST_PORTS_PER_SWITCH} ports, but {ranks} chips, spares included, "
                f"have {ranks * lanes}; take a smaller torus or fewer spare servers",
                key="torus",
            )
        self.add_switch("rack0", RACK_DPID, "ocs", "rail")
        for rank in range(ranks):
            self.add_rank(rank, _address(rank * lanes + 1))
            for lane in range(lanes):
                self._plug(rank, "rack0", rank * lanes + lane + 1, lane, (_RACK_KIND, 0), port_mbps)

    def _add_nodes(self, first: int, port_mbps: float) -> None:
        """Add one electrical torus with chips numbered from ``first``: a node per chip, and links between nodes."""
        torus = self.torus
        for rank in range(first, first + torus.chips):
            # No learning: a torus has loops, in which flooded packets would circulate for ever.
            self.add_switch(f"n{rank}", NODE_DPID + rank, "electrical", "rail", rank=rank, learning=False)
            self.add_rank(rank, _address(rank + 1))
            self._plug(rank, f"n{rank}", 1, 0, (_NODE_KIND, rank), port_mbps * len(torus.directions))
        for chip, out, there, back in torus.links:
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
                overhead=self.overhead,
                **self.link_options,
            )

    def _plug(self, rank: int, switch: str, number: int, lane: int, macs: tuple[int, int], mbps: float) -> None:
        """Add one scale-out port; all of them are in one subnet."""
        ip = _address(number if switch == "rack0" else rank + 1)
        interface = f"g{rank}-r{lane}"
        more = {"rate_mbps": mbps, "lane": lane, **self.link_options}
        self.plug(rank, switch, number=number, interface=interface, ip=ip, macs=macs, **more)


def _address(number: int) -> str:
    return f"10.1.{number >> 8}.{number & 255}/16"


class MorphluxTopo(RackTopo):
    """The prototype of MORPHLUX (arXiv 2508.03674): 4 servers of one accelerator with 2 ports, on a torus of 2 x 2.

    Options: ``fabric`` ``photonic`` (circuits connect both ports to any neighbour) or ``electrical-torus`` (one port is
    fixed to x, one to y); ``tenants``, ``port_mbps``, ``front_end_mbps``, ``mtu``, ``overhead``, ``delay_ms``,
    ``jitter_ms`` and ``loss`` as in ``RackTopo``. Where there are tenants, the other hosts are the spares.
    """

    def build(  # type: ignore[override]
        self,
        *unnamed: object,
        fabric: str = "photonic",
        tenants: str | None = None,
        port_mbps: float = 100.0,
        front_end_mbps: float = 100.0,
        mtu: int = 9000,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        loss: float = 0.0,
        overhead: int = 0,
    ) -> None:
        self.refuse_unnamed(unnamed)
        self.set_link_options(delay_ms, jitter_ms, loss)
        self.fabric = one_of("fabric", fabric, RACK_FABRICS[:2])
        self.torus = Torus((2, 2, 1), (1, 1, 1))
        tenant_plans = self._tenants(tenants, ())
        taken = {chip for tenant in tenant_plans for chip in tenant.ranks} or set(range(self.torus.chips))
        spares = tuple(chip for chip in range(self.torus.chips) if chip not in taken)
        self.rack = RackPlan(self.torus.shape, self.torus.server, 1, spares, tenant_plans)
        self._build_rack(port_mbps, front_end_mbps, mtu, overhead)


topos = {"rack": RackTopo, "morphlux": MorphluxTopo}
switches = {"fabric": StockSwitch}
