"""How many spares a rack needs: the fewest for which so many failures at once are rarer than the service level allows.

MORPHLUX (arXiv 2508.03674): Z(K) is the probability that at least K of N groups have failed, by dynamic programming;
the answer is the smallest K with Z(K) <= 1 - SLO. A group is what is replaced as one, a chip or a server; its
probability is its own (a server's is drawn like a chip's, not put together from its chips': that would need as many
servers as chips). Taken as it is written the rule is on the safe side by one: K spares serve K failures, so jobs are
short of a spare with probability Z(K + 1) only.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from railyard.errors import ConfigError


def at_least_failed(probabilities: Sequence[float]) -> list[float]:
    """Z(0), ..., Z(N): the probability that at least so many of N independent groups have failed.

    ``probabilities`` are those of each group, 0 to 1; ``ConfigError`` for any other.
    """
    exactly = [1.0]
    for p in probabilities:
        if not 0 <= p <= 1:
            raise ConfigError(f"a probability of failure is {p:g}; 0 to 1 is right")
        grown = [here * (1 - p) for here in exactly] + [0.0]
        for failed, here in enumerate(exactly):
            grown[failed + 1] += here * p
        exactly = grown
    tails = [0.0]
    for here in reversed(exactly):
        tails.append(tails[-1] + here)
    return [min(1.0, tail) for tail in reversed(tails[1:])]


def spares_needed(probabilities: Sequence[float], slo: float) -> int:
    """The smallest K with Z(K) <= 1 - ``slo`` (0.95: 95 %); never more than there are groups, who cannot fail twice."""
    if not 0 <= slo < 1:
        raise ConfigError(f"the service level is {slo:g}; 0 or more and below 1 is right", key="slo")
    for spares, z in enumerate(at_least_failed(probabilities)):
        if z <= 1 - slo:
            return spares
    return len(probabilities)


def draw_probabilities(groups: int, low: float, high: float, seed: int) -> tuple[float, ...]:
    """``groups`` probabilities of failure, drawn evenly from ``low`` to ``high`` (0.01 is one per cent)."""
    if groups < 0 or not 0 <= low <= high <= 1:
        raise ConfigError(
            f"{groups} groups that fail with {low:g} to {high:g} cannot be; 0 or more groups, 0 <= low <= high <= 1"
        )
    random = Random(seed)
    return tuple(random.uniform(low, high) for _ in range(groups))
