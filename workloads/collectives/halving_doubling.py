"""Recursive halving and doubling: log2 n rounds between positions whose numbers differ in one bit.

Halving is a reduce-scatter (half the buffer to the farthest partner, then a quarter, ...), doubling an all-gather (the
same backwards); one after the other they are an all-reduce that sends as little as a ring, in 2 log2 n rounds. Doubling
with the whole buffer in each round is the all-reduce with the fewest rounds, for small buffers.

Where n is not a power of two, each position from p = 2^k on first adds its data to position - p, and receives its part
of the result from there at the end: two more rounds.

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from workloads.schedule import CollectiveKind, Schedule, Transfer

Blocks = Sequence[Sequence[int]]
"""By core position (below p): the chunks that it is responsible for."""


def halving_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce by halving, then doubling; p chunks, where p is the greatest power of two up to n."""
    core = _core(n)
    blocks = [(b,) for b in range(core)]
    moves = [*_halving(blocks), *_doubling(blocks, first_round=core.bit_length() - 1)]
    return _schedule("recursive-halving-doubling", kind, n, core, moves, lambda p: range(core), lambda p: range(core))


def recursive_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce of the whole buffer (1 chunk) in each round, or an all-gather (n chunks) by doubling."""
    core = _core(n)
    if kind == "all_reduce":
        levels = range(core.bit_length() - 1)
        moves = [Transfer(level, p, p ^ 1 << level, 0, "reduce") for level in levels for p in range(core)]
        return _schedule("recursive-doubling", kind, n, 1, moves, lambda p: [0], lambda p: [0])
    others = {p: [c for c in range(n) if c != p] for p in range(core, n)}
    return _schedule("recursive-doubling", kind, n, n, _doubling(_blocks(n)), lambda p: [p], lambda p: others[p])


def recursive_halving(kind: CollectiveKind, n: int) -> Schedule:
    """Reduce-scatter by halving, with n chunks."""
    return _schedule("recursive-halving", kind, n, n, _halving(_blocks(n)), lambda p: range(n), lambda p: [p])


def _core(n: int) -> int:
    """The greatest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def _blocks(n: int) -> Blocks:
    """Chunks of core position b: chunk b, and the chunk of the position it stands in for."""
    core = _core(n)
    return [(b, b + core) if b + core < n else (b,) for b in range(core)]


def _halving(blocks: Blocks) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, the half of its blocks that the partner keeps."""
    core = len(blocks)
    for number in range(core.bit_length() - 1):
        distance = core >> (number + 1)
        for src in range(core):
            partner = src ^ distance
            start = partner // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(number, src, partner, c, "reduce") for c in block)


def _doubling(blocks: Blocks, first_round: int = 0) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, all blocks that it has."""
    core = len(blocks)
    for number in range(core.bit_length() - 1):
        distance = 1 << number
        for src in range(core):
            start = src // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(first_round + number, src, src ^ distance, c, "copy") for c in block)


def _schedule(
    name: str,
    kind: CollectiveKind,
    n: int,
    chunks: int,
    moves: Iterable[Transfer],
    given: Callable[[int], Iterable[int]],
    returned: Callable[[int], Iterable[int]],
) -> Schedule:
    """The schedule whose ``moves`` are among the core positions.

    An extra position p gives the core the chunks ``given(p)`` in a round before, and receives ``returned(p)`` in a
    round after.
    """
    core = _core(n)
    extra = range(core, n)
    op: Literal["copy", "reduce"] = "copy" if kind == "all_gather" else "reduce"
    transfers = [Transfer(0, p, p - core, c, op) for p in extra for c in given(p)]
    transfers += [replace(t, round=t.round + 1) for t in moves] if extra else moves
    last = transfers[-1].round + 1 if extra else 0
    transfers += [Transfer(last, p - core, p, c, "copy") for p in extra for c in returned(p)]
    return Schedule(name, kind, n, chunks, tuple(range(chunks)), tuple(transfers), one_port=True)
