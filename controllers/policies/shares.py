"""How many circuits per hop each ring gets where the fibres do not do for all.

Every hop of a ring gets as many as its others, since a ring is as fast as its slowest hop. Of several rings none gets
another circuit as long as one that could have it has fewer. (MORPHLUX, arXiv 2508.03674, has 4 fibres between adjacent
servers and says nothing of what becomes of a ring that needs more; this rule is ours.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controllers.circuits.circuits import SwitchCircuit
from controllers.circuits.fibres import FibrePlant, Route
from railyard.errors import CircuitError

Ends = tuple[int, int]
"""The two chips that a circuit joins."""


@dataclass(frozen=True)
class PortDemand:
    """What a ring would use: ``rounds[k]`` are the circuits that it has more with k + 1 per hop than with k."""

    name: str
    rounds: tuple[Mapping[SwitchCircuit, Ends], ...]

    def circuits(self, count: int) -> dict[SwitchCircuit, Ends]:
        """Its circuits with ``count`` per hop."""
        return {light: ends for added in self.rounds[:count] for light, ends in added.items()}


@dataclass(frozen=True)
class Shares:
    """``routes`` of all circuits, ``counts`` of circuits per hop by claim; ``limits``: why a claim got no more."""

    routes: Mapping[SwitchCircuit, Route]
    counts: Mapping[str, int]
    limits: Mapping[str, str]


def share(
    plant: FibrePlant,
    claims: Sequence[PortDemand],
    kept: Mapping[SwitchCircuit, Route] | None = None,
    preferred: Mapping[SwitchCircuit, Route] | None = None,
) -> Shares:
    """The fibres of ``plant`` beside ``kept``, shared out: first as many circuits per hop for all as fit at once.

    Then one more for each ring in turn, in the order of ``claims``, for as long as it fits. A circuit takes its
    ``preferred`` route if that is free. The same claims always get the same.
    """
    limits: dict[str, str] = {}
    level, routes = _level(plant, claims, kept or {}, preferred or {})
    counts = {demand.name: min(level, len(demand.rounds)) for demand in claims}
    growing = [demand for demand in claims if counts[demand.name] < len(demand.rounds)]
    while growing:
        for demand in list(growing):
            try:
                routes = plant.routed(demand.rounds[counts[demand.name]], routes, preferred)
            except CircuitError as error:
                limits[demand.name] = str(error)
                growing.remove(demand)
                continue
            counts[demand.name] += 1
            if counts[demand.name] == len(demand.rounds):
                growing.remove(demand)
    return Shares(routes, counts, limits)


def _level(
    plant: FibrePlant,
    claims: Iterable[PortDemand],
    kept: Mapping[SwitchCircuit, Route],
    preferred: Mapping[SwitchCircuit, Route],
) -> tuple[int, dict[SwitchCircuit, Route]]:
    """The most circuits per hop that all claims can have at once, and their routes beside ``kept``."""
    for level in range(max((len(demand.rounds) for demand in claims), default=0), 0, -1):
        wanted = {light: ends for demand in claims for light, ends in demand.circuits(level).items()}
        try:
            return level, plant.routed(wanted, kept, preferred)
        except CircuitError:
            continue
    return 0, dict(kept)
