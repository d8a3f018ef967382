"""Whether one of the machines of a sweep is an outlier: its numbers against those of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

LEAST_REPEATS = 3
"""Fewest numbers of a machine, and of the others, from which it is judged."""
LEAST_OFF = 0.02
"""Difference that is never named: a step may be off its model by as much on a good machine."""
_Z = 3.5
_NORMAL = 1.4826
"""Standard deviation of a normal distribution in multiples of its median absolute deviation."""


@dataclass(frozen=True)
class Number:
    """One measured number of a point, on a machine; ``point`` names what is the same in all its repeats."""

    point: str
    machine: str
    value: float


def ratios(numbers: Sequence[Number]) -> Mapping[str, list[float]]:
    """For each machine the ratios of its numbers to the median over machines of the same point.

    The number of a machine at a point is the median of its repeats there. Points that one machine alone measured say
    nothing about machines and are left out, and so are those whose median is not above 0.
    """
    by_point: dict[str, dict[str, list[float]]] = {}
    for number in numbers:
        by_point.setdefault(number.point, {}).setdefault(number.machine, []).append(number.value)
    found: dict[str, list[float]] = {}
    for machines in by_point.values():
        middle = median(map(median, machines.values()))
        if len(machines) > 1 and middle > 0:
            for machine, values in machines.items():
                found.setdefault(machine, []).extend(value / middle for value in values)
    return dict(sorted(found.items()))


def off(machine: str, found: Mapping[str, Sequence[float]]) -> float | None:
    """By how much a machine differs from the others if it is an outlier, as a share; else None.

    Its median ratio is compared with the ratios of all others: it is an outlier where it is more than 3.5 standard
    deviations from their median, these estimated by the median absolute deviation (Iglewicz and Hoaglin, How to Detect
    and Handle Outliers, 1993, modified z-score), and more than ``LEAST_OFF``. The machine itself is left out of both:
    among few it would hide itself.
    """
    mine = found[machine]
    others = [value for name, values in found.items() if name != machine for value in values]
    if len(mine) < LEAST_REPEATS or len(others) < LEAST_REPEATS:
        return None
    middle = median(others)
    deviation = _NORMAL * median(abs(value - middle) for value in others)
    difference = median(mine) - middle
    if abs(difference) <= max(_Z * deviation, LEAST_OFF * middle):
        return None
    return difference / middle


def sentences(found: Mapping[str, Sequence[float]], what: str) -> list[str]:
    """What the ratios of ``what``, a number in words, say about the machines; nothing of one machine."""
    if len(found) < 2:
        return []
    differing = {machine: share for machine in found if (share := off(machine, found)) is not None}
    if not differing:
        few = [machine for machine, values in found.items() if len(values) < LEAST_REPEATS]
        if few:
            return [f"Too few repeats to say whether a machine is an outlier: {', '.join(few)}."]
        return [f"No machine is an outlier: {what} agrees between {', '.join(found)}."]
    if len(found) == 2:
        first, second = (median(values) for values in found.values())
        names = " and ".join(found)
        return [f"{names} differ by {abs(first / second - 1):.1%} in {what}; a third machine would say which is off."]
    return [
        f"{machine} is an outlier: its {what} is {abs(share):.1%} {side} that of the others."
        for machine, share in differing.items()
        for side in ("above" if share > 0 else "below",)
    ]
