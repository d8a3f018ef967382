"""MORPHLUX (arXiv 2508.03674): servers that steer their own light, joined by a few fibres.

Circuits and splicing as in LUMION, but a circuit between chips of different servers takes a fibre on each hop between
servers (``controllers.fibres``), and there are only so many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as changed

from controllers.circuits import Circuit
from controllers.fibres import FIBRES, FibrePlant, Route
from controllers.lumion import LumionPolicy
from controllers.policy import Wiring
from controllers.split import split_ports
from railyard.errors import CircuitError, ConfigError
from topos.plan import FabricPlan, Tenant
from workloads.program import Group

Light = tuple[str, Circuit]
"""(switch, circuit)."""


class MorphluxPolicy(LumionPolicy):
    """Lumion under the cap of the fibres between servers.

    The other tenants of the rack have fibres too: a policy sees one job, so it keeps free what their rings take
    according to the plan (a full rack fits where rings go server by server: 48 of 128 fibres for slices of 16 chips).
    Circuits that stand keep their fibres when a chip is replaced. A subclass may set ``fibres`` and
    ``spare_neighbours`` (see ``FibrePlant``).
    """

    fibres = FIBRES
    spare_neighbours: int | None = None

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._own: tuple[Tenant, ...] | None = None
        self._routes: dict[Light, Route] = {}

    def start(self, groups: Sequence[Group]) -> Wiring:
        """The circuits of all scale-out groups; ``ConfigError`` where ports or fibres do not suffice."""
        scale_out = self.scale_out(groups, "ocs")
        own = self._own
        if own is None:
            ranks = {rank for group in scale_out for rank in group.members}
            own = tuple(tenant for tenant in self.rack.tenants if not ranks.isdisjoint(tenant.ranks))
        try:
            routes = self._routed(scale_out, own)
        except CircuitError as error:
            raise ConfigError(
                f"{error}; a ring that goes through all chips of a server before the next takes the fewest"
            ) from None
        wiring = super().start(groups)
        self._own, self._routes = own, routes
        return wiring

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The free spare whose circuits fit the fibres with the fewest hops between servers; nobody if none fits."""
        best: tuple[int, int] | None = None
        for spare in free:
            hops = self._hops(groups, dead, spare)
            if hops is not None and (best is None or hops < best[0]):
                best = hops, spare
        return {dead: best[1]} if best else {}

    @property
    def routes(self) -> Mapping[Light, Route]:
        """The way of every circuit, those kept free for other tenants included: the servers it passes."""
        return dict(self._routes)

    def _hops(self, groups: Sequence[Group], dead: int, spare: int) -> int | None:
        """Hops of the circuits that ``spare`` in the place of ``dead`` would need; None if they do not fit."""
        after = [changed(g, members=tuple(spare if r == dead else r for r in g.members)) for g in groups]
        try:
            routes = self._routed(self.scale_out(after, "ocs"), self._own or ())
        except (CircuitError, ConfigError):
            return None
        return sum(len(route) - 1 for light, route in routes.items() if light not in self._routes)

    def _routed(self, groups: Sequence[Group], own: Sequence[Tenant]) -> dict[Light, Route]:
        """Routes for the circuits of ``groups`` and of the tenants other than ``own``; those that stand keep theirs.

        Tenants come in the order of the plan, so that the policies of all jobs route alike.
        """
        ends: dict[Light, tuple[int, int]] = {}
        waiting = list(groups)
        for tenant in self.rack.tenants:
            if tenant not in own:
                ends.update(self._ends([Group(f"tenant {tenant.name}", "dp", tenant.ranks)]))
            else:
                ends.update(self._ends(waiting))
                waiting = []
        ends.update(self._ends(waiting))
        kept = {light: self._routes[light] for light in ends if light in self._routes}
        plant = FibrePlant(self.rack, self.plan.ranks, per_pair=self.fibres, spare_neighbours=self.spare_neighbours)
        return plant.routed({light: pair for light, pair in ends.items() if light not in kept}, kept)

    def _ends(self, groups: Sequence[Group]) -> Iterator[tuple[Light, tuple[int, int]]]:
        """Every circuit of ``groups`` and the two chips it joins."""
        rank = {(s.name, p.number): p.rank for s in self.plan.network("rail") for p in s.ports}
        for switch, matching in self.wiring(groups, split_ports(self.plan, groups)).items():
            yield from (((switch, c), (rank[switch, c.a], rank[switch, c.b])) for c in matching)
