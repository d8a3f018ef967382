"""The records that a run has acknowledged by writing them into its results folder, and what is there in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.faults.stage import RUNNING, read
from measure.results.results import EVENTS, SUMMARY, Results
from railyard.errors import RailyardError
from railyard.reading import files_below

FLUSH_S = 1.0
"""Events are in the results folder so long after they happened, also where the run is killed."""
_MARGIN_S = 1.0
"""The longest time between two events of an agent of a victim, and a busy machine."""


@dataclass(frozen=True)
class Records:
    """Records of a results folder: rows of its summary, and lines of events of agents and samplers."""

    rows: Sequence[Mapping[str, Any]]
    lines: Counter[bytes]

    @staticmethod
    def of(out: Path) -> Records:
        """The complete records in a folder now; events are read before the file into which they are merged."""
        lines: list[bytes] = []
        of_points = (path for path in files_below(out / RUNNING, ".jsonl") if path.parent != out / RUNNING)
        for path in [*of_points, out / EVENTS]:
            lines += [line for line in read(path).splitlines(keepends=True) if line.endswith(b"\n")]
        try:
            rows = json.loads(read(out / SUMMARY) or "[]")
        except ValueError:
            rows = []
        return Records(rows, Counter(lines))

    def lost_in(self, later: Records) -> int:
        """How many of these records are not in the ``later`` ones."""
        rows = sum(row not in later.rows for row in self.rows)
        return rows + len(self.lines.keys() - later.lines.keys())

    def newest(self) -> dict[int, float]:
        """When the newest event of each agent was over, by rank."""
        found: dict[int, float] = {}
        for line in self.lines:
            event = json.loads(line)
            if event["source"] == "agent":
                rank = int(event["rank"])
                found[rank] = max(found.get(rank, 0.0), event.get("end") or event["t"])
        return found

    def late(self, at: float) -> int:
        """The number of agents at work at ``at`` whose events of the time before are missing."""
        return sum(end < at - FLUSH_S - _MARGIN_S for end in self.newest().values())


def checkpoints(out: Path) -> set[str]:
    """The complete checkpoints in a results folder, relative to it."""
    return {str(path.relative_to(out)) for path in files_below(out) if path.name.startswith("checkpoint-")}


def point_times(events: Sequence[Any]) -> Iterator[tuple[float, float]]:
    """Start and end of each measured point, in order."""
    points = [event for event in events if event.source == "run" and event.kind == "point"]
    return ((point.t, point.end or point.t) for point in sorted(points, key=lambda event: event["point"]))


def reading(out: Path) -> dict[str, Any]:
    """What Railyard reads in a results folder, as fields of ``expectation.Outcome``."""
    if not (out / "manifest.json").exists():
        return {}
    try:
        results = Results.open(out)
        manifest, rows, events = results.manifest(), results.rows(), results.events()
    except (RailyardError, OSError, ValueError, KeyError) as error:
        return {"has_results": True, "unreadable": f"{type(error).__name__}: {error}"}
    return {
        "has_results": True,
        "rows": rows,
        "points": tuple(point_times(events)),
        "planned": manifest.get("planned"),
        "ended": manifest.get("ended"),
    }
