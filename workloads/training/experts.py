"""How tokens divide among the experts of a mixture-of-experts layer.

Source: Shazeer et al., 2017 (top-k gating).
"""

from __future__ import annotations

import random
from functools import lru_cache


@lru_cache(maxsize=64)
def popularity(count: int, top_k: int, skew: float = 0.0, seed: int = 0) -> tuple[float, ...]:
    """Share of each of ``count`` experts in all choices (sum 1), if each token chooses ``top_k`` of them.

    ``skew`` 0: evenly; above 0, popularities follow Zipf's law with this exponent, in an order of experts drawn with
    ``seed``. A share is at most 1 / ``top_k``, since a token takes an expert once. No token is dropped.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)
    weights = [(place + 1.0) ** -skew for place in order]
    most = 1.0 / top_k
    full: set[int] = set()
    while True:
        left = 1.0 - most * len(full)
        whole = sum(w for e, w in enumerate(weights) if e not in full)
        shares = [most if e in full else left * w / whole for e, w in enumerate(weights)]
        over = {e for e, share in enumerate(shares) if e not in full and share > most * (1 + 1e-12)}
        if not over:
            return tuple(shares)
        full |= over
