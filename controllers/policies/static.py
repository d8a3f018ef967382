"""Static circuits, set up once without requests afterwards (mode ``native`` on electrical rails).

One-shot circuits ("Ideal" in Opus, arXiv 2602.12521, baselines) are static too: every dimension has its own at once. A
GPU then has four ports, lanes 0 and 1 for the data-parallel ring, lanes 2 and 3 for the pipeline chain. The bandwidth
of the GPU is the same as with two ports; it is split between the two by the square root of their traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt

from controllers.policies.policy import Policy, StandingPolicy, Wiring
from controllers.policies.wiring import (
    arcs_of,
    fitting,
    group_paths,
    path_circuits,
    paths_in,
    rail_of_group,
    rails_of_group,
)
from railyard.errors import ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group


class StaticPolicy(StandingPolicy):
    """Sets up the circuits of all groups at the start; groups send no requests.

    On optical rails the circuits of all groups must fit at once, or ``start`` raises ``ConfigError``; an EP group uses
    the ring of the DP group that has its members. On electrical rails there are no circuits.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._arcs: dict[str, tuple[Hop, ...]] = {}

    def lanes(self, group: Group) -> tuple[int, int]:
        """The (low, high) lanes that ``group`` uses: both the same on packet switches with one port per GPU."""
        one_port = self.plan.ports_per_gpu == 1 and rail_of_group(self.plan, group).kind == "electrical"
        return 0, 0 if one_port else 1

    def start(self, groups: Sequence[Group]) -> Wiring:
        self._arcs = arcs_of(group for group in groups if self._is_optical(group))
        wired = [group for group in groups if self._is_optical(group) and group.name not in self._arcs]
        rails = [(group, rail_of_group(self.plan, group)) for group in wired]
        return fitting((rail.name, c) for group, rail in rails for c in path_circuits(rail, self._own_paths(group)))

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The paths of ``group``; on an optical rail those whose circuits are in ``current``."""
        if self._found_by_packets(group):
            return ()
        return paths_in(rail_of_group(self.plan, group), self._own_paths(group), current)

    def _found_by_packets(self, group: Group) -> bool:
        """Whether ``group`` spans several rails of packet switches (a hierarchical collective) and needs no paths."""
        optical = any(switch.kind == "ocs" for switch in self.plan.network("rail"))
        return not optical and len(rails_of_group(self.plan, group)) > 1

    def _is_optical(self, group: Group) -> bool:
        if group.domain != "scale-out" or self._found_by_packets(group):
            return False
        return rail_of_group(self.plan, group).kind == "ocs"

    def _own_paths(self, group: Group) -> tuple[Hop, ...]:
        if group.name in self._arcs:
            return self._arcs[group.name]
        low, high = self.lanes(group)
        return group_paths(group, low, high)


class OneShotPolicy(StaticPolicy):
    """Rings on lanes 0 and 1, pipeline pairs on lanes 2 and 3."""

    def lanes(self, group: Group) -> tuple[int, int]:
        """The (low, high) lanes of the dimension of ``group``."""
        return (2, 3) if group.dimension == "pp" else (0, 1)


def split_bandwidth(total: float, traffic: Mapping[str, float]) -> dict[str, float]:
    """Shares of ``total`` (any unit of rate) in proportion to the square root of each entry's traffic (bytes).

    The square root minimises the time of phases that follow one another: minimise sum(t_i / b_i) for a given sum(b_i).
    An entry without traffic gets 0; ``ConfigError`` for traffic below 0 or if no entry has traffic.

    >>> split_bandwidth(300.0, {"dp": 4.0, "pp": 1.0})
    {'dp': 200.0, 'pp': 100.0}
    """
    for name, size in traffic.items():
        if not size >= 0:
            raise ConfigError(f"traffic of {name} is {size:g} bytes; it must be 0 or more")
    roots = {name: sqrt(size) for name, size in traffic.items()}
    root_sum = fsum(roots.values())
    if not root_sum > 0:
        raise ConfigError("no dimension has traffic to split the bandwidth by; at least one must")
    return {name: total * root / root_sum for name, root in roots.items()}


class ElectricalPolicy(Policy):
    """Packet switches without circuits, with the port assignment of the Opus wiring."""

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        return {}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        """The ring or pair of ``group`` over lanes 0 and 1 (over lane 0 alone where a GPU has one port)."""
        rail_of_group(self.plan, group)
        return group_paths(group, high=min(1, self.plan.ports_per_gpu - 1))
