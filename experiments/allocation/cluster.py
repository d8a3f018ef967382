"""Clusters of racks in use: filled with slices until none fits, then with randomly chosen slices released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from controllers.allocation.allocator import Allocation, Allocator
from experiments.allocation.settings import AllocationSettings, read_mix

Cluster = list[Allocator]
"""The racks of a cluster, without photonic fabric."""


def filled(experiment: AllocationSettings, mix: str, cluster: int) -> Cluster:
    """Racks filled with contiguous slices drawn from ``mix``, each in the first rack with room, until no size fits."""
    random = Random(f"{experiment.seed} {cluster} fill")
    racks = [experiment.rack(photonic=False) for _ in range(experiment.racks)]
    fill(racks, read_mix(mix), random)
    return racks


def filled_evenly(experiment: AllocationSettings, sizes: Sequence[int], cluster: int) -> Cluster:
    """Racks filled with contiguous slices of ``sizes``, the same number of chips in each, requested in random order.

    This is the cluster of MORPHLUX's section 7.2, with 1024 chips in each of four sizes. It does not say in which order
    slices are requested; a slice without room is left out.
    """
    racks = [experiment.rack(photonic=False) for _ in range(experiment.racks)]
    share = sum(rack.torus.chips for rack in racks) // len(sizes)
    wanted = [size for size in sizes for _ in range(share // size)]
    Random(f"{experiment.seed} {cluster} evenly").shuffle(wanted)
    for number, size in enumerate(wanted):
        for rack in racks:
            if isinstance(rack.allocate(size, f"slice{number}"), Allocation):
                break
    return racks


def fill(racks: Cluster, weights: Mapping[int, float], random: Random) -> None:
    """Draw slices by ``weights`` (chips: weight) and allocate them, until no size fits any rack."""
    left = {size: weight for size, weight in weights.items() if size <= racks[0].torus.chips}
    first = dict.fromkeys(left, 0)  # racks only fill up: a rack without room for a size stays without
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
    """Copies of ``racks`` with randomly drawn slices released until at least ``share`` of all chips is free."""
    racks = [rack.copy() for rack in racks]
    rented = [(rack, name) for rack in racks for name in rack.allocations]
    random.shuffle(rented)
    free = sum(rack.free.bit_count() for rack in racks)
    wanted = share * sum(rack.torus.chips for rack in racks)
    while free < wanted and rented:
        rack, name = rented.pop()
        free += len(rack.release(name).chips)
    return racks
