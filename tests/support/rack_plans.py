"""Small racks for the tests of this room, as ``topos.racks`` plans them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topos.plan import FabricPlan, HostPort, RackPlan, SwitchLink, SwitchPlan, Tenant
from topos.torus import Torus

Slices = Mapping[str, Sequence[int]]


def photonic_plan(torus: Torus, spare_servers: int = 1, tenants: Slices | None = None) -> FabricPlan:
    """One circuit switch with all ports of all chips; spare servers stand outside the torus."""
    ports, size = len(torus.directions), torus.chips_per_server
    ranks = torus.chips + spare_servers * size
    plugged = tuple(_port(r * ports + lane + 1, r, lane) for r in range(ranks) for lane in range(ports))
    rack = _rack(torus, 1, tuple(range(torus.chips, ranks)), tenants)
    switch = SwitchPlan("rack0", 0x40000, "ocs", "rail", plugged)
    return FabricPlan("photonic", ranks // size, size, ports, 9000, (switch,), rack=rack)


def electrical_plan(
    torus: Torus, spares: Sequence[int] = (), tenants: Slices | None = None, racks: int = 1
) -> FabricPlan:
    """One packet switch per chip; port 1 is its host, port 2 + i leads in direction i of the torus."""
    chips = torus.chips
    switches = tuple(
        SwitchPlan(f"n{r}", 0x40000 + r, "electrical", "rail", (_port(1, r, 0),)) for r in range(racks * chips)
    )
    port = {direction: 2 + index for index, direction in enumerate(torus.directions)}
    links = tuple(
        SwitchLink(f"n{first + a}", port[out], f"n{first + b}", port[back], 100.0)
        for first in range(0, racks * chips, chips)
        for a, out, b, back in torus.links
    )
    servers = racks * chips // torus.chips_per_server
    rack = _rack(torus, racks, tuple(spares), tenants)
    return FabricPlan("electrical-torus", servers, torus.chips_per_server, 1, 9000, switches, links, rack)


def _port(number: int, rank: int, lane: int) -> HostPort:
    mac = f"02:00:00:{lane:02x}:{rank // 256:02x}:{rank % 256:02x}"
    return HostPort(number, f"g{rank}", rank, lane, f"g{rank}-r{lane}", mac, f"10.0.{lane}.{rank + 1}", 100.0)


def _rack(torus: Torus, racks: int, spares: tuple[int, ...], tenants: Slices | None) -> RackPlan:
    slices = tuple(Tenant(name, tuple(ranks)) for name, ranks in (tenants or {}).items())
    return RackPlan(torus.shape, torus.server, racks, spares, slices)
