"""What happened at a moment, in one sentence: failures, what was done about them, and what somebody asked for.

The sentences have no full stop. Fields come from files that anybody may have changed: a field that is missing or of
another type never raises, and a long list is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railyard.timeline import Event

MOST_NAMED = 8
"""Ports, circuits and ranks that a sentence names; of more it says how many there are."""
MOST_CHARACTERS = 300
"""Longest sentence; what is longer ends in three dots."""


@dataclass(frozen=True)
class Mark:
    """The look of a kind of event on a time line: the ``kind`` of its mark, and its sentence.

    ``wanted`` says whether an event of the kind is a mark at all; all are if None.
    """

    kind: str
    sentence: Callable[[Event], str]
    wanted: Callable[[Event], bool] | None = None


def mark_kind(event: Event) -> str | None:
    """The kind of the mark of ``event`` on a time line (``MARK_KINDS``), or None if the event is no mark."""
    mark = MARKS.get((event.source, event.kind))
    if mark is None or (mark.wanted is not None and not mark.wanted(event)):
        return None
    return mark.kind


def says(event: Event) -> str:
    """``event`` as one sentence without a full stop; of an event that is no mark, its source and kind."""
    mark = MARKS.get((event.source, event.kind))
    try:
        said = mark.sentence(event) if mark is not None else f"{event.source} {event.kind}"
    except (LookupError, TypeError, ValueError, AttributeError):
        said = f"{event.source} {event.kind}, with fields that this version does not write"
    return said if len(said) <= MOST_CHARACTERS else f"{said[: MOST_CHARACTERS - 3]}..."


def _listed(things: Iterable[str], most: int = MOST_NAMED) -> str:
    """The things with commas; of more than ``most`` the first ones, and how many there are besides."""
    named = list(things)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


def _count(number: int, what: str, many: str = "") -> str:
    return f"{number} {what}" if number == 1 else f"{number} {many or what + 's'}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(map(str, ranks))}"


def _ports(ports: Sequence[int], rail: str) -> str:
    return f"port{'' if len(ports) == 1 else 's'} {_listed(map(str, ports))} of {rail}"


def _circuits(circuits: Sequence[Sequence[int]]) -> str:
    return _listed("-".join(str(port) for port in circuit) for circuit in circuits) or "no circuit"


def _of_job(event: Event) -> str:
    return f" of job {event['job']}" if event.get("job") else ""


def _fault(event: Event) -> str:
    what = str(event["what"])
    return f"rank {event['rank']}{_of_job(event)} is made to fail: {what}" if event["rank"] >= 0 else what


def _launch(event: Event) -> str:
    again = f" again (incarnation {event['incarnation']})" if event["incarnation"] else ""
    return f"job {event['job']} starts{again} on {_ranks(event['members'])}"


def _cut(event: Event) -> str:
    return f"{_count(event['lines'], 'line')} of a log not readable: cut short by a crash or a full disk, or changed"


def _lost(event: Event) -> str:
    return f"{_count(event['events'], 'event')} missing in a file before this moment"


def _wrong(event: Event) -> str:
    return f"rank {event['rank']} computed {_count(event['wrong'], 'wrong element')} in step {event['step']}"


def _refused(event: Event) -> str:
    group = str(event["group"])
    asked = group if group.startswith("rewiring ") else f"request of {group}"
    return f"the {asked} {'was refused' if _final(event) else 'has to wait'}: {event['reason']}"


def _final(event: Event) -> bool:
    """Whether a request was refused for good; otherwise it waits for other traffic to end, which is no mark."""
    return event.get("final", True) is not False


def _failed(event: Event) -> str:
    return f"rank {event['rank']}{_of_job(event)} failed: {event['cause']}"


def _replaced(event: Event) -> str:
    pairs = [f"rank {old} by rank {new}" for old, new in event["replacements"]]
    if len(pairs) == 1:
        said = pairs[0].replace(" by ", " was replaced by ")
    else:
        said = f"{_ranks(event['dead'])} failed, so these were replaced: {_listed(pairs)}"
    changed = _count(len(event["ports"]), "port") if event["ports"] else "no port"
    return f"{said}: {changed} changed, {_count(event['kept'], 'circuit')} kept"


def _stranded(event: Event) -> str:
    reason = event.get("reason") or f"no spare replaces {_ranks(event['dead'])}"
    return f"job {event['job']} cannot go on: {reason}"


def _port(event: Event) -> str:
    return f"{_ports([event['port']], event['rail'])} {'failed' if event['state'] == 'failed' else 'works again'}"


def _manual(event: Event) -> str:
    return f"somebody {_ACTS[event['what']](event)} over REST{_new_circuits(event)}"


def _new_circuits(event: Event) -> str:
    return f": {_circuits(event['circuits'])}" if event.get("circuits") is not None else ""


_ACTS: Mapping[str, Callable[[Event], str]] = {
    "rewire": lambda event: f"rewired {event['rail']}",
    "gates": lambda event: f"set the gates of {event['rail']}",
    "fail": lambda event: f"made {_ports(event['ports'], event['rail'])} fail",
    "restore": lambda event: f"repaired {_ports(event['ports'], event['rail'])}",
    "fail-chip": lambda event: f"reported rank {event['rank']} as failed",
}


def _left(event: Event) -> str:
    return f"{event['rail']} lost its connection to the controller; its circuits stay as they are"


def _recovered(event: Event) -> str:
    return f"{event['rail']} has all its flows again: it {event['problem']}"


def _dropped(event: Event) -> str:
    return f"{event['rail']} dropped {_count(event['packets'], 'packet')} while its ports were dark"


def _timeout(event: Event) -> str:
    return f"round {event['round']} of job {event['job']} starts again: the time of its {event['phase']} is over"


def _cleared(event: Event) -> str:
    count = _count(event["count"], "update")
    return f"{count} of round {event['round']} of job {event['job']} reached the root and no job"


def _gone(event: Event) -> str:
    return f"client {event['client']} left: {event['why']}"


def _push(event: Event) -> str:
    what = f"the update of client {event['client']} for round {event['round']} of job {event['job']}"
    return f"{what} was {event['outcome']}"


def _flush(event: Event) -> str:
    what = f"the sum of {_count(event['count'], 'update')} from leaf {event['leaf']}"
    return f"{what} for round {event['round']} of job {event['job']} was {event['outcome']}"


def _not_acknowledged(event: Event) -> bool:
    return event.get("outcome") not in (None, "acknowledged")


MARKS: Mapping[tuple[str, str], Mark] = {
    ("run", "fault"): Mark("fault", _fault),
    ("run", "act"): Mark("act", lambda event: f"by the timetable: {event['act']}"),
    ("run", "undone"): Mark("refused", lambda event: f"not done: {event['act']}, as {event['reason']}"),
    ("run", "left"): Mark("left", lambda event: str(event["what"])),
    ("run", "launch"): Mark("launch", _launch),
    ("run", "cut"): Mark("lost", _cut),
    ("run", "lost"): Mark("lost", _lost),
    ("agent", "verified"): Mark("wrong", _wrong, lambda event: bool(event.get("wrong"))),
    ("controller", "refused"): Mark("refused", _refused, _final),
    ("controller", "failed"): Mark("failed", _failed),
    ("controller", "replaced"): Mark("replaced", _replaced),
    ("controller", "stranded"): Mark("stranded", _stranded),
    ("controller", "port"): Mark("port", _port),
    ("controller", "manual"): Mark("manual", _manual),
    ("switch", "left"): Mark("left", _left),
    ("switch", "recovered"): Mark("recovered", _recovered),
    ("switch", "dropped"): Mark("lost", _dropped, lambda event: bool(event.get("packets"))),
    ("edge", "timeout"): Mark("refused", _timeout),
    ("edge", "cleared"): Mark("lost", _cleared),
    ("edge", "gone"): Mark("left", _gone),
    ("edge", "push"): Mark("refused", _push, _not_acknowledged),
    ("edge", "flush"): Mark("refused", _flush, _not_acknowledged),
}
"""The events that are marks on a time line, by source and kind."""
MARK_KINDS = tuple(dict.fromkeys(mark.kind for mark in MARKS.values()))
"""Kinds of marks; their looks are in ``measure.figures.looks``."""


def ranks_of(event: Event) -> list[int]:
    """The ranks that the mark of ``event`` is about, as far as its fields are numbers of ranks."""
    found: list[Any] = [event.get("rank"), *_sequence(event.get("members")), *_sequence(event.get("dead"))]
    found += [rank for pair in _sequence(event.get("replacements")) for rank in _sequence(pair)]
    return sorted({rank for rank in found if type(rank) is int and rank >= 0})


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
