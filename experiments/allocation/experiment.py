"""The allocation experiment: fragmentation of racks, and what a photonic fabric in the servers saves.

Nothing is emulated. Studies: ``fragmentation`` (the index I = 1 - S/T of every rack, with some slices released),
``protocols`` (MORPHLUX's own state of the cluster and its requests, by protocol), ``overprovision`` (chips lost to
failures), ``reserve`` (chips that stand idle for failures). The clusters of a study differ in their draws alone.
Source: MORPHLUX, arXiv 2508.03674 v3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from controllers.allocation.allocator import Allocation, Allocator, check_torus
from controllers.allocation.boxes import closed_rings
from controllers.circuits.fibres import FibrePlant, Route
from experiments.allocation.reserve import reserve_rows
from experiments.allocation.row import SYSTEMS, AllocationRow
from experiments.experiment import Experiment
from experiments.settings import MOST_SEED, Option, Settings
from measure.published import published
from railyard.errors import CircuitError
from railyard.validation import shown
from topos.plan import RackPlan
from topos.torus import Extents, Torus

if TYPE_CHECKING:
    from experiments.runner import Runner

Study = Literal["fragmentation", "protocols", "overprovision", "reserve"]
STUDIES: tuple[Study, ...] = get_args(Study)
Protocol = Literal["per-rack", "cluster"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
"""Of whom requests are asked: of every rack, for its own free chips, or of the cluster, for those of all racks."""

MIXES: dict[str, dict[int, float]] = {
    "servers": {size: 16 / size for size in (4, 8, 16)},
    "small": {size: 16 / size for size in (1, 2, 4, 8, 16)},
    "small-even": dict.fromkeys((1, 2, 4, 8, 16), 1.0),
    "half-rack": {size: 32 / size for size in (4, 8, 16, 32)},
    "rack-even": dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 1.0),
    "tpu-v4": {int(size): share / size for size, share in published("tpu-v4-slices").values.items()},
}
"""Mixes of slices: sizes in chips and their weights. ``half-rack``, the default, is the mix of the authors
(``morphlux-mix`` of measure/published.yaml): each size has the same share of the chips. ``servers`` is the same without
slices of half a rack (the TPU topologies 2x2x1, 2x2x2, 2x2x4), ``small`` includes single chips, ``small-even`` has the
same number of requests of each size, ``rack-even`` slices of up to a whole rack, and in ``tpu-v4`` each size has the
share of the chips that it has of Google's machines."""


