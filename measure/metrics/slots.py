"""What slots of fixed length lose of the bytes that are planned for them, by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from measure.metrics.point import Point
from railyard.timeline import Event

CAUSES = ("ask", "dark", "again", "told", "rest")
"""The request for the first slot; changes of circuits that take longer; bytes that are sent again; ranks that hear of a
slot late; all else, such as room that is too small for a write."""


def slot_losses(point: Point, measured: Iterable[Sequence[Event]], predicted: Sequence[Event]) -> Mapping[str, float]:
    """Shares of the bytes planned for the time of the predicted slots that measured ones lose, by cause.

    Of the first slots of each request that all ranks fill, since they still send when these circuits come back. Causes
    add up to 1 less the bytes sent over those planned for the measured time. Empty without such slots.
    """
    ideal, found = _rotations(predicted)[-1:], list[Counter[str]]()
    for events in measured if ideal else ():
        of_steps = point.counted(_rotations(events))
        found += filter(None, (_losses(rotation, ideal[0], events) for rotation in of_steps))
    return {cause: sum(losses[cause] for losses in found) / len(found) for cause in CAUSES if found}


def _rotations(events: Iterable[Event]) -> list[list[Event]]:
    """The slots of each request of a group, after the ``wait`` of the rank that asked last."""
    found: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.t):
        if event.kind == "wait":
            found[event["group"], event["index"]] = [event]
        elif event.kind == "slot" and event.end is not None:
            found[event["group"], event["index"]].append(event)
    return [of_request for of_request in found.values() if len(of_request) > 1]


def _losses(rotation: Sequence[Event], ideal: Sequence[Event], events: Iterable[Event]) -> Counter[str]:
    (asked, *slots), cycle = rotation, len({str(slot["pairs"]) for slot in rotation[1:]})
    sent: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "sent_in_slot" and event["planned"] and asked.t < event.t < _end(slots[-1]):
            sent[event["slot"]].append(event)
    last = {(e["rank"], number % cycle): number for number in sorted(sent) for e in sent[number] if e["bytes"]}
    count = 0
    while count < len(ideal) - 1 and all(
        last.get((e["rank"], count % cycle), 0) > count for e in sent[count] or [asked]
    ):
        count += 1
    if not count:
        return Counter()
    took_s, ideal_s = (_end(one[count]) - one[0].t for one in (rotation, ideal))
    asked_s, ideal_asked_s = (one[1].t - one[0].t for one in (rotation, ideal))
    late_s = asked_s - ideal_asked_s
    lost = Counter({"ask": late_s / took_s, "dark": (took_s - ideal_s - late_s) / took_s})
    full = [event for number in range(count) for event in sent[number]]
    per_byte = ideal_s / took_s / sum(event["planned"] for event in full)
    for event in full:
        missing = event["planned"] - event["bytes"]
        slot_s = _end(slots[event["slot"]]) - event.t
        told = 0.0 if event["again"] else max(0.0, min(missing, event["late_s"] / slot_s * event["planned"]))
        lost["told"] += told * per_byte
        lost["again" if event["again"] else "rest"] += (missing - told) * per_byte
    return lost


def _end(event: Event) -> float:
    return event.t if event.end is None else event.end
