"""The row of an allocation study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from measure.metrics.estimate import estimate
from measure.results.row import ResultRow

SYSTEMS = {"contiguous": "contiguous only", "morphlux": "MORPHLUX"}
"""The systems that are compared, with their names in tables and figures."""


@dataclass(kw_only=True)
class AllocationRow(ResultRow):
    """One result of one study; fields of other studies are empty. Columns ``paper_..`` are MORPHLUX's."""

    given: ClassVar[frozenset[str]] = frozenset({"freed", "racks", "chips", "failures", "slo"})

    study: Annotated[str, "study of the row"] = ""
    seed: Annotated[int, "seed of all draws"] = 1
    mix: Annotated[str | None, "mix of slices that fill the racks"] = None
    system: Annotated[str | None, "contiguous, morphlux, or a way of recovery"] = None
    freed: Annotated[float | None, "share of the chips that was to be released"] = None
    free_share: Annotated[float | None, "share of the chips that is free"] = None
    racks: Annotated[int | None, "number of racks"] = None
    index_median: Annotated[float | None, "fragmentation index of the racks, median"] = None
    index_mean: Annotated[float | None, "the same, mean"] = None
    index_max: Annotated[float | None, "the same, largest"] = None
    paper_index_max: Annotated[float | None, "index_max of MORPHLUX (morphlux-index)"] = None
    chips: Annotated[int | None, "size of a requested slice, in chips"] = None
    racks_with_room: Annotated[int | None, "racks with enough free chips for a request"] = None
    requests: Annotated[int | None, "requests"] = None
    failed: Annotated[int | None, "requests without a slice"] = None
    protocol: Annotated[str | None, "of whom requests are asked: per-rack or cluster"] = None
    asked: Annotated[str | None, "sizes of the requested slices, in chips, drawn evenly"] = None
    failed_share: Annotated[float | None, "share of the requests without a slice"] = None
    served_ratio: Annotated[float | None, "slices of morphlux / those of contiguous slices only"] = None
    chips_ratio: Annotated[float | None, "the same of the chips in these slices"] = None
    egress_ratio: Annotated[float | None, "the same of the egress that these chips can use"] = None
    pooled_ratio: Annotated[float | None, "requests / slices of contiguous slices only"] = None
    paper_served_ratio: Annotated[float | None, "served_ratio of MORPHLUX (morphlux-served)"] = None
    paper_throughput: Annotated[float | None, "the same of training throughput (morphlux-throughput)"] = None
    failed_for_time: Annotated[int | None, "requests whose search reached its time limit"] = None
    fragmented: Annotated[int | None, "requests met from fragments"] = None
    thin: Annotated[int | None, "of these, those with fewer circuits than fibres"] = None
    paper_failed_share: Annotated[float | None, "failed_share of MORPHLUX, for its mix (morphlux-failed)"] = None
    failures: Annotated[int | None, "dead chips in a rack"] = None
    chips_mean: Annotated[float | None, "chips out of use, mean of racks"] = None
    ratio_to_morphlux: Annotated[float | None, "the same over that of morphlux"] = None
    paper_ratio: Annotated[float | None, "ratio_to_morphlux of MORPHLUX, about (morphlux-overprovision)"] = None
    spliced_share: Annotated[float | None, "share of dead chips that a spare replaced"] = None
    fail: Annotated[str | None, "least and most probability that a unit has failed, in percent"] = None
    slo: Annotated[float | None, "probability with which failed chips find a spare"] = None
    spares: Annotated[float | None, "units in reserve: those of system, of a rack or (the last two) of the cluster"] = (
        None
    )
    paper_spares: Annotated[float | None, "spares of MORPHLUX (morphlux-spare-*)"] = None
    idle_share: Annotated[float | None, "chips in reserve as a share of the chips of the rack or cluster"] = None
    idle_ratio: Annotated[float | None, "chips of idle racks over those of spare servers"] = None
    per_rack: Annotated[Sequence[float], "index of every rack"] = ()
    repeats: Annotated[int, "clusters, each with other draws, that a field in samples is the median of"] = 1
    samples: Annotated[dict[str, list[float | None]], "value of each such field in each cluster"] = field(
        default_factory=dict
    )

    def sample(self, key: str, values: Sequence[float | None]) -> None:
        """Set field ``key`` to the median of its ``values`` in the clusters, and keep these in ``samples``."""
        found = estimate(values)
        setattr(self, key, found and found.median)
        self.samples[key], self.repeats = list(values), len(values)
