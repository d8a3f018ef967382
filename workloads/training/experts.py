"""The experts of a mixture-of-experts layer: number, size and how tokens divide among them.

Sources: Shazeer et al., 2017 (top-k gating); DeepSeek-MoE, arXiv 2401.06066, section 3 (fine-grained experts, shared
experts that every token takes, first layers without experts).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from railyard.errors import ConfigError


@dataclass(frozen=True)
class Experts:
    """``count`` routed experts with a hidden size of ``ffn_hidden``, of which each token takes ``top_k``.

    Every token also takes the ``shared`` experts (of the same size). The first ``dense_layers`` of a model have a plain
    MLP; of the layers after them each ``every``-th has experts, the first included. No token is dropped.

    ``skew``: how unevenly tokens choose. 0: evenly; above 0, expert popularities follow Zipf's law with this exponent,
    in an order of experts drawn with ``seed``.
    """

    count: int
    top_k: int
    ffn_hidden: int
    shared: int = 0
    dense_layers: int = 0
    every: int = 1
    skew: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.count:
            raise ConfigError(
                f"a token takes {self.top_k} of {self.count} experts; top_k must be 1 to model.experts",
                key="model.top_k",
            )
        if self.ffn_hidden < 1:
            raise ConfigError(f"must be at least 1, not {self.ffn_hidden}", key="model.expert_ffn_hidden")
        for key, value, least in (("shared_experts", self.shared, 0), ("dense_layers", self.dense_layers, 0),
                                  ("moe_every", self.every, 1)):  # fmt: skip
            if value < least:
                raise ConfigError(f"must be at least {least}, not {value}", key=f"model.{key}")
        if not 0 <= self.skew < float("inf"):
            raise ConfigError(f"must be 0 or more, and finite, not {self.skew:g}", key="model.expert_skew")

    def in_layer(self, layer: int) -> bool:
        """Whether layer ``layer`` of the model (counted from 0) has experts."""
        return layer >= self.dense_layers and (layer - self.dense_layers) % self.every == 0

    @property
    def popularity(self) -> tuple[float, ...]:
        """Share of each expert in all choices (sum 1), at most 1 / ``top_k``, since a token takes an expert once."""
        order = list(range(self.count))
        random.Random(self.seed).shuffle(order)
        weights = [(place + 1.0) ** -self.skew for place in order]
        most = 1.0 / self.top_k
        full: set[int] = set()
        while True:
            left = 1.0 - most * len(full)
            whole = sum(w for e, w in enumerate(weights) if e not in full)
            shares = [most if e in full else left * w / whole for e, w in enumerate(weights)]
            over = {e for e, share in enumerate(shares) if e not in full and share > most * (1 + 1e-12)}
            if not over:
                return tuple(shares)
            full |= over

    def loads(self, ep: int) -> tuple[float, ...]:
        """Load of each EP index relative to the mean (1.0); each index holds an equal run of consecutive experts."""
        each = self.count // ep
        shares = self.popularity
        return tuple(ep * sum(shares[i * each : (i + 1) * each]) for i in range(ep))
