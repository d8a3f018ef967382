"""Runs the studies of an allocation experiment; each study gives rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, median

from controllers.allocation.allocator import Allocation, Allocator
from controllers.policies.spares import draw_probabilities, spares_needed
from experiments.allocation.cluster import Cluster, filled, freed
from experiments.allocation.egress import UsableRule, static_share, steered_shares
from experiments.allocation.failures import overprovision_rows
from experiments.allocation.row import SYSTEMS, AllocationRow
from experiments.allocation.settings import MIXES, STUDIES, AllocationSettings
from measure.published import published
from topos.slices import Slice

INDEX, FAILED = published("morphlux-index"), published("morphlux-failed")
INDEX_FREED = 0.2
"""Share of freed chips of the published index."""
FAILED_AT = ("half-rack", 0.3, 32)
"""Mix, share of freed chips and size of a request of the published share of failed requests."""
GAIN_HALF = published("morphlux-gain-half")
"""The gain that half of the racks exceed, in training throughput; another quantity than the egress of a chip."""
SOLVER = published("morphlux-solver")
SPARES = {64: published("spares-of-chips"), 16: published("spares-of-servers")}
"""Spares K by number of groups."""
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
        for number in range(self.experiment.clusters):
            if (mix, number) not in self._filled:
                self._filled[mix, number] = filled(self.experiment, mix, number)
            yield self._filled[mix, number]

    def left(self, mix: str, share: float) -> Iterator[Cluster]:
        """The clusters with ``share`` of their chips freed."""
        for number, racks in enumerate(self.clusters(mix)):
            yield freed(racks, share, Random(f"{self.experiment.seed} {number} free {share:g}"))

    # ---- fragmentation and requests --------------------------------------------------------------------------------

    def fragmentation(self) -> Iterator[AllocationRow]:
        """Fragmentation index of every rack, with contiguous slices only and with the photonic fabric."""
        for share in self.experiment.freed:
            racks = [rack for cluster in self.left(self.experiment.mix, share) for rack in cluster]
            for system in SYSTEMS:
                index = [rack.copy(photonic=system == "morphlux").fragmentation() for rack in racks]
                yield AllocationRow(
                    mix=self.experiment.mix,
                    freed=share,
                    free_share=fmean(rack.free.bit_count() / rack.torus.chips for rack in racks),
                    system=system,
                    index_max=max(index),
                    index_median=median(index),
                    index_mean=fmean(index),
                    paper_index_max=published_index(system, share),
                    per_rack=index,
                )

    def requests(self) -> Iterator[AllocationRow]:
        """Requests for large slices, in every rack as many as its free chips would suffice for."""
        for share in self.experiment.freed:
            yield from self._requests(self.experiment.mix, share)

    def mixes(self) -> Iterator[AllocationRow]:
        """Requests for large slices for every mix that fits the rack, at the largest freed share."""
        for mix in self._mixes():
            yield from self._requests(mix, max(self.experiment.freed))

    def _requests(self, mix: str, share: float) -> Iterator[AllocationRow]:
        racks = [rack for cluster in self.left(mix, share) for rack in cluster]
        requests = sum(rack.free.bit_count() // self.experiment.request for rack in racks)
        index = [rack.fragmentation() for rack in racks]
        for system in SYSTEMS:
            outcomes = self._request_slices(racks, photonic=system == "morphlux")
            failed = sum(outcomes[reason] for reason in ("shape", "fibres", "time"))
            yield AllocationRow(
                mix=mix,
                freed=share,
                system=system,
                chips=self.experiment.request,
                racks=len(racks),
                racks_with_room=sum(rack.free.bit_count() >= self.experiment.request for rack in racks),
                requests=requests,
                failed=failed,
                failed_share=failed / requests if requests else None,
                failed_for_time=outcomes["time"],
                fragmented=outcomes["fragmented"],
                thin=outcomes["thin"],
                paper_failed_share=published_failed(system, mix, share, self.experiment.request),
                contiguous_index_max=max(index),
            )

    def _request_slices(self, racks: Cluster, *, photonic: bool) -> Counter[str]:
        """Request slices in copies of ``racks``; returns counts by kind of allocation or reason of refusal."""
        outcomes: Counter[str] = Counter()
        for rack in (rack.copy(photonic=photonic) for rack in racks):
            for number in range(rack.free.bit_count() // self.experiment.request):
                found = rack.allocate(self.experiment.request, f"request{number}")
                if not isinstance(found, Allocation):
                    outcomes[found.reason] += 1
                    self._times.setdefault("refused", []).append(found.took_s)
                    continue
                outcomes[found.kind] += 1
                if found.kind == "fragmented":
                    self._times.setdefault("fragmented", []).append(found.took_s)
                    bundle = min(rack.fibres, rack.torus.chips_per_server)
                    outcomes["thin"] += min((circuits for _, circuits in found.paths), default=bundle) < bundle
        return outcomes

    # ---- the others --------------------------------------------------------------------------------------------------

    def bandwidth(self) -> Iterator[AllocationRow]:
        """Gain of every rack as a share of its chips' egress, without and with the limit of fibres.

        Without the limit is MORPHLUX's count.
        """
        rules: tuple[UsableRule, ...] = ("ring", "link")
        for mix in (self.experiment.mix, *(other for other in self._mixes() if other != self.experiment.mix)):
            slices = [_slices(rack) for cluster in self.clusters(mix) for rack in cluster]
            whole = [[1.0] * len(here) for here in slices]
            for rule in rules if mix == self.experiment.mix else rules[:1]:
                yield self._gains(mix, rule, slices, whole, counted=False)
                if mix == self.experiment.mix:
                    yield self._gains(mix, rule, slices, self._steered(slices), counted=True)

    def _steered(self, slices: list[list[Slice]]) -> list[list[float]]:
        torus, fibres = self.experiment.geometry, self.experiment.fibres
        return [[share or 0.0 for share in steered_shares(torus, here, fibres)] for here in slices]

    def _gains(
        self, mix: str, rule: UsableRule, slices: list[list[Slice]], steered: list[list[float]], *, counted: bool
    ) -> AllocationRow:
        torus = self.experiment.geometry
        gains, before = [], []
        for here, after in zip(slices, steered, strict=True):
            static = [static_share(torus, each.extents, rule) for each in here]
            chips = [each.size for each in here]
            gains.append(_mean([max(b - s, 0.0) for b, s in zip(after, static, strict=True)], chips))
            before.append(_mean(static, chips))
        return AllocationRow(
            mix=mix,
            rule=rule,
            fibres_counted=counted,
            racks=len(gains),
            static_share_mean=fmean(before),
            gain_median=median(gains),
            gain_max=max(gains),
            above_30_percent=fmean(gain > GAIN_HALF.value for gain in gains),
            per_rack=gains,
        )

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
                for cluster in self.left(self.experiment.mix, share):
                    self._request_slices(cluster, photonic=True)
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


def published_failed(system: str, mix: str, freed_share: float, request: int) -> float | None:
    """The published share of failed requests of ``system``; None for another case than the published one."""
    return FAILED.values[system] if (mix, freed_share, request) == FAILED_AT else None


def _derived_spares(groups: int, most: float, slo: float) -> int | None:
    """The spares of the table for ``groups`` groups and a largest probability of failure; None for another case."""
    found = SPARES[groups].values.get(most) if groups in SPARES and slo == SPARES_SLO else None
    return None if found is None else int(found)


def _slices(rack: Allocator) -> list[Slice]:
    """The slices of a rack with more than one chip, which need a network."""
    return [a.slice for a in rack.allocations.values() if a.slice is not None and a.slice.size > 1]


def _mean(values: list[float], weights: list[int]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights) if weights else 0.0
