"""The number of spares that a rack needs to meet a service level.

MORPHLUX (arXiv 2508.03674): Z(K) is the probability that at least K of N groups have failed, by dynamic programming;
the answer is the smallest K with Z(K) <= 1 - SLO. A group is a chip or a server, whichever is replaced as a unit, and
has its own probability of failure (that of a server is drawn like that of a chip, not composed of its chips: that would
need as many servers as chips). The rule as published is on the safe side by one: K spares serve K failures, so jobs
lack a spare only with probability Z(K + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random

from railyard.errors import ConfigError


def at_least_failed(probabilities: Sequence[float]) -> list[float]:
    """Z(0), ..., Z(N): the probabilities that at least 0, ..., N of N independent groups have failed.

    ``probabilities`` are those of each group; ``ConfigError`` unless each is 0 to 1.
    """
    exactly = [1.0]
    for p in probabilities:
        if not 0 <= p <= 1:
            raise ConfigError(f"a probability of failure is {p:g}; it must be 0 to 1")
        exactly = [
            same * (1 - p) + one_less * p for same, one_less in zip([*exactly, 0.0], [0.0, *exactly], strict=True)
        ]
    tails = list(accumulate(reversed(exactly)))
    return [min(1.0, tail) for tail in reversed(tails)]


def spares_needed(probabilities: Sequence[float], slo: float) -> int:
    """The smallest K with Z(K) <= 1 - ``slo`` (0.95: 95 %), at most the number of groups.

    ``ConfigError`` unless ``slo`` is 0 or more and below 1.
    """
    if not 0 <= slo < 1:
        raise ConfigError(f"the service level is {slo:g}; it must be 0 or more and below 1", key="slo")
    for spares, z in enumerate(at_least_failed(probabilities)):
        if z <= 1 - slo:
            return spares
    return len(probabilities)


def draw_probabilities(groups: int, low: float, high: float, seed: int) -> tuple[float, ...]:
    """``groups`` probabilities of failure, drawn uniformly from ``low`` to ``high`` (0.01 is one per cent)."""
    if groups < 0 or not 0 <= low <= high <= 1:
        raise ConfigError(
            f"{groups} groups that fail with probability {low:g} to {high:g} are impossible; use 0 or more groups and "
            "0 <= low <= high <= 1"
        )
    random = Random(seed)
    return tuple(random.uniform(low, high) for _ in range(groups))
