"""MORPHLUX (arXiv 2508.03674): servers with their own photonic fabric, joined by a limited number of fibres.

Circuits and splicing are as in LUMION, but a circuit between chips of different servers uses a fibre on each hop
between servers (``controllers.circuits.fibres``). A ring for which there are not enough fibres gets fewer circuits per
hop. The limit is set by cuts: a ring with chips on both sides of a boundary crosses it at least twice, with each of its
circuits per hop. A rack of 4 x 4 x 4 chips in servers of 2 x 2 x 1 has 32 fibres between its halves in x: its four
slices of 4 x 4 x 1 use 24 of them with 3 circuits per hop; its sixteen lines of 4 x 1 x 1 would use 96, so each gets 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Generic

from controllers.circuits.circuits import SwitchCircuit
from controllers.circuits.fibres import FIBRES, FibrePlant, Key, Route
from controllers.policies.lumion import LumionPolicy, split_ports
from controllers.policies.policy import ClusterState, Wiring
from controllers.policies.wiring import fitting
from railyard.errors import CircuitError, ConfigError
from topos.plan import FabricPlan, Tenant
from workloads.program import Group

Ends = tuple[int, int]
"""The two chips that a circuit joins."""


@dataclass(frozen=True)
class PortDemand(Generic[Key]):
    """The circuits that a ring can use: ``rounds[k]`` are those that it gains with k + 1 per hop instead of k."""

    name: str
    rounds: tuple[Mapping[Key, Ends], ...]

    def circuits(self, count: int) -> dict[Key, Ends]:
        """The circuits of the ring with ``count`` per hop, and the chips that each joins."""
        return {circuit: ends for added in self.rounds[:count] for circuit, ends in added.items()}


@dataclass(frozen=True)
class Shares(Generic[Key]):
    """The result of sharing: ``routes`` of all circuits, and by name of the demand its circuits per hop (``counts``)
    and the reason why it got no more (``limits``).
    """

    routes: Mapping[Key, Route]
    counts: Mapping[str, int]
    limits: Mapping[str, str]


def share(
    plant: FibrePlant,
    demands: Sequence[PortDemand[Key]],
    kept: Mapping[Key, Route] | None = None,
    preferred: Mapping[Key, Route] | None = None,
) -> Shares[Key]:
    """Share the fibres of ``plant`` that ``kept`` leaves free among ``demands``.

    First all rings get the highest number of circuits per hop that fits for all; then each ring gets one more, in the
    order of ``demands``, as long as it fits. A circuit takes its ``preferred`` route if that is free. The result is
    deterministic.
    """
    limits: dict[str, str] = {}
    level, routes = _level(plant, demands, kept or {}, preferred or {})
    counts = {demand.name: min(level, len(demand.rounds)) for demand in demands}
    while growing := [d for d in demands if counts[d.name] < len(d.rounds) and d.name not in limits]:
        for demand in growing:
            try:
                routes = plant.routed(demand.rounds[counts[demand.name]], routes, preferred)
                counts[demand.name] += 1
            except CircuitError as error:
                limits[demand.name] = str(error)
    return Shares(routes, counts, limits)


def _level(
    plant: FibrePlant,
    demands: Iterable[PortDemand[Key]],
    kept: Mapping[Key, Route],
    preferred: Mapping[Key, Route],
) -> tuple[int, dict[Key, Route]]:
    """The most circuits per hop that all demands can have at once, and the routes, including ``kept``."""
    for level in range(max((len(demand.rounds) for demand in demands), default=0), 0, -1):
        wanted = {circuit: ends for demand in demands for circuit, ends in demand.circuits(level).items()}
        try:
            return level, plant.routed(wanted, kept, preferred)
        except CircuitError:
            continue
    return 0, dict(kept)


class MorphluxPolicy(LumionPolicy):
    """The LUMION policy, limited by the fibres between servers.

    All hops of a ring have the same number of circuits (``circuits_per_hop``): all that its ports allow, or fewer where
    fibres are short, but at least one. Fibres of other jobs are not used (``see``). For tenants of the plan without a
    job the fibres of their rings are kept free, in equal shares if there are not enough. Present circuits keep their
    fibres when a chip is replaced. A subclass may set ``fibres`` and ``spare_neighbours`` (see ``FibrePlant``).
    """

    fibres = FIBRES
    spare_neighbours: int | None = None

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._own: tuple[Tenant, ...] | None = None
        self._cluster = ClusterState()
        self._counts: dict[str, int] = {}
        self._all: dict[SwitchCircuit, Route] = {}
        self._routes: dict[SwitchCircuit, Route] = {}
        self._past_routes: dict[SwitchCircuit, Route] = {}
        self._planned: Mapping[SwitchCircuit, Route] | None = None
        self._rank = {(s.name, p.number): p.rank for s in plan.network("rail") for p in s.ports}

    def see(self, state: ClusterState) -> None:
        """Take the cluster state: the circuits of other jobs and the dead chips."""
        self._cluster = state

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` if ports or fibres do not suffice for one per hop."""
        scale_out = self.scale_out(groups, "ocs")
        lanes = split_ports(self.plan, scale_out)
        own = self._tenants_of(scale_out) if self._own is None else self._own
        shares = self._shared(scale_out, own)
        mine = self._demands(scale_out)
        circuits = [circuit for demand in mine for circuit in demand.circuits(shares.counts[demand.name])]
        wiring = fitting(circuits)
        self._own, self._lanes = own, lanes
        self._counts = {demand.name: shares.counts[demand.name] for demand in mine}
        self._routes = {circuit: shares.routes[circuit] for circuit in circuits}
        self._past_routes.update(self._routes)
        dark = {circuit for demand in mine for circuit in demand.circuits(len(demand.rounds))}.difference(circuits)
        self._all = {circuit: route for circuit, route in shares.routes.items() if circuit not in dark}
        return wiring

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The replacement of ``dead`` by the free spare that gives the most circuits, then the fewest server hops.

        Empty if no spare allows one circuit per hop for each group.
        """
        costs = [(cost, spare) for spare in free if (cost := self._cost(groups, dead, spare)) is not None]
        return {dead: min(costs, key=lambda priced: priced[0])[1]} if costs else {}

    @property
    def circuits_per_hop(self) -> Mapping[str, int]:
        """The number of circuits on each hop of a scale-out group, by name of the group."""
        return dict(self._counts)

    @property
    def routes(self) -> Mapping[SwitchCircuit, Route]:
        """The servers that every circuit passes, including circuits of other jobs and tenants."""
        return dict(self._all)

    @property
    def own_routes(self) -> Mapping[SwitchCircuit, Route]:
        return dict(self._routes)

    def route_of(self, circuit: SwitchCircuit) -> Route | None:
        """The route that a circuit of this job has or had; None if it never was a circuit of this job."""
        return self._past_routes.get(circuit)

    def _cost(self, groups: Sequence[Group], dead: int, spare: int) -> tuple[int, int] | None:
        """The cost of replacing ``dead`` by ``spare``: (-circuits per hop of all groups, server hops of new circuits).

        None if the groups cannot have one circuit per hop then.
        """
        after = [changed(g, members=tuple(spare if r == dead else r for r in g.members)) for g in groups]
        try:
            scale_out = self.scale_out(after, "ocs")
            shares = self._shared(scale_out, self._tenants_of(groups) if self._own is None else self._own)
            counts = [(demand, shares.counts[demand.name]) for demand in self._demands(scale_out)]
        except ConfigError:
            return None
        new = [circuit for demand, count in counts for circuit in demand.circuits(count) if circuit not in self._routes]
        return -sum(count for _, count in counts), sum(len(shares.routes[circuit]) - 1 for circuit in new)

    def _shared(self, groups: Sequence[Group], own: Sequence[Tenant]) -> Shares[SwitchCircuit]:
        """The shares of ``groups`` given other jobs and tenants; ``ConfigError`` if a group gets no circuit.

        Present circuits keep their routes. Caps on the circuits per hop are tried from the highest down, since removing
        some circuits may make room for others.
        """
        mine = self._demands(groups)
        plant = self._plant()
        taken = self._taken(plant)
        planned = self._plan_of_tenants(plant) if taken or self._routes else {}
        best: tuple[tuple[int, int], Shares[SwitchCircuit]] | None = None
        for level in range(max((len(demand.rounds) for demand in mine), default=0), -1, -1):
            capped = [changed(demand, rounds=demand.rounds[:level]) for demand in mine]
            stay = {c: self._routes[c] for demand in capped for c in demand.circuits(level) if c in self._routes}
            found = share(plant, self._in_order(capped, own), taken | stay, planned)
            counts = [found.counts[demand.name] for demand in mine if demand.rounds]
            worth = min(counts, default=0), sum(counts)
            if best is None or worth > best[0]:
                best = worth, found
            if not self._routes or sum(counts) == sum(len(demand.rounds) for demand in capped):
                break
        assert best is not None  # level 0 is always tried
        for demand in mine:
            if demand.rounds and not best[1].counts[demand.name]:
                raise ConfigError(
                    f"group {demand.name} cannot have one circuit per hop: {best[1].limits[demand.name]}; order its "
                    "members server by server, which uses the fewest fibres"
                )
        return best[1]

    def _in_order(
        self, mine: Sequence[PortDemand[SwitchCircuit]], own: Sequence[Tenant]
    ) -> list[PortDemand[SwitchCircuit]]:
        """``mine`` and the demands of tenants without a job, in the order of the plan, so that all policies agree.

        The demands of a job that has circuits already go first.
        """
        demands: list[PortDemand[SwitchCircuit]] = []
        waiting = list(mine)
        if self._routes:
            demands, waiting = waiting, []
        for tenant in self.rack.tenants:
            if tenant in own:
                demands, waiting = demands + waiting, []
            elif self._cluster.ranks.isdisjoint(tenant.ranks) and self._cluster.dead.isdisjoint(tenant.ranks):
                demands += self._demands_of(tenant)
        return demands + waiting

    def _taken(self, plant: FibrePlant) -> dict[SwitchCircuit, Route]:
        """The routes of other jobs' circuits, both planned and present ones.

        A circuit of a policy that does not assign fibres gets a route as from this one, if there is one.
        """
        others = [policy for policy in self._cluster.policies if isinstance(policy, MorphluxPolicy)]
        routes = {circuit: route for policy in others for circuit, route in policy.own_routes.items()}
        unknown: list[SwitchCircuit] = []
        for switch_circuit in sorted(self._cluster.circuits - routes.keys()):
            known = next((route for policy in others if (route := policy.route_of(switch_circuit)) is not None), None)
            if known is None:
                unknown.append(switch_circuit)
            else:
                routes[switch_circuit] = known
        for switch, circuit in unknown:
            ends = self._rank[switch, circuit.a], self._rank[switch, circuit.b]
            try:
                routes = plant.routed({(switch, circuit): ends}, routes)
            except CircuitError:  # no fibres are left for this circuit, so it cannot be counted
                continue
        return routes

    def _plant(self) -> FibrePlant:
        return FibrePlant(self.rack, self.plan.ranks, per_pair=self.fibres, spare_neighbours=self.spare_neighbours)

    def _tenants_of(self, groups: Sequence[Group]) -> tuple[Tenant, ...]:
        ranks = {rank for group in groups for rank in group.members}
        return tuple(tenant for tenant in self.rack.tenants if not ranks.isdisjoint(tenant.ranks))

    def _plan_of_tenants(self, plant: FibrePlant) -> Mapping[SwitchCircuit, Route]:
        """The routes of the rings of all tenants in an otherwise empty rack: preferred if they are free."""
        if self._planned is None:
            demands = [demand for tenant in self.rack.tenants for demand in self._demands_of(tenant)]
            self._planned = share(plant, demands).routes
        return self._planned

    def _demands_of(self, tenant: Tenant) -> list[PortDemand[SwitchCircuit]]:
        """The demand of a tenant without a job: one ring over all its chips."""
        return self._demands([Group(f"tenant {tenant.name}", "dp", tenant.ranks)])

    def _demands(self, groups: Sequence[Group]) -> list[PortDemand[SwitchCircuit]]:
        """The demand of each of ``groups``: all circuits that its ports allow, in rounds of one circuit per hop.

        A group of two members has one hop, so each of its rounds is one circuit.
        """
        lanes, demands = split_ports(self.plan, groups), []
        for group in groups:
            ends = [(circuit, (path.rank, path.peer)) for circuit, path in self._circuits(group, lanes)]
            hops = 1 if len(group.members) == 2 else len(group.members)
            rounds = tuple(dict(ends[first : first + hops]) for first in range(0, len(ends), hops))
            demands.append(PortDemand(group.name, rounds))
        return demands
