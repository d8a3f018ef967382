"""Ranks that wait for one another for ever, as they do when they disagree about the next call: decided from reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from railyard.digits import spans
from workloads.pytorch.trace import CallKind

STEADY = 2
"""Reports of the same wait after which it counts: the first may cross the end of the wait."""
OWN_BYTES: tuple[CallKind, ...] = ("all_to_all", "gather", "scatter", "all_gather", "reduce_scatter")
"""Kinds in which the members may give buffers of unequal sizes."""


@dataclass(frozen=True)
class Awaited:
    """The call that a rank waits for: its ``number`` in the rank's script, and its ``place`` among those of a channel.

    A channel is a group, or one direction between two members; ``needs`` is that on which the others (``ranks``, for
    a message the two alone) must make a call too. The making of groups is a call of kind "new_group".
    """

    number: int
    kind: CallKind | str
    ranks: tuple[int, ...]
    bytes: int
    needs: str
    place: int

    def __str__(self) -> str:
        if self.number < 0:
            return self.kind
        return f"call {self.number}, {self.kind} of {self.bytes:,} bytes over ranks {spans(sorted(self.ranks))}"


@dataclass
class RankReport:
    """The last report of a rank: the call that it waits for (None: it runs), and its calls by channel."""

    awaited: Awaited | None = None
    made: Mapping[str, int] = field(default_factory=dict)
    times: int = 0
    ended: bool = False

    def hear(self, awaited: Awaited | None, made: Mapping[str, int]) -> None:
        self.times = self.times + 1 if awaited is not None and awaited == self.awaited else 1
        self.awaited, self.made = awaited, made

    @property
    def stands(self) -> bool:
        return self.ended or (self.awaited is not None and self.times >= STEADY)


def _blocks(report: RankReport, awaited: Awaited) -> bool:
    """Whether a rank that stands has not made the call of its own for which another one waits."""
    own = report.awaited
    if report.made.get(awaited.needs, 0) < awaited.place:
        return True
    if own is None or (own.needs, own.place) != (awaited.needs, awaited.place):
        return False
    return own.kind != awaited.kind or (own.bytes != awaited.bytes and own.kind not in OWN_BYTES)


def standstill(reports: Mapping[int, RankReport]) -> str | None:
    """A sentence about two ranks that cannot go on; None as long as one for which the others wait still runs."""
    standing = {rank for rank, report in reports.items() if report.stands}
    blockers: dict[int, int] = {}
    before = -1
    while len(standing) != before:
        before = len(standing)
        for rank in sorted(standing):
            awaited = reports[rank].awaited
            if reports[rank].ended or awaited is None:
                continue
            others = (other for other in awaited.ranks if other != rank and other in standing)
            blocker = next((other for other in others if _blocks(reports[other], awaited)), None)
            if blocker is None:
                standing.discard(rank)
            else:
                blockers[rank] = blocker
    for rank in sorted(standing):
        if not reports[rank].ended:
            other = blockers[rank]
            place = "has ended its script" if reports[other].ended else f"is in {reports[other].awaited}"
            return f"rank {rank} is in {reports[rank].awaited}; rank {other} {place}, so neither can go on"
    return None
