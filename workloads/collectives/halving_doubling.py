"""Recursive halving and doubling: log2 n rounds between positions whose numbers differ in one bit.

Halving is a reduce-scatter (half the buffer to the farthest partner, then a quarter, ...), doubling an all-gather (the
same backwards); one after the other they are an all-reduce that sends as little as a ring, in 2 log2 n rounds. Doubling
with the whole buffer in each round is the all-reduce with the fewest rounds, for small buffers.

Where n is not a power of two, each position from p = 2^k on first adds its data to position - p, and receives its part
of the result from there at the end: two more rounds.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from workloads.schedule import CollectiveKind, Schedule, Transfer

Blocks = Sequence[Sequence[int]]
"""By core position (below p): the chunks that it is responsible for."""


def halving_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce by halving, then doubling; p chunks, where p is the greatest power of two up to n."""
    core = _core(n)
    blocks = [(b,) for b in range(core)]
    extra = int(n > core)
    moves = [*_fold(n, range(core), "reduce")]
    moves += _halving(blocks, extra)
    moves += _doubling(blocks, extra + _levels(core))
    moves += _unfold(n, [range(core)] * (n - core), extra + 2 * _levels(core))
    return _schedule("recursive-halving-doubling", kind, n, tuple(range(core)), moves)


def recursive_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce of the whole buffer (1 chunk) in each round, or an all-gather (n chunks) by doubling."""
    core = _core(n)
    extra = int(n > core)
    last = extra + _levels(core)
    if kind == "all_reduce":
        moves = [*_fold(n, range(1), "reduce")]
        for level in range(_levels(core)):
            moves += [Transfer(extra + level, p, p ^ 1 << level, 0, "reduce") for p in range(core)]
        moves += _unfold(n, [range(1)] * (n - core), last)
        return _schedule("recursive-doubling", kind, n, (0,), moves)
    moves = [Transfer(0, p, p - core, p, "copy") for p in range(core, n)]
    moves += _doubling(_blocks(n), extra)
    moves += _unfold(n, [[c for c in range(n) if c != p] for p in range(core, n)], last)
    return _schedule("recursive-doubling", kind, n, tuple(range(n)), moves)


def recursive_halving(kind: CollectiveKind, n: int) -> Schedule:
    """Reduce-scatter by halving, with n chunks."""
    core = _core(n)
    extra = int(n > core)
    moves = [*_fold(n, range(n), "reduce")]
    moves += _halving(_blocks(n), extra)
    moves += _unfold(n, [[p] for p in range(core, n)], extra + _levels(core))
    return _schedule("recursive-halving", kind, n, tuple(range(n)), moves)


def _core(n: int) -> int:
    """The greatest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def _levels(core: int) -> int:
    return core.bit_length() - 1


def _blocks(n: int) -> Blocks:
    """Chunks of core position b: chunk b, and the chunk of the position it stands in for."""
    core = _core(n)
    return [(b, b + core) if b + core < n else (b,) for b in range(core)]


def _fold(n: int, chunks: Sequence[int], op: Literal["copy", "reduce"]) -> Iterator[Transfer]:
    core = _core(n)
    return (Transfer(0, p, p - core, c, op) for p in range(core, n) for c in chunks)


def _unfold(n: int, chunks: Sequence[Sequence[int]], round_: int) -> Iterator[Transfer]:
    """Transfers that return ``chunks[i]`` to the i-th extra position."""
    core = _core(n)
    return (Transfer(round_, p - core, p, c, "copy") for p in range(core, n) for c in chunks[p - core])


def _halving(blocks: Blocks, first_round: int) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, the half of its blocks that the partner keeps."""
    core = len(blocks)
    for number in range(_levels(core)):
        distance = core >> (number + 1)
        for src in range(core):
            partner = src ^ distance
            start = partner // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(first_round + number, src, partner, c, "reduce") for c in block)


def _doubling(blocks: Blocks, first_round: int) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, all blocks that it has."""
    core = len(blocks)
    for number in range(_levels(core)):
        distance = 1 << number
        for src in range(core):
            start = src // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(first_round + number, src, src ^ distance, c, "copy") for c in block)


def _schedule(
    name: str, kind: CollectiveKind, n: int, owner: tuple[int, ...], transfers: Sequence[Transfer]
) -> Schedule:
    return Schedule(name, kind, n, len(owner), owner, tuple(transfers), one_port=True)
