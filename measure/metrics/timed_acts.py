"""The verdict of a point in which a timetable acted on the fabric. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from measure.metrics.checks import Check, Limits, not_judged
from measure.metrics.quantiles import quantiles
from railyard.timeline import Event

TIMETABLE = "timetable"
"""Name of the check that all acts were done; only points with a timetable have it."""
_EXPLAINED = frozenset(("link rate", "drops", "retransmissions", "step spread", "model"))
"""Checks of results that an act may explain, whatever they are."""


def timetable_checks(events: Sequence[Event], limits: Limits | None = None) -> tuple[Check, ...]:
    """Checks that all acts of a timetable were done, and in time; none without a timetable."""
    undone, done = ([e for e in events if e.source == "run" and e.kind == kind] for kind in ("undone", "act"))
    if not undone and not done:
        return ()
    limit, late = (limits or Limits()).act_s, quantiles(e["late_s"] for e in done)
    says = f"{len(undone)} acts of the timetable were not done"
    says += f", the first '{undone[0]['act']}', as {undone[0]['reason']}" if undone else ""
    every = Check(TIMETABLE, len(undone), 0, "acts", not undone, says)
    if late is None:
        return (every,)
    longest = max(done, key=lambda e: e.seconds)
    says = f"acts of the timetable began {late.p99 * 1e3:.3g} ms of wall-clock time late at the p99 (limit "
    says += f"{limit * 1e3:g} ms), {late.high * 1e3:.3g} ms at worst, and took {longest.seconds * 1e3:.3g} ms at most "
    says += f"({longest['act']})"
    return every, Check("lateness of the timetable", late.p99, limit, "s", late.p99 <= limit, says)


def with_timetable(checks: tuple[Check, ...], events: Sequence[Event], limits: Limits) -> tuple[Check, ...]:
    """``checks`` with those of the timetable, if there was one: what acts may explain is then not judged."""
    own, why = timetable_checks(events, limits), "not predicted, as the model does not know what the timetable did"
    if not own:
        return checks
    unjudged = (not_judged(c.name, c.limit, c.unit, why, c.value) if c.name in _EXPLAINED else c for c in checks)
    return (*unjudged, *own)
