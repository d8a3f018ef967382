"""Events of a fabric on several machines: those of each, and checks that judge each machine by itself. Pure.

The samples of another machine have a field ``machine``; those of a run on one machine have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec

from measure.metrics.checks import Check
from railyard.timeline import Event

P = ParamSpec("P")

_SAMPLES = frozenset(("cpu", "sampled", "forwarding"))


def with_machine(events: Iterable[Event], name: str) -> list[Event]:
    """``events`` of machine ``name``, its samples with the field ``machine``."""
    return [
        replace(e, fields={**e.fields, "machine": name}) if e.source == "link" and e.kind in _SAMPLES else e
        for e in events
    ]


def machine_names(events: Iterable[Event]) -> tuple[str | None, ...]:
    """The machines that ``events`` are of, by name; None is the one whose events have no name of a machine."""
    found = {e.get("machine") for e in events if e.source == "link" and (e.kind in _SAMPLES or e.kind == "clock")}
    return tuple(sorted(found or {None}, key=lambda name: name or ""))


def by_machine(
    check: Callable[Concatenate[Sequence[Event], P], Check],
) -> Callable[Concatenate[Iterable[Event], P], Check]:
    """``check`` of the events of each machine by itself: the worst of the results, which names its machine."""

    @wraps(check)
    def worst(events: Iterable[Event], /, *args: P.args, **kwargs: P.kwargs) -> Check:
        events = list(events)
        names = machine_names(events)
        if names == (None,):
            return check(events, *args, **kwargs)
        of_links = [e for e in events if e.source == "link"]
        found = [(name, check([e for e in of_links if e.get("machine") == name], *args, **kwargs)) for name in names]
        return max((on_machine(name, each) for name, each in found), key=_badness)

    return worst


def on_machine(name: str | None, check: Check) -> Check:
    """``check`` with a sentence that names the machine; unchanged for None."""
    return check if name is None else replace(check, says=f"on {name} {check.says}")


def _badness(check: Check) -> tuple[bool, bool, float]:
    """What is worse is greater: failed, then not measured, then nearer to its limit or further beyond."""
    return not check.ok, not check.ok and check.value is None, (check.value or 0.0) / (check.limit or 1.0)
