"""A cluster of racks as tenants leave it: filled until nothing fits, then slices given back by chance."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from controllers.allocation.allocator import Allocation, Allocator
from experiments.allocation.settings import AllocationExperiment, read_mix

Cluster = list[Allocator]
"""The racks of a cluster, without photonic fabric."""


def filled(experiment: AllocationExperiment, mix: str, cluster: int) -> Cluster:
    """Racks with contiguous slices drawn from ``mix``, each in the first rack that has room, until no size fits."""
    random = Random(f"{experiment.seed} {cluster} fill")
    racks = [experiment.rack(photonic=False) for _ in range(experiment.racks)]
    fill(racks, {size: float(weight) for size, weight in read_mix(mix).items()}, random)
    return racks


def fill(racks: Cluster, weights: Mapping[int, float], random: Random) -> None:
    """Draw slices and allocate them; a size that no longer fits anywhere is drawn no more."""
    left = {size: weight for size, weight in weights.items() if size <= racks[0].torus.chips}
    first = dict.fromkeys(left, 0)  # racks only fill up: what had no room before has none now
    number = 0
    while left:
        size = random.choices(list(left), list(left.values()))[0]
        while first[size] < len(racks):
            if isinstance(racks[first[size]].allocate(size, f"slice{number}"), Allocation):
                number += 1
                break
            first[size] += 1
        else:
            del left[size]


def freed(racks: Cluster, share: float, random: Random) -> Cluster:
    """Copies of the racks after slices drawn by chance were released, until ``share`` of all chips is free."""
    racks = [rack.copy() for rack in racks]
    rented = [(rack, name) for rack in racks for name in rack.allocations]
    random.shuffle(rented)
    free = sum(rack.free.bit_count() for rack in racks)
    wanted = share * sum(rack.torus.chips for rack in racks)
    while free < wanted and rented:
        rack, name = rented.pop()
        free += len(rack.release(name).chips)
    return racks