def read_extents(value: Any) -> Any:
    """Parse ``4x4x4`` as three numbers, with 1 for missing ones; values other than strings are returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        parts = [int(part) for part in value.lower().split("x")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"write extents as 4x4x4, not {value!r}")
    return tuple((*parts, 1, 1)[:3])


class AllocationSettings(Settings):
    """Settings of the allocation experiment: racks filled with slices, then asked for more or hit by failures."""

    read_by: ClassVar[Mapping[str, str]] = {"slo": "reserve", "failures": "overprovision"}

    studies: Annotated[tuple[Study, ...], Option("--study")] = Field(
        default=STUDIES, min_length=1, description="studies to measure"
    )
    seed: int = Field(default=1, ge=0, le=MOST_SEED, description="seed of payloads and of all that is drawn")
    racks: int = Field(default=64, ge=1, le=4096, description="number of racks per cluster")
    clusters: int = Field(default=8, ge=1, le=1000, description="number of clusters, each with other draws")
    torus: Annotated[Extents, Option(metavar="XxYxZ")] = Field(
        default=(4, 4, 4), description="torus of chips of a rack"
    )
    server: Annotated[Extents, Option(metavar="XxYxZ")] = Field(
        default=(2, 2, 1), description="block of chips of a server"
    )
    fibres: int = Field(default=4, ge=1, le=64, description="fibres between two adjacent servers")
    mix: Annotated[str, Option(metavar="NAME|4:4,8:2")] = Field(
        default="half-rack",
        description=f"mix of slices that fill the racks: {', '.join(MIXES)}, or chips:weight pairs",
    )
    freed: Annotated[tuple[float, ...], Option(metavar="SHARE,...")] = Field(
        default=(0.2, 0.3), min_length=1, description="shares of the chips that are released"
    )
    failures: Annotated[tuple[int, ...], Option(metavar="N,...")] = Field(
        default=(1, 2, 3, 4), min_length=1, description="numbers of dead chips per rack"
    )
    slo: Annotated[float, Option("--slo", "SHARE")] = Field(
        default=0.95, ge=0.01, lt=1, description="probability with which failed chips find a spare, study reserve"
    )
    wrap: bool = Field(default=True, description="slices across the edge of a rack")
    limit_ms: Annotated[float, Option("--limit", "MS")] = Field(
        default=500, gt=0, le=60_000, description="time limit of one fragmented request, in ms"
    )

    @field_validator("torus", "server", mode="before")
    @classmethod
    def _extents(cls, value: Any) -> Any:
        return read_extents(value)

    @field_validator("freed")
    @classmethod
    def _shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for share in value:
            if not 0 <= share <= 1:
                raise ValueError(f"each share of the chips must be between 0 and 1, not {share:g}")
        return value

    @field_validator("mix")
    @classmethod
    def _mix(cls, value: str) -> str:
        read_mix(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> AllocationSettings:
        chips = self.geometry.chips
        if chips > 256:
            raise ValueError(f"a rack may have at most 256 chips, and this torus has {shown(chips)}")
        check_torus(self.geometry)
        self.rack(photonic=True)
        largest = max(read_mix(self.mix))
        if largest > chips:
            raise ValueError(f"mix {self.mix} has slices of {largest} chips, and a rack has {chips}")
        each = self.geometry.chips_per_server
        for count in self.failures:
            if not 1 <= count <= chips - each:
                raise ValueError(f"failures per rack must be from 1 to {chips - each}, not {count}")
        return self

    @property
    def geometry(self) -> Torus:
        return Torus(self.torus, self.server)

    def rack(self, *, photonic: bool) -> Allocator:
        """The allocator of an empty rack, with or without a photonic fabric."""
        return Allocator(
            self.geometry, photonic, self.wrap, fibres=self.fibres, limit_s=self.limit_ms / 1e3, seed=self.seed
        )


def read_mix(text: str) -> dict[int, float]:
    """Parse a mix: a name, or ``4:4,8:2,16:1`` (chips: weight); ``ValueError`` for any other form."""
    if text in MIXES:
        return MIXES[text]
    try:
        pairs = [part.split(":") for part in text.split(",")]
        mix = {int(size): float(Fraction(weight)) for size, weight in pairs}
    except (ValueError, ZeroDivisionError, OverflowError):
        mix = {}
    if not mix or min(mix) < 1 or min(mix.values()) <= 0:
        raise ValueError(f"must be one of {', '.join(MIXES)}, or chips and weights as in 4:4,8:2,16:1, not {text!r}")
    return mix


class AllocationStudy(Experiment[AllocationSettings]):
    """The cost of fragmentation in racks of accelerators, and the savings of a photonic fabric; no packets, no root."""

    name = "allocation"
    Settings = AllocationSettings
    rows = (AllocationRow,)
    quick: ClassVar = {"clusters": 1}
    examples = (
        "                 # all studies: 8 clusters, 64 racks each",
        "--quick          # one cluster",
        "--study protocols                     # requests as MORPHLUX describes them",
        "--mix 4:4,8:2,16:1                    # sizes of slices and weights",
        "--torus 4x4x2 --server 2x2x1",
    )
    packets = root = False

    def run(self, runner: Runner) -> None:
        runner.progress.begin("computing the studies")
        for row in study_rows(self.settings):
            runner.add(row)


INDEX, FAILED = published("morphlux-index"), published("morphlux-failed")
MIX, SERVED, THROUGHPUT = (published(f"morphlux-{name}") for name in ("mix", "served", "throughput"))
OVERPROVISION = published("morphlux-overprovision")
"""Approximate ratios to MORPHLUX; its TPU baseline loses the slice, as ``block`` here."""
INDEX_FREED = 0.2
"""Share of freed chips of the published index."""
REQUESTS_FREED = 0.3
"""Share of freed chips of MORPHLUX's requests."""
LARGE, LARGE_AND_HALF = (32,), (16, 32)
"""Sizes of the slices that MORPHLUX requests (section 7.2, figure 11); the published failures are of the first."""
EVENLY = "evenly"
"""Mix of the study ``protocols``: exactly the chips of ``morphlux-mix`` in slices of each size."""
PUBLISHED_MIX = "half-rack"
"""The mix whose sizes of slices are those of the published ratios after failures."""
RECOVERIES = ("migration", "block", "kubernetes", "morphlux", "ideal")
"""Ways of recovery from dead chips, by what cannot be rented until the repair: dead, cut off, or needed for a move.

- ``migration`` (TPU): slices that lost a chip move to another rack, which must have been kept free: all of its chips.
- ``block``: on an electrical torus a slice that lost a chip moves as a whole to another healthy block: its chips.
- ``kubernetes``: the server of a dead chip is cordoned off as a node, and any other server replaces it (contiguity is
  ignored, in favour of this system): the chips of each server with a dead chip.
- ``morphlux``: a spare chip replaces the dead one, by circuits to all of its neighbours in the slice: one chip. Without
  enough free fibres the slice moves as in ``block``.
- ``ideal``: a switch that joins any chips: the dead chips alone.
"""
Racks = list[Allocator]
"""The racks of a cluster."""


