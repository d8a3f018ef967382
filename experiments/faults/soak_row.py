"""The row of one point of a long run, and what is flat. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated

from measure.results.row import ResultRow, Row

WARM_UP = 100
"""Points after which a run must use no more of the machine."""
FLAT_SHARE = 0.05
FEW = 2
"""So many more open files, or processes, are those of a point under way: what is kept by each point is more."""
LEAST_POINTS = 4
"""Points of the shortest run that can be judged: two rows are after the warm-up, which is at most half of the run."""
WATCHED = ("main", "controller", "agent launcher", "ovs-vswitchd", "fast path")
"""Processes of a long run whose use of the machine is read after each point."""


@dataclass(kw_only=True)
class SoakRow(ResultRow):
    """What the processes of a long run use after one of its points."""

    point: Annotated[int, "number of the point"]
    descriptors: Annotated[Mapping[str, int], "open files, by process"] = field(default_factory=dict)
    memory_bytes: Annotated[Mapping[str, int], "memory that a process has for itself, by process"] = field(
        default_factory=dict
    )
    run_folder_bytes: Annotated[int, "files in the run's folder of the registry"] = 0
    processes: Annotated[int, "processes of the run"] = 0


@dataclass(frozen=True)
class Growth:
    """The use of one thing by one process: after the warm-up, and at the end.

    Each is the most over some points: the files that a point under way has open come and go, and so does the memory of
    the agent launcher, which is its own only while no agent shares it.
    """

    process: str
    what: str
    first: float
    last: float
    per_point: float

    @property
    def share(self) -> float:
        """By how much more is used at the end, as a share."""
        return self.last / self.first - 1 if self.first else float(self.last > 0)

    @property
    def flat(self) -> bool:
        """Whether the use has not grown by more than ``FLAT_SHARE``, or a number by more than ``FEW``."""
        few = self.what in ("descriptors", "processes") and self.last - self.first <= FEW
        return few or self.share <= FLAT_SHARE


def growths(rows: Sequence[Row]) -> list[Growth]:
    """What each process that was seen uses after the warm-up and at the end; empty for a run too short to tell."""
    rows = sorted(rows, key=lambda row: row["point"])
    warm = rows[min(WARM_UP, len(rows) // 2) :]
    if len(warm) < 2:
        return []
    found = []
    for what, process in product(("descriptors", "memory_bytes"), WATCHED):
        values = [(row["point"], row[what][process]) for row in warm if process in row[what]]
        if len(values) > 1:
            found.append(_growth(process, what, values))
    for what in ("run_folder_bytes", "processes"):
        found.append(_growth("run", what, [(row["point"], row[what]) for row in warm]))
    return found


def _growth(process: str, what: str, values: Sequence[tuple[int, float]]) -> Growth:
    some = max(1, len(values) // 20)
    first, last = (max(value for _, value in part) for part in (values[:some], values[-some:]))
    points = values[-1][0] - values[0][0]
    return Growth(process, what, first, last, (last - first) / points if points else 0.0)
