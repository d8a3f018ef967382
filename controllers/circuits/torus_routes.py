"""Routes of an electrical torus: the output port at each chip's switch for each destination chip.

At every switch and for every destination the rule is: of the ports that begin a shortest route through working chips,
take the first in the order of ports (+x, -x, +y, -y, +z, -z). Without dead chips that is dimension order: x first, then
y, then z, each in the shorter direction, and by + where both are equally long. Round dead chips it is a shortest
detour, x as early as possible. Every hop brings a packet one hop nearer to its destination, and all switches count hops
alike, so there are no loops. (Dimension order with another order for the pairs that it fails would not work: tables
know the destination of a packet, not its source.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set

from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan, HostPort

Tables = Mapping[str, Mapping[str, int]]
"""Switch -> destination MAC -> OpenFlow port."""
NextHop = tuple[str, int]
"""(switch, the port that a packet leaves it by)."""

_Wires = dict[str, list[tuple[int, str]]]
"""Switch -> (port, switch at its far end), in the order of ports."""


def routes(plan: FabricPlan, avoid: Set[int] = frozenset()) -> dict[str, dict[str, int]]:
    """The table of every chip's switch: destination MAC -> output port, including the host of the switch.

    No route leads to or through the chips of ``avoid`` (a chip's router fails with it), whose own tables are empty. A
    destination that cannot be reached has no route. ``ConfigError`` if the plan has no electrical torus.
    """
    wires, hosts = _wires(plan), _hosts(plan)
    dead = {name for name, host in hosts.items() if host.rank in avoid}
    tables: dict[str, dict[str, int]] = {name: {} for name in hosts}
    for name, host in hosts.items():
        if name in dead:
            continue
        tables[name][host.mac] = host.number
        far = _distances(wires, name, dead)
        for here, hops in far.items():
            if here != name:
                tables[here][host.mac] = next(port for port, there in wires[here] if far.get(there) == hops - 1)
    return tables


def distances(plan: FabricPlan, rank: int, avoid: Set[int] = frozenset()) -> dict[int, int]:
    """Hops from ``rank`` to every chip that it reaches without passing the dead chips ``avoid``."""
    hosts = _hosts(plan)
    dead = {name for name, host in hosts.items() if host.rank in avoid}
    found = _distances(_wires(plan), _switch(hosts, rank), dead)
    return {hosts[name].rank: hops for name, hops in found.items()}


def path(plan: FabricPlan, tables: Tables, a: int, b: int) -> tuple[NextHop, ...]:
    """The links that packets from chip ``a`` to chip ``b`` cross, each as the switch and its output port.

    Empty if ``a`` is ``b``. ``ControlError`` if the tables do not lead there.
    """
    wires, hosts = _wires(plan), _hosts(plan)
    here, goal = _switch(hosts, a), _switch(hosts, b)
    mac = hosts[goal].mac
    crossed: list[NextHop] = []
    while here != goal:
        port = tables.get(here, {}).get(mac)
        there = dict(wires[here]).get(port) if port is not None else None
        if port is None or there is None:
            raise ControlError(f"chip {a} has no route to chip {b}: {here} has no table entry for it")
        crossed.append((here, port))
        if len(crossed) > len(hosts):
            raise ControlError(f"packets from chip {a} to chip {b} loop at {here}")
        here = there
    return tuple(crossed)


def _hosts(plan: FabricPlan) -> dict[str, HostPort]:
    """The port of the one chip of every switch, by name of the switch."""
    hosts = {switch.name: switch.ports[0] for switch in plan.network("rail") if switch.kind == "electrical"}
    if not hosts or not plan.links:
        raise ConfigError(f"fabric {plan.fabric} has no electrical torus to route in", key="fabric.kind")
    return hosts


def _wires(plan: FabricPlan) -> _Wires:
    wires: _Wires = {switch.name: [] for switch in plan.network("rail")}
    for link in plan.links:
        wires[link.a].append((link.a_port, link.b))
        wires[link.b].append((link.b_port, link.a))
    for ends in wires.values():
        ends.sort()
    return wires


def _switch(hosts: Mapping[str, HostPort], rank: int) -> str:
    for name, host in hosts.items():
        if host.rank == rank:
            return name
    raise ConfigError(f"there is no chip {rank} on the torus")


def _distances(wires: _Wires, goal: str, dead: Set[str]) -> dict[str, int]:
    """Hops to switch ``goal`` from every switch that reaches it without passing those in ``dead``."""
    if goal in dead:
        return {}
    far = {goal: 0}
    queue = deque([goal])
    while queue:
        here = queue.popleft()
        for _, there in wires[here]:
            if there not in far and there not in dead:
                far[there] = far[here] + 1
                queue.append(there)
    return far
