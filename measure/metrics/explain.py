"""Where measured and predicted step differ: their critical paths, by kind of cost and by operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean

from measure.metrics.point import Point
from measure.metrics.stall import read_darks
from measure.metrics.step_path import KINDS, Kind, PathPart, Timeline
from measure.metrics.steps import Steps
from railyard.scale import Scale
from railyard.timeline import Event

Ledger = Mapping[tuple[str, str, Kind], float]
"""Seconds by class of operation, name of operation and kind of cost."""


@dataclass(frozen=True)
class Explanation:
    """Seconds of a step by operation and kind of cost, measured and predicted, in real seconds.

    Both are means over the measured ``steps``, since means add up: the differences by kind, or by operation, add up to
    ``measured_s - predicted_s``.
    """

    steps: int
    measured: Ledger
    predicted: Ledger
    other_ranks: float
    """Share of a step, 0 to 1, in which the two paths are not on the same ranks: in each step by their time on each."""

    @property
    def measured_s(self) -> float:
        """Mean duration of a measured step."""
        return fsum(self.measured.values())

    @property
    def predicted_s(self) -> float:
        """Mean of the predicted durations of these steps."""
        return fsum(self.predicted.values())

    @property
    def off(self) -> float | None:
        """Measured over predicted duration, less 1; None for a prediction of 0."""
        return self.measured_s / self.predicted_s - 1 if self.predicted_s else None

    def difference(self, kind: Kind | None = None, operation: str | None = None, *, named: bool = False) -> float:
        """Measured less predicted seconds of a kind and of an operation (None: of all)."""
        place = 1 if named else 0

        def of(ledger: Ledger) -> list[float]:
            return [s for key, s in ledger.items() if kind in (None, key[2]) and operation in (None, key[place])]

        return fsum([*of(self.measured), *(-seconds for seconds in of(self.predicted))])

    @property
    def moved_s(self) -> float:
        """Seconds that the measured path has less of some kinds of cost and more of others than the predicted one."""
        differences = [self.difference(kind) for kind in KINDS]
        return (fsum(map(abs, differences)) - abs(fsum(differences))) / 2

    def operations(self, *, named: bool = False) -> list[str]:
        """Classes of operations (or their names), those with the largest difference first."""
        found = dict.fromkeys(key[1 if named else 0] for key in (*self.measured, *self.predicted))
        return sorted(found, key=lambda one: -abs(self.difference(operation=one, named=named)))

    def kinds(self) -> tuple[Kind, ...]:
        found = {key[2] for key in (*self.measured, *self.predicted)}
        return tuple(kind for kind in KINDS if kind in found)


def explain(point: Point, measured: Iterable[Sequence[Event]], predicted: Sequence[Event]) -> Explanation | None:
    """Compare the steps of the ``measured`` timelines of ``point`` (one for each repeat) with the ``predicted`` ones.

    A measured step is compared with the predicted one of its number, or with the last one. None if there is no complete
    step in either.
    """
    model = Timeline(predicted, read_darks(point, predicted))
    paths = model.paths()
    if not paths:
        return None
    found: list[tuple[Sequence[PathPart], Sequence[PathPart]]] = []
    for events in measured:
        steps = list(Timeline(events, read_darks(point, events), model).paths().items())
        found += [(path, paths.get(step, paths[max(paths)])) for step, path in point.counted(steps)]
    if not found:
        return None
    return Explanation(
        len(found),
        _mean([path for path, _ in found], point.scale),
        _mean([path for _, path in found], point.scale),
        fmean(_other_ranks(*paths) for paths in found),
    )


def _other_ranks(measured: Sequence[PathPart], predicted: Sequence[PathPart]) -> float:
    shares = []
    for path in (measured, predicted):
        by_rank = defaultdict[int, float](float)
        for part in path:
            by_rank[part.rank] += part.seconds / fsum(each.seconds for each in path)
        shares.append(by_rank)
    return max(0.0, 1 - fsum(min(share, shares[1][rank]) for rank, share in shares[0].items()))


def last_step(events: Sequence[Event]) -> list[Event]:
    """The events that ``explain`` needs for the last complete step, among them the end of the one before."""
    steps = Steps.read(events)
    if not steps.complete:
        return []
    last, before = steps.complete[-1], steps.complete[-2:-1]
    since = steps.job(*before or (last,))[0]
    return [
        e
        for e in events
        if e.get("step") == last
        or (e.kind == "step" and e["step"] in before)
        or (e.source == "controller" and (e.end or e.t) >= since)
    ]


def _mean(paths: Sequence[Sequence[PathPart]], scale: Scale) -> Ledger:
    times: dict[tuple[str, str, Kind], list[float]] = defaultdict(list)
    for path in paths:
        for part in path:
            times[part.operation, part.name, part.kind].append(scale.real_s(part.seconds))
    return {key: fsum(seconds) / len(paths) for key, seconds in times.items()}
