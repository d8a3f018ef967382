"""Shares of the fibres: how many circuits per hop each ring gets when there are not enough fibres for all.

All hops of a ring get the same number, since a ring is as fast as its slowest hop. No ring gets another circuit per hop
while a ring with fewer could have it. (MORPHLUX, arXiv 2508.03674, has 4 fibres between adjacent servers and does not
say how rings that need more are served; this rule is Railyard's.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from controllers.circuits.fibres import FibrePlant, Key, Route
from railyard.errors import CircuitError

Ends = tuple[int, int]
"""The two chips that a circuit joins."""


@dataclass(frozen=True)
class PortDemand(Generic[Key]):
    """The circuits that a ring can use: ``rounds[k]`` are those that it gains with k + 1 per hop instead of k."""

    name: str
    rounds: tuple[Mapping[Key, Ends], ...]

    def circuits(self, count: int) -> dict[Key, Ends]:
        """The circuits of the ring with ``count`` per hop, and the chips that each joins."""
        return {circuit: ends for added in self.rounds[:count] for circuit, ends in added.items()}


@dataclass(frozen=True)
class Shares(Generic[Key]):
    """The result of sharing: ``routes`` of all circuits, and by name of the demand its circuits per hop (``counts``)
    and the reason why it got no more (``limits``).
    """

    routes: Mapping[Key, Route]
    counts: Mapping[str, int]
    limits: Mapping[str, str]


def share(
    plant: FibrePlant,
    demands: Sequence[PortDemand[Key]],
    kept: Mapping[Key, Route] | None = None,
    preferred: Mapping[Key, Route] | None = None,
) -> Shares[Key]:
    """Share the fibres of ``plant`` that ``kept`` leaves free among ``demands``.

    First all rings get the highest number of circuits per hop that fits for all; then each ring gets one more, in the
    order of ``demands``, as long as it fits. A circuit takes its ``preferred`` route if that is free. The result is
    deterministic.
    """
    limits: dict[str, str] = {}
    level, routes = _level(plant, demands, kept or {}, preferred or {})
    counts = {demand.name: min(level, len(demand.rounds)) for demand in demands}
    while growing := [d for d in demands if counts[d.name] < len(d.rounds) and d.name not in limits]:
        for demand in growing:
            try:
                routes = plant.routed(demand.rounds[counts[demand.name]], routes, preferred)
                counts[demand.name] += 1
            except CircuitError as error:
                limits[demand.name] = str(error)
    return Shares(routes, counts, limits)


def _level(
    plant: FibrePlant,
    demands: Iterable[PortDemand[Key]],
    kept: Mapping[Key, Route],
    preferred: Mapping[Key, Route],
) -> tuple[int, dict[Key, Route]]:
    """The most circuits per hop that all demands can have at once, and the routes, including ``kept``."""
    for level in range(max((len(demand.rounds) for demand in demands), default=0), 0, -1):
        wanted = {circuit: ends for demand in demands for circuit, ends in demand.circuits(level).items()}
        try:
            return level, plant.routed(wanted, kept, preferred)
        except CircuitError:
            continue
    return 0, dict(kept)
