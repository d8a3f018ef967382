"""The records that a run has acknowledged by writing them into its results folder, and what is there in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.results.results import SUMMARY, Results
from railyard.errors import RailyardError
from railyard.point_folder import EVENTS, POINTS, PREDICTED
from railyard.reading import files_below
from tests.campaign.stage import read

FLUSH_S = 1.0
"""Events are in the results folder so long after they happened, also where the run is killed."""
_MARGIN_S = 1.0
"""The longest time between two events of an agent of a victim, and a busy machine."""


@dataclass(frozen=True)
class Records:
    """Rows of the summary in a results folder, lines of events of its points, and names of checkpoints."""

    rows: Sequence[Mapping[str, Any]]
    lines: frozenset[bytes]
    checkpoints: frozenset[str]

    @staticmethod
    def of(out: Path) -> Records:
        """The complete records in a folder now; events are read before the file into which they are merged."""
        lines: set[bytes] = set()
        logs = [path for path in files_below(out / POINTS, ".jsonl") if path.name not in (PREDICTED, EVENTS)]
        for path in [*logs, *out.glob(f"{POINTS}/*/{EVENTS}")]:
            lines |= {line for line in read(path).splitlines(keepends=True) if line.endswith(b"\n")}
        try:
            rows = json.loads(read(out / SUMMARY) or "[]")
        except ValueError:
            rows = []
        kept = {str(path.relative_to(out)) for path in files_below(out) if path.name.startswith("checkpoint-")}
        return Records(rows, frozenset(lines), frozenset(kept))

    def lost_in(self, later: Records) -> int:
        """How many of these rows and events are not in the ``later`` ones."""
        return sum(row not in later.rows for row in self.rows) + len(self.lines - later.lines)

    def late(self, at: float) -> int:
        """The number of agents at work at ``at`` whose events of the time before are missing."""
        newest: dict[int, float] = {}
        for event in map(json.loads, self.lines):
            if event["source"] == "agent":
                newest[event["rank"]] = max(newest.get(event["rank"], 0.0), event.get("end") or event["t"])
        return sum(end < at - FLUSH_S - _MARGIN_S for end in newest.values())


def reading(out: Path) -> dict[str, Any]:
    """What Railyard reads in a results folder, as fields of ``expectation.Outcome``."""
    if not (out / "manifest.json").exists():
        return {}
    try:
        results = Results.open(out)
        manifest, rows, events = results.manifest(), results.rows(), results.events()
    except (RailyardError, OSError, ValueError, KeyError) as error:
        return {"has_results": True, "unreadable": f"{type(error).__name__}: {error}"}
    points = [event for event in events if event.source == "run" and event.kind == "point"]
    return {
        "has_results": True,
        "rows": rows,
        "points": [(point.t, point.end or point.t) for point in sorted(points, key=lambda event: event["point"])],
        "planned": manifest.get("planned"),
        "ended": manifest.get("ended"),
    }
