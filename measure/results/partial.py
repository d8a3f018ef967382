"""Whether a results folder holds all that its run was to measure, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from measure.results.row import Row
from railyard.timeline import Event

COMPLETE, STOPPED = "complete", "stopped: "
"""Values of the manifest's key ``ended``: it is written at the end of a run."""
PARTIAL = "PARTIAL"


def measured_in(row: Row) -> int:
    """The number of repeats in which a row was measured so far, also those that do not count."""
    return max((len(values) for values in row.get("samples", {}).values()), default=1)


def partial(manifest: Mapping[str, Any], rows: Iterable[Row], *, under_way: bool = False) -> str | None:
    """The sentence about the results of a run that has fewer than all its measurements; None if it has all.

    A measurement is that of one point in one repeat; ``rows`` have all of them (``measured_in``). ``under_way``: the
    run holds the lock of its folder.
    """
    measured = sum(map(measured_in, rows))
    ended, planned = manifest.get("ended"), manifest.get("planned")
    if ended == COMPLETE:
        if planned is None or measured >= planned:
            return None
        why = "the run ended by itself, and the summary lacks the others"
    elif ended is not None:
        why = f"stopped: {ended.removeprefix(STOPPED)}"
    elif under_way:
        why = "the run is still under way"
    else:
        why = "the run was killed, or could not write why it ended"
    repeats = manifest.get("experiment", {}).get("repeats", 1)
    what = "point" if repeats == 1 else "measurement"
    if planned is None:
        return f"{PARTIAL}: {measured} {what}{'' if measured == 1 else 's'}: {why}"
    of_points = "" if repeats == 1 else f" ({repeats} of each point)"
    return f"{PARTIAL} {measured} of {planned} {what}s{of_points}: {why}"


def cut_lines(events: Iterable[Event]) -> str | None:
    """The sentence about lines of the logs that are not readable; None if there are none."""
    count = sum(event["lines"] for event in events if event.kind == "cut")
    lines = "1 line of the logs is" if count == 1 else f"{count} lines of the logs are"
    return f"{lines} not readable, and left out" if count else None
