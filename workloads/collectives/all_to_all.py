"""All-to-alls: every position has data for every other, n x n x k chunks in all.

Chunk (i x n + j) x k + m is piece m of the data from position i to position j. The schedules differ in the way that a
chunk takes: straight, over one other position, or hop by hop along a ring or a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from railyard.errors import ConfigError
from workloads.schedule import Schedule, Transfer


def pairwise_all_to_all(n: int) -> Schedule:
    """Pairwise exchange in n - 1 rounds: each position exchanges data with one other in each round.

    For a power of two the partner in round r is the position whose number differs by the bits of r, so each round is a
    matching. Otherwise a position sends to the position r after it and receives from the position r before it.
    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
    """
    power = n & (n - 1) == 0
    transfers = [
        Transfer(r - 1, src, dst, src * n + dst, "copy")
        for r in range(1, n)
        for src in range(n)
        for dst in (src ^ r if power else (src + r) % n,)
    ]
    return _all_to_all("pairwise", n, transfers, one_port=True)


def straight_all_to_all(n: int, pieces: int = 1, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all in one round, in which no transfer waits for another and ``pieces`` chunks make a pair's data.

    For circuits that come in slots (``controllers.circuits.rotation``): a transfer may go as soon as its circuit is up,
    and with several pieces a slot that ends need not wait for all of a pair's data. Each position sends to the next
    position first. ``weights[i][j]``: amount of that data relative to other pairs, divided equally among the pieces;
    pairs of weight 0 send nothing. Raises ``ConfigError`` for an invalid matrix, or without a piece.
    """
    if pieces < 1:
        raise ConfigError(f"must be at least 1, not {pieces}", key="pieces")
    sizes = _chunk_weights(n, pieces, weights)
    transfers = [
        Transfer(0, src, dst, chunk, "copy")
        for offset in range(1, n)
        for src in range(n)
        for dst in ((src + offset) % n,)
        for chunk in range((src * n + dst) * pieces, (src * n + dst + 1) * pieces)
        if not sizes or sizes[chunk]
    ]
    return _all_to_all("straight", n, transfers, pieces=pieces, weights=sizes)


def bidirectional_direct_all_to_all(n: int) -> Schedule:
    """The all-to-all of n x n x 2 chunks in one round, through both ports of a GPU.

    Data for positions less than n / 2 ahead goes by lane 0, for those less than n / 2 behind by lane 1, and for the one
    opposite (n even) half by each, so that both ports carry the same number of bytes.
    """
    transfers = [
        Transfer(0, src, (src + offset) % n, (src * n + (src + offset) % n) * 2 + half, "copy", lane)
        for offset in range(1, n)
        for src in range(n)
        for half in (0, 1)
        for lane in (half if 2 * offset == n else int(2 * offset > n),)
    ]
    return _all_to_all("bidirectional-direct", n, transfers, pieces=2)


def valiant_all_to_all(n: int, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all of n x n x (n - 1) chunks in two rounds: the data of each position is spread over all others.

    Piece m of the data of position i goes to position i + 1 + m (modulo n) in the first round and from there to its
    destination in the second, unless that is the position itself. Each circuit then carries about the same amount
    whatever the demand, so slots that do not follow the demand (``controllers.policies.rotor``) are used evenly; in
    exchange, nearly all data crosses the fabric twice. ``weights`` as in ``straight_all_to_all``.
    Source: Valiant and Brebner, "Universal schemes for parallel communication", STOC 1981; RotorNet, SIGCOMM'17.
    """
    pieces = max(1, n - 1)
    sizes = _chunk_weights(n, pieces, weights)
    transfers: list[Transfer] = []
    for m in range(n - 1):
        for src in range(n):
            middle = (src + 1 + m) % n
            for dst in ((middle + offset) % n for offset in range(n)):
                chunk = (src * n + dst) * pieces + m
                if dst == src or (sizes and not sizes[chunk]):
                    continue
                transfers.append(Transfer(0, src, middle, chunk, "copy"))
                if middle != dst:
                    transfers.append(Transfer(1, middle, dst, chunk, "copy"))
    return _all_to_all("valiant", n, transfers, pieces=pieces, weights=sizes)


def ring_all_to_all(n: int, *, bidirectional: bool = False) -> Schedule:
    """The all-to-all of n x n chunks on a ring, hop by hop.

    Chunks go clockwise on lane 0. When bidirectional, each chunk takes the shorter direction (counter-clockwise on lane
    1); the farthest ones, where both are equal, go clockwise from even positions and counter-clockwise from odd ones.
    Each link carries n (n - 1) / 2 chunks on one ring, n^2 / 8 (n even) each way on two.
    """

    def hops(src: int, dst: int) -> int:
        distance = (dst - src) % n
        back = bidirectional and (2 * distance > n or (2 * distance == n and src % 2))
        return distance - n if back else distance

    return _hop_by_hop("bidirectional-ring" if bidirectional else "ring", n, hops, one_port=not bidirectional)


def line_all_to_all(n: int) -> Schedule:
    """The all-to-all of n x n chunks on a line, position i joined to i - 1 and i + 1, hop by hop.

    Upwards on lane 0, downwards on lane 1, like the two directions of a bidirectional ring; up to n^2 / 4 chunks each
    way at the middle. A line is a ring without its last link, such as the members of an expert-parallel group on the
    ring of a data-parallel one.
    """
    return _hop_by_hop("line", n, lambda src, dst: dst - src)


def _hop_by_hop(algorithm: str, n: int, hops: Callable[[int, int], int], one_port: bool = False) -> Schedule:
    """The all-to-all between neighbours; ``hops(src, dst)`` are upwards on lane 0, negative ones downwards on lane 1.

    More chunks cross a link than in a direct exchange, but circuits that never change are enough.
    """
    transfers: list[Transfer] = []
    for src in range(n):
        for dst in range(n):
            distance = hops(src, dst)
            direction, lane = (-1, 1) if distance < 0 else (1, 0)
            for hop in range(abs(distance)):
                at = (src + direction * hop) % n
                transfers.append(Transfer(hop, at, (at + direction) % n, src * n + dst, "copy", lane))
    return _all_to_all(algorithm, n, transfers, one_port=one_port)


def _all_to_all(
    algorithm: str,
    n: int,
    transfers: Iterable[Transfer],
    *,
    pieces: int = 1,
    weights: tuple[int, ...] = (),
    one_port: bool = False,
) -> Schedule:
    return Schedule(
        algorithm=algorithm,
        kind="all_to_all",
        n=n,
        chunks=n * n * pieces,
        owner=tuple(chunk // (n * pieces) for chunk in range(n * n * pieces)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
        one_port=one_port,
        weights=weights,
    )


def _chunk_weights(n: int, pieces: int, weights: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The weight of each chunk, equal to that of its pair; () for None.

    Raises ``ConfigError`` unless ``weights`` is n x n with whole numbers of 0 or more, at least one above 0.
    """
    if weights is None:
        return ()
    if [len(row) for row in weights] != [n] * n:
        found = ", ".join(str(len(row)) for row in weights) or "nothing"
        raise ConfigError(f"must be a matrix of {n} x {n}, a row for each sender, not rows of {found}", key="weights")
    for i, row in enumerate(weights):
        for j, entry in enumerate(row):
            if not isinstance(entry, int) or entry < 0:
                raise ConfigError(f"entry ({i}, {j}) must be a whole number of 0 or more, not {entry}", key="weights")
    if not any(map(any, weights)):
        raise ConfigError("must have an entry above 0", key="weights")
    return tuple(weight for row in weights for weight in row for _ in range(pieces))
