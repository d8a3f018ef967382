"""What a timetable did in a point, and whether it did it in time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from measure.metrics.checks import Check, Limits
from measure.metrics.quantiles import quantiles
from railyard.timeline import Event

TIMETABLE = "timetable"
"""Name of the check that all acts were done; only points with a timetable have it."""


def acted(events: Iterable[Event]) -> bool:
    """Whether a timetable did something, or was to do it."""
    return any(e.source == "run" and e.kind in ("act", "undone") for e in events)


def timetable_checks(events: Sequence[Event], limits: Limits | None = None) -> list[Check]:
    """Checks that all acts of a timetable were done, and in time; none without a timetable."""
    if not acted(events):
        return []
    limit = (limits or Limits()).act_s
    undone = [e for e in events if e.source == "run" and e.kind == "undone"]
    late = quantiles(e["late_s"] for e in events if e.source == "run" and e.kind == "act")
    says = f"{len(undone)} acts of the timetable were not done" if undone else "the timetable was done"
    says += f", the first '{undone[0]['act']}', as {undone[0]['reason']}" if undone else ""
    found = [Check(TIMETABLE, len(undone), 0, "acts", not undone, says)]
    if late is not None:
        says = f"acts of the timetable were {late.p99 * 1e3:.3g} ms of wall-clock time late at the p99"
        says += f" (limit {limit * 1e3:g} ms), {late.high * 1e3:.3g} ms at worst"
        found.append(Check("lateness of the timetable", late.p99, limit, "s", late.p99 <= limit, says))
    return found
