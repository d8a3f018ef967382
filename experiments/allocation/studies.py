"""Runs the studies of an allocation experiment; each study gives rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, median
from typing import Any, get_args

from controllers.allocation.allocator import Allocator
from controllers.policies.spares import draw_probabilities, spares_needed
from experiments.allocation.cluster import Cluster, filled, filled_evenly, freed
from experiments.allocation.egress import UsableRule, static_share, steered_shares
from experiments.allocation.failures import PUBLISHED_MIX, overprovision_rows
from experiments.allocation.requests import request_rows
from experiments.allocation.row import SYSTEMS, AllocationRow
from experiments.allocation.settings import MIXES, PROTOCOLS, STUDIES, AllocationSettings, Protocol
from measure.published import published
from topos.slices import Slice

INDEX, FAILED = published("morphlux-index"), published("morphlux-failed")
INDEX_FREED = 0.2
"""Share of freed chips of the published index."""
FAILED_AT = (PUBLISHED_MIX, 0.3, 32)
"""Mix, share of freed chips and size of a request of the published share of failed requests."""
MIX, SERVED, THROUGHPUT = (published(f"morphlux-{name}") for name in ("mix", "served", "throughput"))
PORTS = published("morphlux-ports")
EVENLY = "evenly"
"""Mix of the study ``protocols``: exactly the chips of ``morphlux-mix`` in slices of each size."""
REQUESTED = ((32,), (16, 32))
"""Sizes of the slices that MORPHLUX requests (section 7.2, figure 11)."""
GAIN_HALF = published("morphlux-gain-half")
"""The gain that half of the racks exceed, in training throughput; another quantity than the egress of a chip."""
SOLVER = published("morphlux-solver")
SPARES = {64: published("spares-of-chips"), 16: published("spares-of-servers")}
"""Spares K by number of groups."""
SPARES_SHOWN = published("morphlux-spares")
Racks = Sequence[Sequence[Slice]]
"""The slices of each rack of a cluster."""
SPARES_SLO = 0.95
FAILURE_RANGES = ((0.0, 0.01), (0.01, 0.03), (0.03, 0.05))
SPARE_DRAWS = 201


@dataclass
class Studies:
    """The studies of ``experiment``; clusters that several studies need are filled once."""

    experiment: AllocationSettings
    _filled: dict[tuple[str, int], Cluster] = field(default_factory=dict)
    _times: dict[str, list[float]] = field(default_factory=dict)

    def rows(self) -> Iterator[AllocationRow]:
        """The rows of all selected studies, in the order of ``STUDIES``; each has a method of its name."""
        for study in STUDIES:
            found: Iterator[AllocationRow] = getattr(self, study)() if study in self.experiment.studies else iter(())
            for row in found:
                row.study, row.seed = study, self.experiment.seed
                yield row

    def clusters(self, mix: str) -> Iterator[Cluster]:
        """The clusters of the experiment, filled with ``mix``."""
        for number in self._numbers:
            if (mix, number) not in self._filled:
                self._filled[mix, number] = filled(self.experiment, mix, number)
            yield self._filled[mix, number]

    def left(self, mix: str, share: float) -> Iterator[Cluster]:
        """The clusters filled with ``mix``, with ``share`` of their chips freed."""
        return self._freed(self.clusters(mix), share)

    def _freed(self, clusters: Iterable[Cluster], share: float) -> Iterator[Cluster]:
        for number, racks in enumerate(clusters):
            yield freed(racks, share, Random(f"{self.experiment.seed} {number} free {share:g}"))

    @property
    def _numbers(self) -> range:
        return range(self.experiment.clusters)

    # ---- fragmentation and requests --------------------------------------------------------------------------------

    def fragmentation(self) -> Iterator[AllocationRow]:
        """Fragmentation index of every rack, with contiguous slices only and with the photonic fabric."""
        for share in self.experiment.freed:
            clusters = list(self.left(self.experiment.mix, share))
            racks = [rack for cluster in clusters for rack in cluster]
            for system in SYSTEMS:
                photonic = system == "morphlux"
                index = [[rack.copy(photonic=photonic).fragmentation() for rack in cluster] for cluster in clusters]
                row = AllocationRow(
                    mix=self.experiment.mix,
                    freed=share,
                    free_share=fmean(rack.free.bit_count() / rack.torus.chips for rack in racks),
                    system=system,
                    paper_index_max=published_index(system, share),
                    per_rack=[each for cluster in index for each in cluster],
                )
                row.sample("index_max", [max(each) for each in index])
                row.sample("index_median", [median(each) for each in index])
                row.sample("index_mean", [fmean(each) for each in index])
                yield row

    def requests(self) -> Iterator[AllocationRow]:
        """Requests for large slices, in every rack as many as its free chips would suffice for."""
        for share in self.experiment.freed:
            yield from self._requests(self.experiment.mix, share)

    def mixes(self) -> Iterator[AllocationRow]:
        """Requests for large slices for every mix that fits the rack, at the largest freed share."""
        for mix in self._mixes():
            yield from self._requests(mix, max(self.experiment.freed))

    def protocols(self) -> Iterator[AllocationRow]:
        """MORPHLUX's own cluster and its two lists of requests, under both protocols."""
        chips, freed_share = self.experiment.geometry.chips, FAILED_AT[1]
        sizes = [size for size in MIX.values if size <= chips]
        clusters = list(self._freed((filled_evenly(self.experiment, sizes, n) for n in self._numbers), freed_share))
        for protocol in PROTOCOLS:
            for requested in (each for each in REQUESTED if max(each) <= chips):
                for row in self._asked(clusters, requested, protocol, mix=EVENLY, freed=freed_share):
                    if requested == FAILED_AT[2:]:
                        row.paper_failed_share = FAILED.values[row.system]
                    if row.system == "morphlux":
                        row.paper_served_ratio = SERVED.values[row.asked]
                        row.paper_throughput = THROUGHPUT.values[row.asked]
                    yield row

    def _requests(self, mix: str, share: float) -> Iterator[AllocationRow]:
        clusters, request = list(self.left(mix, share)), self.experiment.request
        index = max(rack.fragmentation() for cluster in clusters for rack in cluster)
        for row in self._asked(clusters, (request,), self.experiment.protocol, mix=mix, freed=share):
            row.contiguous_index_max = index
            row.paper_failed_share = published_failed(row.system, mix, share, request)
            yield row

    def _asked(
        self, clusters: Sequence[Cluster], sizes: Sequence[int], protocol: Protocol, **labels: Any
    ) -> list[AllocationRow]:
        rows, outcomes = request_rows(clusters, sizes, protocol, self.experiment.seed, **labels)
        for each in outcomes:
            for kind, times in each.times.items():
                self._times.setdefault(kind, []).extend(times)
        return rows

    # ---- the others --------------------------------------------------------------------------------------------------

    def ports(self) -> Iterator[AllocationRow]:
        """Share of the ports of every rack that its slices can use if each port is fixed to a dimension."""
        rules: tuple[UsableRule, ...] = get_args(UsableRule)
        for mix in dict.fromkeys((self.experiment.mix, *self._mixes())):
            clusters = [[self._used(_slices(rack)) for rack in cluster] for cluster in self.clusters(mix)]
            for rule in rules if mix == self.experiment.mix else ("port",):
                used = [[rack[rule] for rack in cluster] for cluster in clusters]
                per_rack = [share for cluster in used for share in cluster]
                row = AllocationRow(mix=mix, rule=rule, racks=len(per_rack), per_rack=per_rack)
                row.sample("used_median", [median(racks) for racks in used])
                row.sample("used_least", [min(racks) for racks in used])
                row.paper_used_least = PORTS.value if rule == "port" and mix == PUBLISHED_MIX else None
                yield row

    def _used(self, slices: Sequence[Slice]) -> dict[UsableRule, float]:
        """The share of the ports of a rack that its slices can use, by rule; free chips use none."""
        torus, rules = self.experiment.geometry, get_args(UsableRule)
        return {
            rule: sum(each.size * static_share(torus, each.extents, rule) for each in slices) / torus.chips
            for rule in rules
        }

    def bandwidth(self) -> Iterator[AllocationRow]:
        """Gain of every rack as a share of its chips' egress, without and with the limit of fibres.

        Without the limit is MORPHLUX's count.
        """
        rules: tuple[UsableRule, ...] = ("ring", "link")
        for mix in dict.fromkeys((self.experiment.mix, *self._mixes())):
            clusters = [[_slices(rack) for rack in cluster] for cluster in self.clusters(mix)]
            for rule in rules if mix == self.experiment.mix else rules[:1]:
                yield self._gains(mix, rule, clusters, counted=False)
                if mix == self.experiment.mix:
                    yield self._gains(mix, rule, clusters, counted=True)

    def _gains(self, mix: str, rule: UsableRule, clusters: Sequence[Racks], *, counted: bool) -> AllocationRow:
        gains = [[self._gain(slices, rule, counted=counted) for slices in racks] for racks in clusters]
        row = AllocationRow(
            mix=mix,
            rule=rule,
            fibres_counted=counted,
            racks=sum(map(len, gains)),
            per_rack=[gain for racks in gains for gain, _ in racks],
        )
        row.sample("static_share_mean", [fmean(static for _, static in racks) for racks in gains])
        row.sample("gain_median", [median(gain for gain, _ in racks) for racks in gains])
        row.sample("gain_max", [max(gain for gain, _ in racks) for racks in gains])
        row.sample("above_30_percent", [fmean(gain > GAIN_HALF.value for gain, _ in racks) for racks in gains])
        return row

    def _gain(self, slices: Sequence[Slice], rule: UsableRule, *, counted: bool) -> tuple[float, float]:
        """Gain of a rack as a share of its chips' egress, and the share without gain; both means over the chips."""
        torus = self.experiment.geometry
        static = [static_share(torus, each.extents, rule) for each in slices]
        steered = steered_shares(torus, slices, self.experiment.fibres) if counted else [1.0] * len(slices)
        gains = [max((after or 0.0) - before, 0.0) for after, before in zip(steered, static, strict=True)]
        chips = [each.size for each in slices]
        return _mean(gains, chips), _mean(static, chips)

    def _mixes(self) -> list[str]:
        """The mixes by name that fit the rack."""
        return [mix for mix, sizes in MIXES.items() if max(sizes) <= self.experiment.geometry.chips]

    def overprovision(self) -> Iterator[AllocationRow]:
        """Number of chips that failures take out of use."""
        yield from overprovision_rows(self.experiment)

    def spares(self) -> Iterator[AllocationRow]:
        """Number of spares K, with chips and with servers as groups, over many draws of failure probabilities."""
        torus = self.experiment.geometry
        each = torus.chips_per_server
        for what, size, groups in (("chips", 1, torus.chips), ("servers", each, torus.chips // each)):
            for low, high in FAILURE_RANGES:
                drawn = [
                    spares_needed(
                        draw_probabilities(groups, low, high, self.experiment.seed * SPARE_DRAWS + draw),
                        self.experiment.slo,
                    )
                    for draw in range(SPARE_DRAWS)
                ]
                yield AllocationRow(
                    groups=groups,
                    of=what,
                    p_fail_low=low,
                    p_fail_high=high,
                    slo=self.experiment.slo,
                    spares=int(median(drawn)),
                    reserve_chips=int(median(drawn)) * size,
                    rack_to_reserve=torus.chips / max(1, int(median(drawn)) * size),
                    spares_least=min(drawn),
                    spares_most=max(drawn),
                    derived_spares=_derived_spares(groups, high, self.experiment.slo),
                )

    def solver(self) -> Iterator[AllocationRow]:
        """Wall-clock time of requests for slices that had to be allocated from fragments."""
        if not self._times:
            for share in self.experiment.freed:
                clusters = list(self.left(self.experiment.mix, share))
                self._asked(clusters, (self.experiment.request,), self.experiment.protocol)
        for outcome in ("fragmented", "refused"):
            times = [took for took in self._times.get(outcome, []) if outcome == "fragmented" or took > 1e-3]
            if times:
                yield AllocationRow(
                    outcome=outcome,
                    chips=self.experiment.request,
                    count=len(times),
                    median_s=median(times),
                    worst_s=max(times),
                    paper_s=SOLVER.value,
                )


def published_index(system: str, freed_share: float) -> float | None:
    """The published largest index of ``system``; None for another share of freed chips."""
    return INDEX.values[system] if freed_share == INDEX_FREED else None


def published_failed(system: str | None, mix: str, freed_share: float, request: int) -> float | None:
    """The published share of failed requests of ``system``; None for another case than the published one."""
    return FAILED.values.get(system) if (mix, freed_share, request) == FAILED_AT else None


def _derived_spares(groups: int, most: float, slo: float) -> int | None:
    """The spares of the table for ``groups`` groups and a largest probability of failure; None for another case."""
    found = SPARES[groups].values.get(most) if groups in SPARES and slo == SPARES_SLO else None
    return None if found is None else int(found)


def _slices(rack: Allocator) -> list[Slice]:
    """The slices of a rack with more than one chip, which need a network."""
    return [a.slice for a in rack.allocations.values() if a.slice is not None and a.slice.size > 1]


def _mean(values: list[float], weights: list[int]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights) if weights else 0.0
