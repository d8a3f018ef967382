"""All-to-all in which all data goes straight to its destination and no transfer waits for another.

For circuits that come in slots (``controllers.circuits.rotation``): a transfer may go as soon as its circuit is up.
Each pair's data may be cut into pieces, so that a slot that ends need not wait for all of it; pairs may have different
amounts to send.
"""

from __future__ import annotations

from collections.abc import Sequence

from railyard.errors import ConfigError
from workloads.schedule import Schedule, Transfer


def straight_all_to_all(n: int, pieces: int = 1, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all of n x n x ``pieces`` chunks over ``n`` positions in one round.

    Chunk (i x n + j) x pieces + m is piece m of the data from position i to position j. Each position sends to the next
    position first. ``weights[i][j]`` (``check_weights``): amount of that data relative to other pairs, divided equally
    among the pieces; pairs of weight 0 send nothing.
    """
    check_pieces(pieces)
    sizes = chunk_weights(n, pieces, weights)
    transfers = [
        Transfer(0, src, dst, chunk, "copy")
        for offset in range(1, n)
        for src in range(n)
        for dst in ((src + offset) % n,)
        for chunk in range((src * n + dst) * pieces, (src * n + dst + 1) * pieces)
        if not sizes or sizes[chunk]
    ]
    return Schedule(
        algorithm="straight",
        kind="all_to_all",
        n=n,
        chunks=n * n * pieces,
        owner=owners(n, pieces),
        transfers=tuple(transfers),
        weights=sizes,
    )


def owners(n: int, pieces: int) -> tuple[int, ...]:
    """Position at which each chunk of an all-to-all starts: n x pieces chunks at each position."""
    return tuple(c // (n * pieces) for c in range(n * n * pieces))


def chunk_weights(n: int, pieces: int, weights: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The weight of each chunk, equal to that of its pair; () for None. ``ConfigError`` for an invalid matrix."""
    if weights is None:
        return ()
    check_weights(n, weights)
    return tuple(weight for row in weights for weight in row for _ in range(pieces))


def check_weights(n: int, weights: Sequence[Sequence[int]]) -> None:
    """Raise ``ConfigError`` unless ``weights`` is n x n with whole numbers of 0 or more, at least one above 0."""
    if [len(row) for row in weights] != [n] * n:
        found = ", ".join(str(len(row)) for row in weights) or "nothing"
        raise ConfigError(f"must be a matrix of {n} x {n}, a row for each sender, not rows of {found}", key="weights")
    for i, row in enumerate(weights):
        for j, entry in enumerate(row):
            if not isinstance(entry, int) or entry < 0:
                raise ConfigError(f"entry ({i}, {j}) must be a whole number of 0 or more, not {entry}", key="weights")
    if not any(map(any, weights)):
        raise ConfigError("must have an entry above 0", key="weights")


def check_pieces(pieces: int) -> None:
    """Raise ``ConfigError`` unless there is at least one piece."""
    if pieces < 1:
        raise ConfigError(f"must be at least 1, not {pieces}", key="pieces")
