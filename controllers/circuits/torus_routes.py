"""Routes of an electrical torus: the output port at each chip's switch for each destination chip.

At every switch and for every destination the rule is: of the ports that begin a shortest route through working chips,
take the first in the order of ports (+x, -x, +y, -y, +z, -z). Without dead chips that is dimension order: x first, then
y, then z, each in the shorter direction, and by + where both are equally long. Round dead chips it is a shortest
detour, x as early as possible. Every hop brings a packet one hop nearer to its destination, and all switches count hops
alike, so there are no loops. (Dimension order with another order for the pairs that it fails would not work: tables
know the destination of a packet, not its source.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

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
    hosts = _hosts(plan)
    wires = _wires(plan, hosts, avoid)
    tables: dict[str, dict[str, int]] = {name: {} for name in hosts}
    for name, far in zip(wires, _hops(wires, wires), strict=True):
        for here, hops in far.items():
            tables[here][hosts[name].mac] = next(
                (port for port, there in wires[here] if far[there] < hops), hosts[name].number
            )
    return tables


def distances(plan: FabricPlan, rank: int, avoid: Set[int] = frozenset()) -> dict[int, int]:
    """Hops from ``rank`` to every chip that it reaches without passing the dead chips ``avoid``."""
    hosts = _hosts(plan)
    wires, switch = _wires(plan, hosts, avoid), _switch(hosts, rank)
    found = next(_hops(wires, [switch])) if switch in wires else {}
    return {hosts[name].rank: hops for name, hops in found.items()}


def path(plan: FabricPlan, tables: Tables, a: int, b: int) -> tuple[NextHop, ...]:
    """The links that packets from chip ``a`` to chip ``b`` cross, each as the switch and its output port.

    Empty if ``a`` is ``b``. ``ControlError`` if the tables do not lead there.
    """
    hosts, far_ends = _hosts(plan), _far_ends(plan)
    here, goal = _switch(hosts, a), _switch(hosts, b)
    crossed: list[NextHop] = []
    while here != goal:
        port = tables.get(here, {}).get(hosts[goal].mac, 0)
        if (here, port) not in far_ends:
            raise ControlError(f"chip {a} has no route to chip {b}: {here} has no table entry for it")
        crossed.append((here, port))
        if len(crossed) > len(hosts):
            raise ControlError(f"packets from chip {a} to chip {b} loop at {here}")
        here = far_ends[here, port]
    return tuple(crossed)


def _hosts(plan: FabricPlan) -> dict[str, HostPort]:
    """The port of the one chip of every switch, by name of the switch."""
    hosts = {switch.name: switch.ports[0] for switch in plan.network("rail") if switch.kind == "electrical"}
    if not hosts or not plan.links:
        raise ConfigError(f"fabric {plan.fabric} has no electrical torus to route in", key="fabric.kind")
    return hosts


def _switch(hosts: Mapping[str, HostPort], rank: int) -> str:
    for name, host in hosts.items():
        if host.rank == rank:
            return name
    raise ConfigError(f"there is no chip {rank} on the torus")


def _far_ends(plan: FabricPlan) -> dict[NextHop, str]:
    ends = {(link.a, link.a_port): link.b for link in plan.links}
    return ends | {(link.b, link.b_port): link.a for link in plan.links}


def _wires(plan: FabricPlan, hosts: Mapping[str, HostPort], avoid: Set[int]) -> _Wires:
    """The links between switches, without those of the chips ``avoid``."""
    wires: _Wires = {name: [] for name, host in hosts.items() if host.rank not in avoid}
    for (here, port), there in sorted(_far_ends(plan).items()):
        if here in wires and there in wires:
            wires[here].append((port, there))
    return wires


def _hops(wires: _Wires, goals: Iterable[str]) -> Iterator[Mapping[str, int]]:
    """For each of ``goals`` the hops to it from every switch that reaches it."""
    import networkx  # here, because it takes 0.1 s and most fabrics have no torus

    graph = networkx.Graph({here: [there for _, there in ends] for here, ends in wires.items()})
    for goal in goals:
        yield networkx.single_source_shortest_path_length(graph, goal)
