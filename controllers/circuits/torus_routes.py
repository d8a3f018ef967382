"""Routes of an electrical torus: which port of each chip's switch leads to which chip.

The rule, at every switch and for every destination: of the ports that begin a shortest way through living chips, the
first in the order of ports (+x, -x, +y, -y, +z, -z). Where nobody is dead that is dimension order: x first, then y,
then z, each the shorter way round and by + where both are as long. Round dead chips it is a shortest detour, x as
early as it can be. Every hop brings a packet one nearer to its destination, by the same count of hops at every switch,
so following the tables never goes round in circles. (Dimension order with another order for the pairs that it fails
would not do: the tables know the destination of a packet, not its source.)
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
    """The table of every chip's switch: destination MAC -> output port, its own host included.

    No route leads to or through the chips of ``avoid`` (a chip's router dies with it), whose own tables are empty. A
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
    """Hops from ``rank`` to every chip that it reaches through living chips, those of ``avoid`` being dead."""
    hosts = _hosts(plan)
    dead = {name for name, host in hosts.items() if host.rank in avoid}
    found = _distances(_wires(plan), _switch(hosts, rank), dead)
    return {hosts[name].rank: hops for name, hops in found.items()}


def path(plan: FabricPlan, tables: Tables, a: int, b: int) -> tuple[NextHop, ...]:
    """The links that packets from chip ``a`` to chip ``b`` cross, each as the switch and port they leave by.

    Empty for a chip and itself. ``ControlError`` where the tables do not lead there.
    """
    wires, hosts = _wires(plan), _hosts(plan)
    here, goal = _switch(hosts, a), _switch(hosts, b)
    mac = hosts[goal].mac
    crossed: list[NextHop] = []
    while here != goal:
        port = tables.get(here, {}).get(mac)
        there = dict(wires[here]).get(port) if port is not None else None
        if port is None or there is None:
            raise ControlError(f"chip {a} has no route to chip {b}: {here} does not know where to send")
        crossed.append((here, port))
        if len(crossed) > len(hosts):
            raise ControlError(f"packets from chip {a} to chip {b} go round in circles at {here}")
        here = there
    return tuple(crossed)


def _hosts(plan: FabricPlan) -> dict[str, HostPort]:
    """The one chip of every switch."""
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
    """Hops to ``goal`` from every switch that reaches it, none of them dead."""
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