def study_rows(settings: AllocationSettings) -> Iterator[AllocationRow]:
    rows_of: dict[Study, Callable[[AllocationSettings], Iterator[AllocationRow]]] = {
        "fragmentation": fragmentation_rows,
        "protocols": protocol_rows,
        "overprovision": overprovision_rows,
        "reserve": lambda s: reserve_rows(s.geometry, s.racks, s.clusters, s.slo, s.seed),
    }
    for study in STUDIES:
        if study in settings.studies:
            for row in rows_of[study](settings):
                row.study, row.seed = study, settings.seed
                yield row


# ---- racks in use --------------------------------------------------------------------------------------------------


def filled(settings: AllocationSettings, cluster: int) -> Racks:
    """Racks filled with contiguous slices of the mix, each in the first rack with room, until no size fits."""
    racks = _empty_racks(settings)
    fill(racks, read_mix(settings.mix), Random(f"{settings.seed} {cluster} fill"))
    return racks


def filled_evenly(settings: AllocationSettings, sizes: Sequence[int], cluster: int) -> Racks:
    """Racks filled with contiguous slices of ``sizes``, the same number of chips in each, requested in random order.

    This is the cluster of MORPHLUX's section 7.2, with 1024 chips in each of four sizes. It does not say in which order
    slices are requested; a slice without room is left out.
    """
    racks = _empty_racks(settings)
    share = sum(rack.torus.chips for rack in racks) // len(sizes)
    wanted = [size for size in sizes for _ in range(share // size)]
    Random(f"{settings.seed} {cluster} evenly").shuffle(wanted)
    for number, size in enumerate(wanted):
        for rack in racks:
            if isinstance(rack.allocate(size, f"slice{number}"), Allocation):
                break
    return racks


def _empty_racks(settings: AllocationSettings) -> Racks:
    return [settings.rack(photonic=False) for _ in range(settings.racks)]


def fill(racks: Racks, weights: Mapping[int, float], random: Random) -> None:
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


def freed(racks: Racks, share: float, random: Random) -> Racks:
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


def _all_freed(settings: AllocationSettings, clusters: Sequence[Racks], share: float) -> list[Racks]:
    return [
        freed(racks, share, Random(f"{settings.seed} {number} free {share:g}")) for number, racks in enumerate(clusters)
    ]


# ---- fragmentation -------------------------------------------------------------------------------------------------


def fragmentation_rows(settings: AllocationSettings) -> Iterator[AllocationRow]:
    """Fragmentation index of every rack, with contiguous slices only and with the photonic fabric."""
    full = [filled(settings, number) for number in range(settings.clusters)]
    for share in settings.freed:
        clusters = _all_freed(settings, full, share)
        racks = [rack for cluster in clusters for rack in cluster]
        for system in SYSTEMS:
            photonic = system == "morphlux"
            index = [[rack.copy(photonic=photonic).fragmentation() for rack in cluster] for cluster in clusters]
            row = AllocationRow(
                mix=settings.mix,
                freed=share,
                free_share=fmean(rack.free.bit_count() / rack.torus.chips for rack in racks),
                system=system,
                paper_index_max=published_index(system, share),
                per_rack=[value for cluster in index for value in cluster],
            )
            row.sample("index_max", [max(cluster) for cluster in index])
            row.sample("index_median", [median(cluster) for cluster in index])
            row.sample("index_mean", [fmean(cluster) for cluster in index])
            yield row


def published_index(system: str, freed_share: float) -> float | None:
    """The published largest index of ``system``; None for another share of freed chips."""
    return INDEX.values[system] if freed_share == INDEX_FREED else None


# ---- requests for slices -------------------------------------------------------------------------------------------


def protocol_rows(settings: AllocationSettings) -> Iterator[AllocationRow]:
    """MORPHLUX's own cluster and its two lists of requests, under both protocols."""
    chips = settings.geometry.chips
    sizes = [size for size in MIX.values if size <= chips]
    full = [filled_evenly(settings, sizes, number) for number in range(settings.clusters)]
    clusters = _all_freed(settings, full, REQUESTS_FREED)
    for protocol in PROTOCOLS:
        for requested in (LARGE, LARGE_AND_HALF):
            if max(requested) <= chips:
                yield from _request_rows(clusters, requested, protocol, settings.seed)


def _request_rows(
    clusters: Sequence[Racks], sizes: Sequence[int], protocol: Protocol, seed: int
) -> Iterator[AllocationRow]:
    """A row for each system. Both get the same requests in a cluster, as far as they are asked."""
    outcomes_of = {
        system: [
            ask(racks, sizes, protocol, Random(f"{seed} {number} requests"), photonic=system == "morphlux")
            for number, racks in enumerate(clusters)
        ]
        for system in SYSTEMS
    }
    racks = [rack for cluster in clusters for rack in cluster]
    asked = ",".join(map(str, sizes))
    for system, outcomes in outcomes_of.items():
        row = AllocationRow(
            mix=EVENLY,
            freed=REQUESTS_FREED,
            system=system,
            protocol=protocol,
            asked=asked,
            chips=max(sizes),
            racks=len(racks),
            racks_with_room=sum(rack.free.bit_count() >= max(sizes) for rack in racks),
            requests=sum(outcome.requests for outcome in outcomes),
            failed=sum(outcome.failed for outcome in outcomes),
            failed_for_time=sum(outcome.failed_for_time for outcome in outcomes),
            fragmented=sum(outcome.fragmented for outcome in outcomes),
            thin=sum(outcome.thin for outcome in outcomes),
            paper_failed_share=FAILED.values[system] if sizes == LARGE else None,
        )
        row.sample("failed_share", [_ratio(outcome.failed, outcome.requests) for outcome in outcomes])
        if system == "morphlux":
            pairs = list(zip(outcomes, outcomes_of["contiguous"], strict=True))
            row.sample("served_ratio", [_ratio(mine.served, base.served) for mine, base in pairs])
            row.sample("chips_ratio", [_ratio(mine.chips, base.chips) for mine, base in pairs])
            row.sample("egress_ratio", [_ratio(mine.egress, base.egress) for mine, base in pairs])
            row.sample("pooled_ratio", [_ratio(base.requests, base.served) for _, base in pairs])
            row.paper_served_ratio, row.paper_throughput = SERVED.values[asked], THROUGHPUT.values[asked]
        yield row


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None


@dataclass
class Outcomes:
    """The ends of requests: ``requests`` in all, the slices ``served`` and their ``chips``.

    ``egress`` is the sum over all served slices of chips x the share of a chip's egress that the slice can use;
    ``fragmented`` slices are joined from parts, the ``thin`` ones of them with fewer circuits than fibres.
    """

    requests: int = 0
    served: int = 0
    chips: int = 0
    egress: float = 0.0
    fragmented: int = 0
    thin: int = 0
    failed_for_time: int = 0

    @property
    def failed(self) -> int:
        return self.requests - self.served


def ask(racks: Racks, sizes: Sequence[int], protocol: Protocol, random: Random, *, photonic: bool) -> Outcomes:
    """Request slices of ``sizes`` chips, drawn evenly, in copies of the ``racks`` of a cluster, until chips run out.

    MORPHLUX allocates "until available TPUs are exhausted", which can be read in two ways. ``per-rack``: every rack is
    asked for as many chips as it has free. ``cluster``: the cluster is asked for as many chips as are free in all of
    its racks, and the first rack that has a slice serves the request; a slice lies within one rack in either case.
    """
    racks = [rack.copy(photonic=photonic) for rack in racks]
    outcomes = Outcomes()
    for group in [[rack] for rack in racks] if protocol == "per-rack" else [racks]:
        for number, chips in enumerate(drawn(sum(rack.free.bit_count() for rack in group), sizes, random)):
            _request(group, chips, f"request{number}", outcomes)
    return outcomes


def drawn(free: int, sizes: Sequence[int], random: Random) -> list[int]:
    """Sizes drawn evenly of those that do not exceed the ``free`` chips left, until none is left that does not."""
    chosen = []
    while fitting := [size for size in sizes if size <= free]:
        chosen.append(random.choice(fitting))
        free -= chosen[-1]
    return chosen


def _request(racks: Racks, chips: int, name: str, outcomes: Outcomes) -> None:
    outcomes.requests += 1
    reason = "chips"
    for rack in racks:
        answer = rack.allocate(chips, name)
        if isinstance(answer, Allocation):
            outcomes.served += 1
            outcomes.chips += chips
            if answer.kind == "fragmented":
                outcomes.fragmented += 1
                bundle = min(rack.fibres, rack.torus.chips_per_server)
                outcomes.thin += min((circuits for _, circuits in answer.paths), default=bundle) < bundle
            fixed = answer.slice if not rack.photonic and chips > 1 else None
            outcomes.egress += chips * (1.0 if fixed is None else fixed_share(rack.torus, fixed.extents))
            return
        if answer.reason != "chips":
            reason = answer.reason
    outcomes.failed_for_time += reason == "time"


def fixed_share(torus: Torus, extents: Extents) -> float:
    """The share of a chip's egress that a slice of ``extents``, two chips or more, can use if ports are fixed, 0 to 1.

    Electrical tori split a chip's egress evenly over their dimensions. A slice can use the dimensions in which it spans
    the torus, so that the ring closes without links of other slices; one that closes no ring still has one through all
    of its chips, and so the share of one dimension. A photonic fabric steers all ports to peers in the slice.
    """
    return max(1, closed_rings(torus, extents)) / sum(extent > 1 for extent in torus.shape)


# ---- failures ------------------------------------------------------------------------------------------------------


def overprovision_rows(settings: AllocationSettings) -> Iterator[AllocationRow]:
    """A row for every number of failures and system, with the mean over a cluster's racks, median of the clusters.

    A rack has one server in reserve and is otherwise full with slices of the mix; some of its rented chips die.
    """
    for failures in settings.failures:
        clusters = [_losses(settings, failures, number) for number in range(settings.clusters)]
        died = sum(lost["ideal"] for lost in clusters)
        if not died:
            return  # no slice of the mix fits beside the reserve
        for system in RECOVERIES:
            row = AllocationRow(
                mix=settings.mix,
                failures=failures,
                system=system,
                racks=settings.clusters * settings.racks,
                paper_ratio=OVERPROVISION.values.get(system) if settings.mix == PUBLISHED_MIX else None,
                spliced_share=sum(lost["spliced"] for lost in clusters) / died if system == "morphlux" else None,
            )
            row.sample("chips_mean", [lost[system] / settings.racks for lost in clusters])
            row.sample("ratio_to_morphlux", [lost[system] / lost["morphlux"] for lost in clusters])
            yield row


def _losses(settings: AllocationSettings, failures: int, cluster: int) -> Counter[str]:
    """The chips that all racks of a cluster lose, by system, and the number of dead chips that were ``spliced``."""
    random = Random(f"{settings.seed} {failures} {cluster} failures")
    lost: Counter[str] = Counter()
    for _ in range(settings.racks):
        rack, spares = _full_rack(settings, random)
        rented = [chip for allocation in rack.allocations.values() for chip in allocation.chips]
        lost.update(_lost(rack, spares, random.sample(rented, min(failures, len(rented)))))
    return lost


def _full_rack(settings: AllocationSettings, random: Random) -> tuple[Allocator, tuple[int, ...]]:
    """A rack that is full except for one randomly chosen server in reserve, and the chips of that server."""
    rack = settings.rack(photonic=False)
    per_server = rack.torus.chips_per_server
    server = random.randrange(rack.torus.chips // per_server)
    spares = tuple(range(server * per_server, (server + 1) * per_server))
    rack.reserve(spares)
    fill([rack], read_mix(settings.mix), random)
    return rack, spares


def _lost(rack: Allocator, spares: tuple[int, ...], dead: list[int]) -> dict[str, int]:
    torus = rack.torus
    owner = {chip: allocation for allocation in rack.allocations.values() for chip in allocation.chips}
    splicer = Splicer(rack, spares)
    stuck = [chip for chip in dead if not splicer.splice(chip)]

    def in_slices(chips: list[int]) -> int:
        return sum(len(a.chips) for a in {owner[chip].name: owner[chip] for chip in chips}.values())

    return {
        "migration": torus.chips if dead else 0,
        "block": in_slices(dead),
        "kubernetes": torus.chips_per_server * len({torus.server_of(chip) for chip in dead}),
        "morphlux": len(dead) - len(stuck) + in_slices(stuck),
        "ideal": len(dead),
        "spliced": len(dead) - len(stuck),
    }


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


def _links(torus: Torus, chips: set[int]) -> list[tuple[int, int]]:
    """The links of the torus between chips of a slice."""
    return [(a, b) for a, _, b, _ in torus.links if a in chips and b in chips]


def _direct(plant: FibrePlant, a: int, b: int) -> Route:
    first, second = plant.torus.server_of(a), plant.torus.server_of(b)
    return (first,) if first == second else (first, second)
