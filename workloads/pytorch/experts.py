"""How many tokens each expert of a mixture gets, where no data say so. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from railyard.errors import ConfigError
from railyard.reading import read_text

MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Experts:
    """A distribution of tokens: weights of experts by rank (the last line serves all later ranks), or by ``exponent``:
    the expert k (from 0) gets 1 / (k + 1) ** exponent, so 0 is uniform.
    """

    exponent: float = 0.0
    weights: tuple[tuple[float, ...], ...] = ()

    def counts(self, tokens: int, experts: int, rank: int) -> list[int]:
        """Tokens of each expert, ``tokens`` in all: rounded down, and those left over to the largest remainders.

        ``ConfigError`` if the file has another number of experts.
        """
        given = self.weights[min(rank, len(self.weights) - 1)] if self.weights else ()
        if given and experts not in (0, len(given)):
            raise ConfigError(f"has {len(given)} experts, the script {experts}; give one weight each", key="--experts")
        shares = given or tuple((k + 1) ** -self.exponent for k in range(experts))
        exact = [tokens * share / sum(shares) for share in shares]
        counts = [int(number) for number in exact]
        largest = sorted(range(len(exact)), key=lambda k: (counts[k] - exact[k], k))
        for k in largest[: tokens - sum(counts)]:
            counts[k] += 1
        return counts


def read_experts(text: str) -> Experts:
    """The distribution of an option: ``uniform``, ``zipf:S``, or a file with weights, a line for all ranks or each."""
    name, _, number = text.partition(":")
    if text == "uniform":
        return Experts()
    try:
        if name == "zipf":
            return Experts(exponent=min(max(float(number), 0.0), 100.0))
        lines = read_text(Path(text), MOST_BYTES, "a file of weights of experts, or uniform or zipf:S").splitlines()
        weights = tuple(tuple(map(float, line.replace(",", " ").split())) for line in lines if line.strip())
    except ValueError:
        raise ConfigError(f"{text} is no distribution; use uniform, zipf:1.2 or a file", key="--experts") from None
    if not weights or any(min(row) < 0 or not 0 < sum(row) < float("inf") for row in weights):
        raise ConfigError(f"{text} needs weights of 0 or more, and a line of at least one", key="--experts")
    return Experts(weights=weights)
