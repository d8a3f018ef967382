"""An all-to-all in which everything goes straight to where it is wanted and nothing waits for anything else.

For circuits that come in turns (``controllers.circuits.rotation``): whatever has a circuit may go. Each pair's data may
be cut into pieces, so that a turn that ends does not have to wait for all of it; pairs may have different amounts to
send.
"""

from __future__ import annotations

from collections.abc import Sequence

from railyard.errors import ConfigError
from workloads.schedule import Schedule, Transfer


def straight_all_to_all(n: int, pieces: int = 1, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all of n x n x ``pieces`` chunks over ``n`` positions in one round.

    Chunk (i x n + j) x pieces + m is piece m of what position i has for position j. Everybody sends to the next
    position first. ``weights[i][j]`` (``check_weights``): how much that is beside the others, in the same proportions
    for each piece; pairs of weight 0 send nothing.
    """
    check_pieces(pieces)
    sizes = chunk_weights(n, pieces, weights)
    transfers = [
        Transfer(0, src, dst, chunk, "copy")
        for turn in range(1, n)
        for src in range(n)
        for dst in ((src + turn) % n,)
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
    """Where the chunks of an all-to-all start: n x pieces at each position."""
    return tuple(c // (n * pieces) for c in range(n * n * pieces))


def chunk_weights(n: int, pieces: int, weights: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The weight of each chunk, that of its pair; () for None. ``ConfigError`` for what is no matrix of weights."""
    if weights is None:
        return ()
    check_weights(n, weights)
    return tuple(weight for row in weights for weight in row for _ in range(pieces))


def check_weights(n: int, weights: Sequence[Sequence[int]]) -> None:
    """``ConfigError`` unless ``weights`` is n x n, every entry a whole number of 0 or more, and one above 0."""
    if [len(row) for row in weights] != [n] * n:
        found = ", ".join(str(len(row)) for row in weights) or "nothing"
        raise ConfigError(f"must be a matrix of {n} x {n}, a row for each sender, not rows of {found}", key="weights")
    for i, row in enumerate(weights):
        for j, entry in enumerate(row):
            if not isinstance(entry, int) or entry < 0:
                raise ConfigError(f"entry ({i}, {j}) must be a whole number of 0 or more, not {entry}", key="weights")
    if not any(map(any, weights)):
        raise ConfigError("must have an entry above 0; nobody has anything to send", key="weights")


def check_pieces(pieces: int) -> None:
    """``ConfigError`` unless there is a piece."""
    if pieces < 1:
        raise ConfigError(f"must be at least 1, not {pieces}", key="pieces")
