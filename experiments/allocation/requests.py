"""Requests for slices in racks that are in use: of whom they are asked, how many, and what becomes of them.

MORPHLUX (arXiv 2508.03674 v3, section 7.2) allocates "until available TPUs are exhausted". This can be read in two ways
(``Protocol``), which the study ``protocols`` compares with what it published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from controllers.allocation.allocator import Allocation
from experiments.allocation.cluster import Cluster
from experiments.allocation.egress import static_share
from experiments.allocation.row import SYSTEMS, AllocationRow
from experiments.allocation.settings import Protocol

REASONS = ("shape", "fibres", "time")
"""Reasons of a refusal by a rack with enough free chips."""


@dataclass
class Outcomes:
    """What became of requests: ``requests`` in all, the slices ``served``, and counts by kind or reason.

    ``egress`` is the sum over all served slices of chips x the share of a chip's egress that the slice can use.
    """

    requests: int = 0
    served: int = 0
    chips: int = 0
    egress: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=lambda: {"fragmented": [], "refused": []})

    @property
    def failed(self) -> int:
        """The requests without a slice."""
        return self.requests - self.served


def ask(racks: Cluster, sizes: Sequence[int], protocol: Protocol, random: Random, *, photonic: bool) -> Outcomes:
    """Request slices of ``sizes`` chips, drawn evenly, in copies of the ``racks`` of a cluster, until chips run out.

    ``per-rack``: every rack is asked for as many chips as it has free. ``cluster``: the cluster is asked for as many
    chips as are free in all of its racks, and the first rack that has a slice serves the request; a slice lies within
    one rack in either case.
    """
    racks = [rack.copy(photonic=photonic) for rack in racks]
    found = Outcomes()
    for group in [[rack] for rack in racks] if protocol == "per-rack" else [racks]:
        for number, chips in enumerate(drawn(sum(rack.free.bit_count() for rack in group), sizes, random)):
            _request(group, chips, f"request{number}", found)
    return found


def drawn(free: int, sizes: Sequence[int], random: Random) -> list[int]:
    """Sizes drawn evenly of those that do not exceed the ``free`` chips left, until none is left that does not."""
    found = []
    while fitting := [size for size in sizes if size <= free]:
        found.append(random.choice(fitting))
        free -= found[-1]
    return found


def _request(racks: Cluster, chips: int, name: str, found: Outcomes) -> None:
    found.requests += 1
    reason = "chips"
    for rack in racks:
        answer = rack.allocate(chips, name)
        if isinstance(answer, Allocation):
            found.served += 1
            found.chips += chips
            found.counts[answer.kind] += 1
            if answer.kind == "fragmented":
                found.times["fragmented"].append(answer.took_s)
                bundle = min(rack.fibres, rack.torus.chips_per_server)
                found.counts["thin"] += min((circuits for _, circuits in answer.paths), default=bundle) < bundle
            fixed = answer.slice if not rack.photonic and chips > 1 else None
            found.egress += chips * (1.0 if fixed is None else static_share(rack.torus, fixed.extents))
            return
        if answer.reason in REASONS:
            reason = answer.reason
            found.times["refused"].append(answer.took_s)
    found.counts[reason] += 1


# ---- rows ----------------------------------------------------------------------------------------------------------


def request_rows(
    clusters: Sequence[Cluster], sizes: Sequence[int], protocol: Protocol, seed: int, **labels: Any
) -> tuple[list[AllocationRow], list[Outcomes]]:
    """A row for each system with medians over ``clusters``, and all outcomes; ``labels`` are more fields of the rows.

    Both systems get the same requests in a cluster, as far as they are asked.
    """
    found = {
        system: [
            ask(racks, sizes, protocol, Random(f"{seed} {number} requests"), photonic=system == "morphlux")
            for number, racks in enumerate(clusters)
        ]
        for system in SYSTEMS
    }
    racks = [rack for cluster in clusters for rack in cluster]
    rows = []
    for system, outcomes in found.items():
        row = AllocationRow(
            system=system,
            protocol=protocol,
            asked=",".join(map(str, sizes)),
            chips=max(sizes),
            racks=len(racks),
            racks_with_room=sum(rack.free.bit_count() >= max(sizes) for rack in racks),
            requests=sum(each.requests for each in outcomes),
            failed=sum(each.failed for each in outcomes),
            failed_for_time=sum(each.counts["time"] for each in outcomes),
            fragmented=sum(each.counts["fragmented"] for each in outcomes),
            thin=sum(each.counts["thin"] for each in outcomes),
            **labels,
        )
        row.sample("failed_share", [each.failed / each.requests if each.requests else None for each in outcomes])
        if system == "morphlux":
            pairs = list(zip(outcomes, found["contiguous"], strict=True))
            row.sample("served_ratio", [_ratio(mine.served, base.served) for mine, base in pairs])
            row.sample("chips_ratio", [_ratio(mine.chips, base.chips) for mine, base in pairs])
            row.sample("egress_ratio", [_ratio(mine.egress, base.egress) for mine, base in pairs])
            row.sample("pooled_ratio", [_ratio(base.requests, base.served) for _, base in pairs])
        rows.append(row)
    return rows, [each for outcomes in found.values() for each in outcomes]


def _ratio(value: float, base: float) -> float | None:
    return value / base if base else None
