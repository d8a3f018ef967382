"""In-band dark time: computes from a train of probes how long a circuit was dark. Pure.

A dark port drops probes; the first one to be received again shows that the circuit is up. The dark time is measured by
send times, so queues on the path do not affect it: the error is at most one interval of the train on each side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class DarkTime:
    """The dark time that a train measured. Times are send times of probes, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no probe was lost; ``up_t`` is None (and ``seconds`` infinite) if no
    circuit came up within the train. ``lost`` counts the probes of the dark interval, ``strays`` those lost at other
    times, ``misdelivered`` those received at the old receiver after the new one had received a probe, or at both.
    """

    first_lost_t: float | None
    up_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


def dark_time(sent: Sequence[float], received: Mapping[str, Iterable[int]], old: str = "", new: str = "") -> DarkTime:
    """The dark interval of a train: the longest sequence of consecutive probes that no receiver got.

    ``sent[k]`` is the send time of probe k in monotonic seconds, ``received`` the numbers of the probes that each
    receiver got. ``old`` and ``new`` name the receivers before and after the change. If they are equal or empty (the
    circuit returns to the same port), no probe counts as misdelivered.
    """
    at = {name: frozenset(numbers) for name, numbers in received.items()}
    arrived = frozenset().union(*at.values())
    lost = [number for number in range(len(sent)) if number not in arrived]
    gaps = [[number for _, number in gap] for _, gap in groupby(enumerate(lost), key=lambda pair: pair[1] - pair[0])]
    longest = max(gaps, key=len, default=[])
    wrong = 0
    if old and new and old != new:
        moved = min(at.get(new, ()), default=len(sent))
        wrong = sum(number >= moved for number in at.get(old, ()))
    if not longest:
        return DarkTime(None, None, 0.0, 0, 0, wrong)
    began, after = sent[longest[0]], longest[-1] + 1
    up_t = sent[after] if after < len(sent) else None
    seconds = math.inf if up_t is None else up_t - began
    return DarkTime(began, up_t, seconds, len(longest), len(lost) - len(longest), wrong)
