"""The study ``reserve``: how many chips stand idle so that failed ones find a replacement.

Units (chips, servers or racks) have failed independently, each with a probability of its own. Z(K) is the probability
that at least K of them have, by dynamic programming over the units, and the reserve is the least K with Z(K) <= 1 - SLO
(MORPHLUX, arXiv 2508.03674 v3). Two reserves are of one rack, and have a published size. The other two serve a cluster
with the same probability that no job of any rack waits: racks that stand idle, since a rack with a failed chip moves to
another as a whole, and spare servers in every rack, whose chips are spliced in one by one (LUMION, arXiv 2505.23105).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from random import Random
from typing import TYPE_CHECKING

from experiments.allocation.row import AllocationRow
from measure.published import published

if TYPE_CHECKING:
    from experiments.allocation.experiment import AllocationSettings

CHIPS, SERVERS, IDLE_RACKS, SPARE_SERVERS = "chips of a rack", "servers of a rack", "idle racks", "spare servers"
SIZES = {CHIPS: published("morphlux-spare-chips"), SERVERS: published("morphlux-spare-servers")}
"""The published reserves of a rack, by the range of probabilities in percent."""


def failed(chances: Sequence[float]) -> list[float]:
    """The probability that 0, 1, 2, ... of the units have failed (Poisson binomial distribution)."""
    found = [1.0]
    for chance in chances:
        found = [same * (1 - chance) + less * chance for same, less in zip([*found, 0.0], [0.0, *found], strict=True)]
    return found


def spares_for(chances: Sequence[float], slo: float) -> int:
    """The least K with Z(K) <= 1 - ``slo``; one more than there are units where all may have failed."""
    at_least = 1.0
    for count, chance in enumerate(failed(chances)):
        if at_least <= 1 - slo:
            return count
        at_least -= chance
    return len(chances) + 1


def reserve_rows(settings: AllocationSettings) -> Iterator[AllocationRow]:
    """A row for every range of probabilities and reserve, the median of the clusters, which differ in their draws."""
    for span in SIZES[CHIPS].values:
        low, high = (float(end) / 100 for end in span.split("-"))
        found = []
        for cluster in range(settings.clusters):
            draws = Random(f"{settings.seed} {cluster} {span} reserve")
            chips = range(settings.geometry.chips)
            found.append(
                _reserves([[draws.uniform(low, high) for _ in chips] for _ in range(settings.racks)], settings)
            )
        for system in found[0]:
            chips_of_all = settings.geometry.chips * (1 if system in SIZES else settings.racks)
            row = AllocationRow(system=system, fail=span, slo=settings.slo)
            row.paper_spares = SIZES[system].values[span] if system in SIZES else None
            row.sample("spares", [reserves[system][0] for reserves in found])
            row.sample("idle_share", [reserves[system][1] / chips_of_all for reserves in found])
            if system == IDLE_RACKS:
                row.sample("idle_ratio", [each[IDLE_RACKS][1] / each[SPARE_SERVERS][1] for each in found])
            yield row


def _reserves(chances: Sequence[Sequence[float]], settings: AllocationSettings) -> dict[str, tuple[int, int]]:
    """Units and chips of each reserve; ``chances`` are those of the chips of each rack."""
    rack, slo, chips = settings.geometry, settings.slo, chances[0]
    idle = spares_for([1 - prod(1 - chance for chance in own) for own in chances], slo)
    of_each = [-(-spares_for(own, slo ** (1 / len(chances))) // rack.chips_per_server) for own in chances]
    units = {
        CHIPS: (spares_for(chips, slo), 1),
        SERVERS: (spares_for(chips[: rack.servers], slo), rack.chips_per_server),
        IDLE_RACKS: (idle, rack.chips),
        SPARE_SERVERS: (sum(of_each), rack.chips_per_server),
    }
    return {system: (count, count * size) for system, (count, size) in units.items()}
