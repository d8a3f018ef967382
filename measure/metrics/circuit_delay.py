"""The delay of new circuits as a job sees it: from the last member's request to the first payload, in four parts."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from measure.metrics.point import Point
from measure.metrics.stall import Dark, read_darks
from railyard.timeline import Event


@dataclass(frozen=True, order=True)
class CircuitDelay:
    """One reconfiguration that a group waited for, in wall-clock seconds; the four parts sum to ``whole``.

    - ``control``: from the request to dark ports, and from circuits that are up to the acknowledgement;
    - ``dark``: the switch changes its circuits;
    - ``recovery``: transceivers and NICs find each other again, as configured;
    - ``first_byte``: from the acknowledgement to the first byte that a member receives.
    """

    whole: float
    control: float
    dark: float
    recovery: float
    first_byte: float


def circuit_delays(point: Point, events: Sequence[Event]) -> list[CircuitDelay]:
    """The delays of a point, shortest first: of reconfigurations until whose acknowledgement a member waited.

    Where circuits were asked for in advance and nobody waited, the first payload tells when the job was ready, and not
    when the circuits were; and in a step with a stale profile it comes over others. A request whose circuits took
    several reconfigurations counts with the last one.
    """
    acks, waits = defaultdict[str, list[tuple[float, int]]](list), defaultdict[tuple[str, int], list[Event]](list)
    first_bytes: dict[tuple[int, int, int], float] = {}
    for e in events:
        if (e.source, e.kind) == ("controller", "ack"):
            acks[e["group"]].append((e.t, e["index"]))
        elif (e.source, e.kind) == ("agent", "wait") and e["step"] != point.stale_step:
            waits[e["group"], e["index"]].append(e)
        elif (e.source, e.kind) == ("agent", "transfer"):
            key = e["rank"], e["step"], e["op"]
            first_bytes[key] = min(e.t, first_bytes.get(key, e.t))
    last: dict[tuple[str, int], tuple[Dark, float, float]] = {}
    for dark in read_darks(point, events):
        answers = acks[dark.group]
        place = bisect_left(answers, (dark.end, -1))
        if dark.asked is not None and place < len(answers):
            ack, index = answers[place]
            last[dark.group, index] = dark, dark.asked, ack
    found = []
    for request, (dark, asked, ack) in last.items():
        waiting = [e for e in waits[request] if e.t < ack <= (e.end or e.t)]
        received = [first_bytes[key] for e in waiting if (key := (e["rank"], e["step"], e["op"])) in first_bytes]
        if received:
            found.append(_delay(point, dark, asked, ack, min(received)))
    return sorted(found)


def _delay(point: Point, dark: Dark, asked: float, ack: float, first_byte: float) -> CircuitDelay:
    recovery = min(point.scale.emulated_s(point.link_recovery_s), dark.end - dark.t)
    return CircuitDelay(
        whole=first_byte - asked,
        control=dark.t - asked + ack - dark.end,
        dark=dark.end - dark.t - recovery,
        recovery=recovery,
        first_byte=first_byte - ack,
    )
