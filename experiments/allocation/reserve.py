"""The study ``reserve``: how many chips stand idle so that failed ones find a replacement.

Units (chips, servers or racks) have failed independently, each with a probability of its own. Z(K) is the probability
that at least K of them have, and the reserve is the least K with Z(K) <= 1 - SLO (MORPHLUX, arXiv 2508.03674 v3). Two
reserves are of one rack, and have a published size. The other two serve a cluster with the same probability that no job
of any rack waits: racks that stand idle, since a rack with a failed chip moves to another as a whole, and spare servers
in every rack, whose chips are spliced in one by one (LUMION, arXiv 2505.23105).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from random import Random

from experiments.allocation.row import AllocationRow
from measure.published import published
from topos.torus import Torus

CHIPS, SERVERS, IDLE_RACKS, SPARE_SERVERS = "chips of a rack", "servers of a rack", "idle racks", "spare servers"
SIZES = {CHIPS: published("morphlux-spare-chips"), SERVERS: published("morphlux-spare-servers")}
"""The published reserves of a rack, by the range of probabilities in percent."""


def spares_for(chances: Sequence[float], slo: float) -> int:
    """The least K with Z(K) <= 1 - ``slo``, by dynamic programming over the units (Poisson binomial distribution)."""
    failed = [1.0]
    for chance in chances:
        failed = [a * (1 - chance) + b * chance for a, b in zip([*failed, 0.0], [0.0, *failed], strict=True)]
    return next((count for count in range(len(failed)) if sum(failed[count:]) <= 1 - slo), len(failed))


def reserve_rows(rack: Torus, racks: int, clusters: int, slo: float, seed: int) -> Iterator[AllocationRow]:
    """A row for every range of probabilities and reserve, the median of the clusters, which differ in their draws."""
    for span in SIZES[CHIPS].values:
        low, high = (float(end) / 100 for end in span.split("-"))
        found = []
        for cluster in range(clusters):
            draws = Random(f"{seed} {cluster} {span} reserve")
            found.append(_reserves([[draws.uniform(low, high) for _ in rack.places] for _ in range(racks)], rack, slo))
        for system in found[0]:
            row = AllocationRow(system=system, fail=span, slo=slo)
            row.paper_spares = SIZES[system].values[span] if system in SIZES else None
            row.sample("spares", [units[system][0] for units in found])
            chips = rack.chips * (1 if system in SIZES else racks)
            row.sample("idle_share", [units[system][1] / chips for units in found])
            if system == IDLE_RACKS:
                row.sample("idle_ratio", [units[IDLE_RACKS][1] / units[SPARE_SERVERS][1] for units in found])
            yield row


def _reserves(chances: Sequence[Sequence[float]], rack: Torus, slo: float) -> dict[str, tuple[int, int]]:
    """Units and chips of each reserve; ``chances`` are those of the chips of each rack."""
    idle = spares_for([1 - prod(1 - chance for chance in own) for own in chances], slo)
    in_all = sum(-(-spares_for(own, slo ** (1 / len(chances))) // rack.chips_per_server) for own in chances)
    chips, servers = spares_for(chances[0], slo), spares_for(chances[0][: rack.servers], slo)
    return {
        CHIPS: (chips, chips),
        SERVERS: (servers, servers * rack.chips_per_server),
        IDLE_RACKS: (idle, idle * rack.chips),
        SPARE_SERVERS: (in_all, in_all * rack.chips_per_server),
    }
