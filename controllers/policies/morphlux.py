"""MORPHLUX (arXiv 2508.03674): servers that steer their own light, joined by a few fibres.

Circuits and splicing as in LUMION, but a circuit between chips of different servers takes a fibre on each hop between
servers (``controllers.circuits.fibres``), and there are only so many. Where they do not do for a ring it gets fewer
circuits per hop. What can be had at all is limited by cuts: a ring with chips on both sides of a boundary crosses it
twice at least, with each of its circuits per hop. A rack of 4 x 4 x 4 chips in servers of 2 x 2 x 1 has 32 fibres
between its halves in x: its four slices of 4 x 4 x 1 take 24 of them with 3 circuits per hop; its sixteen lines of 4 x
1 x 1 would take 96, so that each gets 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as changed

from controllers.circuits.circuits import SwitchCircuit
from controllers.circuits.fibres import FIBRES, FibrePlant, Route
from controllers.policies.lumion import LumionPolicy
from controllers.policies.policy import ClusterState, Wiring
from controllers.policies.shares import PortDemand, Shares, share
from controllers.policies.split import split_ports
from railyard.errors import CircuitError, ConfigError
from topos.plan import FabricPlan, Tenant
from workloads.program import Group


class MorphluxPolicy(LumionPolicy):
    """Lumion under the cap of the fibres between servers.

    A ring has as many circuits on each of its hops, all that its ports allow or fewer where fibres are short
    (``circuits_per_hop``), and never none. Fibres that other jobs use are taken (``see``); for tenants of the plan that
    have no job yet those are kept free that their rings would take, in equal shares where there are not enough.
    Circuits that stand keep their fibres when a chip is replaced. A subclass may set ``fibres`` and
    ``spare_neighbours`` (see ``FibrePlant``).
    """

    fibres = FIBRES
    spare_neighbours: int | None = None

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._own: tuple[Tenant, ...] | None = None
        self._beside = ClusterState()
        self._counts: dict[str, int] = {}
        self._all: dict[SwitchCircuit, Route] = {}
        self._routes: dict[SwitchCircuit, Route] = {}
        self._ways: dict[SwitchCircuit, Route] = {}
        self._planned: Mapping[SwitchCircuit, Route] | None = None
        self._rank = {(s.name, p.number): p.rank for s in plan.network("rail") for p in s.ports}

    def see(self, state: ClusterState) -> None:
        """What the other jobs use, and which chips are dead, from now on."""
        self._beside = state

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` where ports or fibres do not do for one per hop."""
        scale_out = self.scale_out(groups, "ocs")
        lanes = split_ports(self.plan, scale_out)
        own = self._tenants_of(scale_out) if self._own is None else self._own
        shares = self._shared(scale_out, own)
        mine = self._claims(scale_out)
        circuits = [light for demand in mine for light in demand.circuits(shares.counts[demand.name])]
        wiring = self.matchings(circuits)
        self._own, self._lanes = own, lanes
        self._counts = {demand.name: shares.counts[demand.name] for demand in mine}
        self._routes = {light: shares.routes[light] for light in circuits}
        self._ways.update(self._routes)
        dark = {light for demand in mine for light in demand.circuits(len(demand.rounds))}.difference(circuits)
        self._all = {light: route for light, route in shares.routes.items() if light not in dark}
        return wiring

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The free spare with whom the groups have the most circuits, and then the fewest hops between servers.

        Nobody if with none of them each group has one circuit per hop.
        """
        best: tuple[int, int] | None = None
        chosen: dict[int, int] = {}
        for spare in free:
            cost = self._cost(groups, dead, spare)
            if cost is not None and (best is None or cost < best):
                best, chosen = cost, {dead: spare}
        return chosen

    @property
    def circuits_per_hop(self) -> Mapping[str, int]:
        """How many circuits each hop of a scale-out group has, by the group's name."""
        return dict(self._counts)

    @property
    def routes(self) -> Mapping[SwitchCircuit, Route]:
        """The way of every circuit, those of other jobs and tenants included: the servers it passes."""
        return dict(self._all)

    @property
    def own_routes(self) -> Mapping[SwitchCircuit, Route]:
        """The way of every circuit of this job."""
        return dict(self._routes)

    def way(self, light: SwitchCircuit) -> Route | None:
        """The way that a circuit of this job has, or had before it was given up; None if it never was one."""
        return self._ways.get(light)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _cost(self, groups: Sequence[Group], dead: int, spare: int) -> tuple[int, int] | None:
        """What ``spare`` in the place of ``dead`` costs: (circuits per hop, negative; hops of its circuits)."""
        after = [changed(g, members=tuple(spare if r == dead else r for r in g.members)) for g in groups]
        try:
            scale_out = self.scale_out(after, "ocs")
            shares = self._shared(scale_out, self._tenants_of(groups) if self._own is None else self._own)
            counts = [(demand, shares.counts[demand.name]) for demand in self._claims(scale_out)]
        except ConfigError:
            return None
        new = [light for demand, count in counts for light in demand.circuits(count) if light not in self._routes]
        return -sum(count for _, count in counts), sum(len(shares.routes[light]) - 1 for light in new)

    def _shared(self, groups: Sequence[Group], own: Sequence[Tenant]) -> Shares:
        """The shares of ``groups`` beside other jobs and tenants; ``ConfigError`` where a group gets no circuit.

        Circuits that stand keep their routes; with fewer per hop some of them go, which may make room for the others.
        """
        mine = self._claims(groups)
        plant = self._plant()
        taken = self._taken(plant)
        planned = self._plan_of_tenants(plant) if taken or self._routes else {}
        best: tuple[tuple[int, int], Shares] | None = None
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
        assert best is not None  # level 0 is always looked at
        for demand in mine:
            if demand.rounds and not best[1].counts[demand.name]:
                raise ConfigError(
                    f"group {demand.name} cannot have one circuit per hop: {best[1].limits[demand.name]}; the fewest "
                    "fibres takes a ring that goes through all chips of a server before the next"
                )
        return best[1]

    def _in_order(self, mine: Sequence[PortDemand], own: Sequence[Tenant]) -> list[PortDemand]:
        """``mine`` and the claims of tenants still to come, in the order of the plan: all policies share out alike.

        A job that runs goes first.
        """
        claims: list[PortDemand] = []
        waiting = list(mine)
        if self._routes:
            claims, waiting = waiting, []
        for tenant in self.rack.tenants:
            if tenant in own:
                claims, waiting = claims + waiting, []
            elif self._beside.ranks.isdisjoint(tenant.ranks) and self._beside.dead.isdisjoint(tenant.ranks):
                claims += self._claims_of(tenant)
        return claims + waiting

    def _taken(self, plant: FibrePlant) -> dict[SwitchCircuit, Route]:
        """The routes of other jobs' circuits: those that they mean to have, and those that stand.

        A circuit of a policy that counts no fibres is given a route as if one of these had set it up, where there is
        one.
        """
        others = [policy for policy in self._beside.policies if isinstance(policy, MorphluxPolicy)]
        routes = {light: route for policy in others for light, route in policy.own_routes.items()}
        unknown: list[SwitchCircuit] = []
        for light in sorted(self._beside.circuits - routes.keys()):
            way = next((way for policy in others if (way := policy.way(light)) is not None), None)
            if way is None:
                unknown.append(light)
            else:
                routes[light] = way
        for switch, circuit in unknown:
            ends = self._rank[switch, circuit.a], self._rank[switch, circuit.b]
            try:
                routes = plant.routed({(switch, circuit): ends}, routes)
            except CircuitError:  # more than there is room for: nobody can be held to fibres that do not exist
                continue
        return routes

    def _plant(self) -> FibrePlant:
        return FibrePlant(self.rack, self.plan.ranks, per_pair=self.fibres, spare_neighbours=self.spare_neighbours)

    def _tenants_of(self, groups: Sequence[Group]) -> tuple[Tenant, ...]:
        """The tenants of the plan that the job with ``groups`` is for."""
        ranks = {rank for group in groups for rank in group.members}
        return tuple(tenant for tenant in self.rack.tenants if not ranks.isdisjoint(tenant.ranks))

    def _plan_of_tenants(self, plant: FibrePlant) -> Mapping[SwitchCircuit, Route]:
        """The routes of all tenants' rings where nothing else is there: the ones to take if they are free."""
        if self._planned is None:
            claims = [demand for tenant in self.rack.tenants for demand in self._claims_of(tenant)]
            self._planned = share(plant, claims).routes
        return self._planned

    def _claims_of(self, tenant: Tenant) -> list[PortDemand]:
        """One ring over all its chips."""
        return self._claims([Group(f"tenant {tenant.name}", "dp", tenant.ranks)])

    def _claims(self, groups: Sequence[Group]) -> list[PortDemand]:
        """What each of ``groups`` would use of its ports: on each hop of a ring as many circuits as on the others.

        Between two members any number will do.
        """
        lanes, claims = split_ports(self.plan, groups), []
        for group in groups:
            ends = [
                ((switch, circuit), (path[0], path[2]))
                for switch, path, circuit in self._meant(group, lanes.get(group.name, ()))
            ]
            hops = 1 if len(group.members) == 2 else len(group.members)
            rounds = tuple(dict(ends[first : first + hops]) for first in range(0, len(ends), hops))
            claims.append(PortDemand(group.name, rounds))
        return claims
