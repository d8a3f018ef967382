"""Where the nodes of a fabric lie when it spreads over several machines, and which of its links that cuts.

A placement is a class with a method ``place``, as in Mininet's cluster edition: ``place(node)`` returns the machine of
a host or switch. A package offers one as an entry point of the group ``railyard.placements``; a user's own is named
``module:Class`` or ``path/to/file.py:Class`` (``railyard.plugin``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railyard.errors import ConfigError, RailyardError
from railyard.plugin import code_failed, load_class
from railyard.validation import shown
from topos.plan import FabricPlan

GROUP = "railyard.placements"
"""The group of entry points by which installed packages offer placements."""
_KEY = "placement"


class Placement:
    """Decides on which of ``machines`` each node of the fabric ``plan`` lies.

    The base class has no ``place``: a subclass writes it. Code of a placement must give the same machine for the same
    node every time, since each machine is told once.
    """

    def __init__(self, machines: Sequence[str], plan: FabricPlan) -> None:
        self.machines = tuple(machines)
        self.plan = plan
        self._server_of = {host: rank // plan.gpus_per_server for rank, host in enumerate(plan.hosts)}
        for switch in plan.network("scale-up"):
            self._server_of[switch.name] = self._server_of[switch.ports[0].host]
        self._rails = {switch.name: index for index, switch in enumerate(plan.network("rail"))}

    def place(self, node: str) -> str:
        """The machine of the host or switch ``node``, one of ``machines``."""
        raise NotImplementedError(f"{type(self).__name__} has no method place(node)")

    def server(self, node: str) -> int | None:
        """The server of a host or of a scale-up switch, from 0; None for another switch."""
        return self._server_of.get(node)

    def rail(self, node: str) -> int | None:
        """The place of a switch in the network "rail", from 0; None for another node."""
        return self._rails.get(node)

    def block(self, server: int) -> str:
        """The machine of ``server`` where consecutive servers share a machine, as evenly as their number allows."""
        return self.machines[server * len(self.machines) // self.plan.servers]


class SinglePlacement(Placement):
    """All nodes on the first machine."""

    def place(self, node: str) -> str:
        return self.machines[0]


class ServersPlacement(Placement):
    """Servers in blocks over all machines, each with its scale-up switch; all other switches on the first machine."""

    def place(self, node: str) -> str:
        server = self.server(node)
        return self.machines[0] if server is None else self.block(server)


class RailsPlacement(ServersPlacement):
    """Rail r on machine r modulo their number, servers in blocks, any other switch on the first machine.

    So are rails whose switches are linked, as in a torus: such links cannot be cut.
    """

    def place(self, node: str) -> str:
        rail = None if self.plan.links else self.rail(node)
        return super().place(node) if rail is None else self.machines[rail % len(self.machines)]


PLACEMENTS = {
    "rails": "topos.placement:RailsPlacement",
    "servers": "topos.placement:ServersPlacement",
    "single": "topos.placement:SinglePlacement",
}
"""The placements of Railyard: name -> ``module:Class``."""


@dataclass(frozen=True)
class Cut:
    """A link from a host to a switch whose ends lie on different machines.

    ``number`` counts the cuts of a fabric from 0. ``port`` is the OpenFlow port on the switch, ``interface`` the host's
    end, ``rate_mbps`` the rate of the link in each direction.
    """

    number: int
    switch: str
    port: int
    host: str
    interface: str
    switch_machine: str
    host_machine: str
    rate_mbps: float


@dataclass(frozen=True)
class Placed:
    """A fabric with the machine of each of its nodes; ``cuts`` are in the order of switches and ports."""

    plan: FabricPlan
    machines: tuple[str, ...]
    machine_of: Mapping[str, str]
    cuts: tuple[Cut, ...]

    def hosts_on(self, machine: str) -> tuple[str, ...]:
        return tuple(host for host in self.plan.hosts if self.machine_of[host] == machine)

    def switches_on(self, machine: str) -> tuple[str, ...]:
        return tuple(switch.name for switch in self.plan.switches if self.machine_of[switch.name] == machine)

    def demand_mbps(self, a: str, b: str) -> float:
        """The sum of the rates of all links cut between machines ``a`` and ``b``, Mb/s.

        They may ask for as much from ``a`` to ``b`` and from ``b`` to ``a`` at the same time.
        """
        return sum(cut.rate_mbps for cut in self.cuts if {cut.switch_machine, cut.host_machine} == {a, b})


def placed(
    plan: FabricPlan, machines: Sequence[str], name: str = "rails", pinned: Mapping[str, str] | None = None
) -> Placed:
    """``plan`` on ``machines`` as placement ``name`` (``PLACEMENTS``, or one of a user's own) places it.

    ``pinned`` gives the machine of single nodes, which the placement is then not asked for: Mininet's node option
    ``server`` (``topos.describe.pinned``).

    Raises ``ConfigError`` (key ``placement``) for a placement that cannot be loaded or fails, that names an unknown
    machine, that changes its mind, that parts a host from the scale-up switch of its server, or that cuts a link
    between two switches; (key ``cluster``) for machines that are missing or named twice; and (key ``server``) for a
    pinned node or machine that there is not.
    """
    if not machines or len(set(machines)) < len(machines):
        raise ConfigError(f"must name each machine once, not {', '.join(machines) or 'none'}", key="cluster")
    if plan.edge is not None and len(machines) > 1:
        raise ConfigError("spreads over machines only rails and racks; leave it out for an edge network", key="cluster")
    kind = load_class(PLACEMENTS.get(name, name), Placement, GROUP, "a placement", _KEY, PLACEMENTS)
    nodes = [*plan.hosts, *(switch.name for switch in plan.switches)]
    pinned = _checked_pins(pinned or {}, nodes, machines)
    try:
        placement = kind(machines, plan)
        first, second = ({node: pinned.get(node) or placement.place(node) for node in nodes} for _ in range(2))
    except RailyardError:
        raise
    except (Exception, SystemExit) as error:
        raise code_failed(name, error, _KEY) from error
    _check_machines(name, first, second, machines)
    _check_servers(name, plan, first)
    for link in plan.links:
        if first[link.a] != first[link.b]:
            raise ConfigError(
                f"{name} puts {link.a} on {first[link.a]} and {link.b} on {first[link.b]}, but a link between two "
                "switches cannot be cut; put both on one machine, as placement servers does",
                key=_KEY,
            )
    cuts = _cuts(plan, first)
    _check_cuts(name, plan, cuts)
    return Placed(plan, tuple(machines), first, cuts)


def _check_cuts(name: str, plan: FabricPlan, cuts: Sequence[Cut]) -> None:
    """Refuse to cut a link that delays or loses packets, since a tunnel does not."""
    ports = {(switch.name, port.number): port for switch in plan.switches for port in switch.ports}
    for cut in cuts:
        port = ports[cut.switch, cut.port]
        if port.delay_s or port.loss_percent:
            raise ConfigError(
                f"{name} cuts the link of {cut.host} to {cut.switch}, which delays or loses packets; only links "
                "without delay and loss can be cut",
                key=_KEY,
            )


def _checked_pins(pinned: Mapping[str, str], nodes: Sequence[str], machines: Sequence[str]) -> Mapping[str, str]:
    for node, machine in pinned.items():
        if node not in nodes or machine not in machines:
            raise ConfigError(
                f"node {node} has server={shown(machine)}; give nodes of the fabric one of the machines "
                f"{', '.join(machines)}",
                key="server",
            )
    return pinned


def _check_machines(name: str, first: Mapping[str, str], second: Mapping[str, str], machines: Sequence[str]) -> None:
    """Refuse answers that are no machine, or not the same machine each time."""
    for node, machine in first.items():
        if not isinstance(machine, str) or machine not in machines:
            raise ConfigError(
                f"{name} puts {node} on {shown(machine)}; return one of the machines {', '.join(machines)}", key=_KEY
            )
        if second[node] != machine:
            raise ConfigError(
                f"{name} puts {node} on {machine} and, asked again, on {shown(second[node])}; return the same machine "
                "for the same node each time",
                key=_KEY,
            )


def _check_servers(name: str, plan: FabricPlan, machine_of: Mapping[str, str]) -> None:
    """Refuse a host on another machine than the scale-up switch of its server."""
    for switch in plan.network("scale-up"):
        for port in switch.ports:
            if machine_of[port.host] != machine_of[switch.name]:
                raise ConfigError(
                    f"{name} puts host {port.host} on {machine_of[port.host]} and the scale-up switch {switch.name} of "
                    f"its server on {machine_of[switch.name]}; keep the hosts of a server with their switch",
                    key=_KEY,
                )


def _cuts(plan: FabricPlan, machine_of: Mapping[str, str]) -> tuple[Cut, ...]:
    ends = [(switch.name, port) for switch in plan.switches for port in switch.ports]
    crossing = [(switch, port) for switch, port in ends if machine_of[switch] != machine_of[port.host]]
    return tuple(
        Cut(
            number,
            switch,
            port.number,
            port.host,
            port.interface,
            machine_of[switch],
            machine_of[port.host],
            port.rate_mbps,
        )
        for number, (switch, port) in enumerate(crossing)
    )
