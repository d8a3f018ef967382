"""Phase 2 of StragglAR for powers of two: n + L - 2 rounds of disjoint pairs, with n = 2^L.

Rank n - 1 is the straggler, rank k owns chunk k. In round r <= n - 2 rank r exchanges partial sums with the straggler.
The others spread final chunks: each carries one live chunk, there are L of them, and each doubles in every round.

Source: arXiv 2505.23523 (schedules for powers of two).
"""

from __future__ import annotations

from typing import Literal

Move = tuple[int, int, int, Literal["copy", "reduce"]]
"""(source, destination, chunk, operation) of one transfer in a round."""


def swap(a: int, b: int, chunk: int) -> list[Move]:
    """Moves by which ``a`` and ``b`` add each other's partial sum of ``chunk``."""
    return [(a, b, chunk, "reduce"), (b, a, chunk, "reduce")]


def spread(n: int) -> list[list[Move]]:
    """The rounds for n = 2^L; raises ``ValueError`` for any other n."""
    levels = n.bit_length() - 1
    if n < 2 or n != 1 << levels:
        raise ValueError(f"{n} is not a power of two")
    carried: dict[int, int] = {}
    empty = list(range(n - 2, 2 * levels - 2, -1))
    rounds: list[list[Move]] = []
    for now in range(n + levels - 2):
        moves = swap(now, n - 1, now) if now <= n - 2 else []
        if now < levels:
            moves += _start_up(now, levels, carried, empty)
        else:
            moves += _exchange(now, levels, carried, straggler=n - 1)
        if now <= n - 2:
            carried[now] = now
        if now == n - 2:
            carried[n - 1] = n - 2
        rounds.append(moves)
    return rounds


def _start_up(now: int, levels: int, carried: dict[int, int], empty: list[int]) -> list[Move]:
    """Moves from carriers to ranks without a chunk; ranks below ``levels`` receive nothing before their own swap."""
    moves: list[Move] = []
    for rank in sorted(carried):
        target = now - 1 + levels if rank == now - 1 else empty.pop()
        moves.append((rank, target, carried[rank], "copy"))
    for _, target, chunk, _ in moves:
        carried[target] = chunk
    return moves


def _exchange(now: int, levels: int, carried: dict[int, int], straggler: int) -> list[Move]:
    """Moves by which the carriers of the oldest live chunk swap it, one to one, for a newer one.

    The only rule: a rank that will meet the straggler within the next ``levels`` - 1 rounds takes the chunk that will
    be the oldest at that time, so that no other rank needs it in that round. All other pairs are free.
    """
    oldest = now - levels
    free = [rank for rank in carried if now >= straggler or rank != now]
    old = [rank for rank in free if carried[rank] == oldest]
    newer: dict[int, list[int]] = {}
    for rank in free:
        chunk = carried[rank]
        if chunk > oldest:
            newer.setdefault(chunk, []).append(rank)
    bound = [rank for rank in old if now < rank < now + levels and rank != straggler]
    pairs = [(rank, newer[rank - levels].pop()) for rank in bound]
    rest = sorted(rank for ranks in newer.values() for rank in ranks)
    pairs += zip(sorted(set(old) - set(bound)), rest, strict=True)
    moves: list[Move] = []
    for a, b in pairs:
        if b != straggler:
            moves.append((a, b, oldest, "copy"))
        moves.append((b, a, carried[b], "copy"))
        carried[a] = carried[b]
    return moves
