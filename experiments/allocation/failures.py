"""Number of chips that failures take out of use, under different ways of recovery.

A rack has one server in reserve and is otherwise full with slices of ``mix``; some of its rented chips die. A chip
counts as out of use if it cannot be rented until the repair, because it is dead, cut off, or needed for a slice that
had to move:

- ``migration`` (TPU): slices that lost a chip move to another rack, which must have been kept free: all of its chips.
- ``block``: on an electrical torus a slice that lost a chip moves as a whole to another healthy block: its chips.
- ``kubernetes``: the server of a dead chip is cordoned off as a node, and any other server replaces it (contiguity is
  ignored, in favour of this system): the chips of each server with a dead chip.
- ``morphlux``: a spare chip replaces the dead one, by circuits to all of its neighbours in the slice: one chip. Without
  enough free fibres the slice moves as in ``block``.
- ``ideal``: a switch that joins any chips: the dead chips alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from controllers.allocation.allocator import Allocator
from controllers.circuits.fibres import FibrePlant, Route
from experiments.allocation.cluster import fill
from experiments.allocation.row import AllocationRow
from experiments.allocation.settings import AllocationSettings, read_mix
from measure.published import published
from railyard.errors import CircuitError
from topos.plan import RackPlan
from topos.torus import Torus

SYSTEMS = ("migration", "block", "kubernetes", "morphlux", "ideal")
OVERPROVISION = published("morphlux-overprovision")
"""Approximate ratios to MORPHLUX; its TPU baseline loses the slice, as ``block`` here."""
PUBLISHED_MIX = "half-rack"
"""The mix whose sizes of slices are those of the published ratios."""


class Splicer:
    """The circuits of a full rack, and the spare chips that can replace dead ones."""

    def __init__(self, rack: Allocator, spares: tuple[int, ...]) -> None:
        torus = rack.torus
        self._plant = FibrePlant(RackPlan(torus.shape, torus.server, 1, spares), torus.chips, per_pair=rack.fibres)
        self._spares = list(spares)
        circuits = {}
        for allocation in rack.allocations.values():
            for number, (a, b) in enumerate(_links(torus, set(allocation.chips))):
                circuits[a, b, number] = (a, b)
        self._stands_for = {chip: chip for chip in range(torus.chips)}
        self._circuits = circuits
        self._routes: dict[tuple[int, int, int], Route] = {
            key: _direct(self._plant, *ends) for key, ends in circuits.items()
        }

    def splice(self, dead: int) -> bool:
        """Replace chip ``dead`` by a spare; False if no spare is left, or no fibres for its circuits."""
        gone = {key for key in self._circuits if dead in key[:2]}
        kept = {key: route for key, route in self._routes.items() if key not in gone}
        if not self._spares:
            return False
        stands_for = self._stands_for | {dead: self._spares[0]}
        new = {(a, b, number): (stands_for[a], stands_for[b]) for a, b, number in gone}
        try:
            self._routes = self._plant.routed(new, kept)
        except CircuitError:
            return False  # the other spares are in the same server
        self._stands_for = stands_for
        self._spares.pop(0)
        return True


def overprovision_rows(experiment: AllocationSettings) -> Iterator[AllocationRow]:
    """A row for every number of failures and system, with the mean over a cluster's racks, median of the clusters."""
    for failures in experiment.failures:
        clusters = [_losses(experiment, failures, number) for number in range(experiment.clusters)]
        died = sum(each["ideal"] for each in clusters)
        if not died:
            return  # no slice of the mix fits beside the reserve
        for system in SYSTEMS:
            row = AllocationRow(
                mix=experiment.mix,
                failures=failures,
                system=system,
                racks=experiment.clusters * experiment.racks,
                paper_ratio=OVERPROVISION.values.get(system) if experiment.mix == PUBLISHED_MIX else None,
                spliced_share=sum(each["spliced"] for each in clusters) / died if system == "morphlux" else None,
            )
            row.sample("chips_mean", [each[system] / experiment.racks for each in clusters])
            row.sample("ratio_to_morphlux", [each[system] / each["morphlux"] for each in clusters])
            yield row


def _losses(experiment: AllocationSettings, failures: int, cluster: int) -> Counter[str]:
    """The chips that all racks of a cluster lose, by system, and the number of dead chips that were ``spliced``."""
    random = Random(f"{experiment.seed} {failures} {cluster} failures")
    lost: Counter[str] = Counter()
    for _ in range(experiment.racks):
        rack, spares = _full_rack(experiment, random)
        rented = [chip for allocation in rack.allocations.values() for chip in allocation.chips]
        lost.update(_lost(rack, spares, random.sample(rented, min(failures, len(rented)))))
    return lost


def _full_rack(experiment: AllocationSettings, random: Random) -> tuple[Allocator, tuple[int, ...]]:
    """A rack that is full except for one randomly chosen server in reserve, and the chips of that server."""
    rack = experiment.rack(photonic=False)
    each = rack.torus.chips_per_server
    server = random.randrange(rack.torus.chips // each)
    spares = tuple(range(server * each, (server + 1) * each))
    rack.reserve(spares)
    fill([rack], read_mix(experiment.mix), random)
    return rack, spares


def _lost(rack: Allocator, spares: tuple[int, ...], dead: list[int]) -> dict[str, int]:
    torus = rack.torus
    owner = {chip: allocation for allocation in rack.allocations.values() for chip in allocation.chips}
    splicer = Splicer(rack, spares)
    stuck = [chip for chip in dead if not splicer.splice(chip)]

    def in_slices(chips: list[int]) -> int:
        """Number of chips of all slices that have one of ``chips``."""
        return sum(len(a.chips) for a in {owner[chip].name: owner[chip] for chip in chips}.values())

    return {
        "migration": torus.chips if dead else 0,
        "block": in_slices(dead),
        "kubernetes": torus.chips_per_server * len({torus.server_of(chip) for chip in dead}),
        "morphlux": len(dead) - len(stuck) + in_slices(stuck),
        "ideal": len(dead),
        "spliced": len(dead) - len(stuck),
    }


def _links(torus: Torus, chips: set[int]) -> list[tuple[int, int]]:
    """The links of the torus between chips of a slice."""
    return [(a, b) for a, _, b, _ in torus.links if a in chips and b in chips]


def _direct(plant: FibrePlant, a: int, b: int) -> Route:
    first, second = plant.torus.server_of(a), plant.torus.server_of(b)
    return (first,) if first == second else (first, second)
