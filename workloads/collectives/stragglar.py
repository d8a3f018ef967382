"""All-reduces that begin before a straggler has arrived: StragglAR, and the baseline of its evaluation.

Phase 1 is among the others, on a ring; phase 2 includes the straggler. The buffer has n - 1 chunks. In phase 2 rank n -
1 is the straggler, rank k owns chunk k; in round r <= n - 2 rank r exchanges partial sums with the straggler, and the
others spread final chunks.

Powers of two, n = 2^L (``spread``): n + L - 2 rounds of disjoint pairs. Each of the others carries one live chunk,
there are L of them, and each doubles in every round.

Other n up to 64 (``match``): the other transfers of a round are a matching of great weight found by local search: for
even n of disjoint pairs, for odd n (not in the paper) from senders to receivers, each at most once. A transfer weighs
more the closer its chunk is to its deadline: the chunk must double to reach all ranks in time, its receiver has no
other round for it, or its receiver is about to meet the straggler. The additional weights are searched: attempts with
different weights and tie-breaks, each from a seed of its own, first for the least number of rounds, n + L - 2 with L =
ceil(log2 n), then for more. An attempt ends as soon as a chunk cannot arrive in time. ``FOUND`` has the attempts that
succeed.

Source: arXiv 2505.23523 (powers of two; even n: greedy matching with the critical window as a filter). The weights, the
search and odd n are our own; it needs fewer rounds than published for n = 12, 14 and 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from math import ceil
from random import Random
from typing import Literal

from workloads.collectives.algorithms import ring
from workloads.schedule import CollectiveKind, Schedule, Transfer

Move = tuple[int, int, int, Literal["copy", "reduce"]]
"""(source, destination, chunk, operation) of one transfer in a round."""


def swap(a: int, b: int, chunk: int) -> list[Move]:
    """Moves by which ``a`` and ``b`` add each other's partial sum of ``chunk``."""
    return [(a, b, chunk, "reduce"), (b, a, chunk, "reduce")]


def spread(n: int) -> list[list[Move]]:
    """The rounds for n = 2^L."""
    levels = n.bit_length() - 1
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


Best = dict[int, dict[int, tuple[float, int]]]
"""``best[dst][src]``: (weight, chunk) of the best transfer between two ranks; (0, -1) where there is none."""


MOST_SEARCHED = 64
"""Largest n of ``FOUND``."""
FOUND: dict[int, tuple[int, int]] = {
    3: (0, 0), 5: (0, 0), 6: (0, 0), 7: (0, 0), 9: (0, 0), 10: (0, 0), 11: (0, 0), 12: (0, 0), 13: (0, 14),
    14: (0, 1), 15: (0, 109), 17: (0, 1), 18: (0, 2), 19: (0, 3), 20: (0, 2), 21: (0, 12), 22: (0, 13), 23: (0, 39),
    24: (0, 25), 25: (0, 60), 26: (0, 109), 27: (1, 0), 28: (1, 7), 29: (1, 1), 30: (1, 0), 31: (1, 4), 33: (0, 14),
    34: (0, 0), 35: (0, 0), 36: (0, 9), 37: (1, 0), 38: (0, 7), 39: (1, 0), 40: (1, 0), 41: (1, 0), 42: (1, 0),
    43: (1, 0), 44: (1, 1), 45: (1, 1), 46: (1, 5), 47: (1, 1), 48: (1, 3), 49: (1, 0), 50: (1, 7), 51: (1, 0),
    52: (1, 5), 53: (1, 6), 54: (1, 2), 55: (2, 0), 56: (2, 0), 57: (1, 8), 58: (2, 0), 59: (1, 9), 60: (2, 0),
    61: (2, 0), 62: (2, 0), 63: (2, 0),
}  # fmt: skip
"""For each n the rounds beyond the least number, and the attempt that succeeds.

Made once by ``search`` with 3000 // n tries up to n = 32 and 600 // n above, which takes minutes.
"""


@dataclass(frozen=True)
class Weights:
    """Additions to the weight 10 of a useful transfer.

    ``grow``: for a chunk that must spread now, times its required growth. ``last``: in the receiver's last round for
    this chunk. ``window``: for the chunk that a rank must have before it meets the straggler; subtracted for newer
    chunks.
    """

    grow: int
    last: int
    window: int


def match(n: int) -> list[list[Move]]:
    """The rounds of phase 2 for n >= 3 up to ``MOST_SEARCHED``, by the attempt of ``FOUND``."""
    spare, number = FOUND[n]
    random = Random(f"{n} {spare} {number}")
    moves = _attempt(n, n + (n - 1).bit_length() - 2 + spare, _some_weights(random), random)
    assert moves is not None, f"FOUND has no attempt that succeeds for {n} ranks"
    return moves


def search(n: int, tries: int) -> tuple[int, int]:
    """The entry of ``FOUND`` for n: the first of ``tries`` attempts that succeeds, for the least number of rounds."""
    for spare in count():
        for number in range(tries):
            random = Random(f"{n} {spare} {number}")
            if _attempt(n, n + (n - 1).bit_length() - 2 + spare, _some_weights(random), random) is not None:
                return spare, number
    raise AssertionError


def _some_weights(random: Random) -> Weights:
    return Weights(random.choice((0, 5, 10, 20)), random.choice((5, 10, 20)), random.choice((0, 5, 10, 20)))


def _attempt(n: int, rounds: int, weights: Weights, random: Random) -> list[list[Move]] | None:
    """Phase 2 in ``rounds`` rounds; None if this attempt fails."""
    state = _State(n, rounds, weights, random)
    made: list[list[Move]] = []
    for now in range(rounds):
        ranks = state.free(now)
        best = state.best(now, ranks)
        pairs = _senders(ranks, best) if n % 2 else _pairs(ranks, best)
        moves: list[Move] = swap(now, n - 1, now) if now <= n - 2 else []
        for src, dst in pairs:
            chunk = best[dst][src][1]
            if chunk >= 0:
                moves.append((src, dst, chunk, "copy"))
        state.apply(now, moves)
        made.append(moves)
        if state.too_late(now):
            return None
    return made


class _State:
    """The final chunks of each rank (a bit mask), and the number of ranks but the straggler that have each chunk."""

    def __init__(self, n: int, rounds: int, weights: Weights, random: Random) -> None:
        self.n, self.rounds, self.weights, self.random = n, rounds, weights, random
        self.levels = (n - 1).bit_length()
        self.spare = rounds - (n + self.levels - 2)
        self.have = [0] * n
        self.holders = [0] * (n - 1)

    def free(self, now: int) -> list[int]:
        """Ranks that spread chunks in round ``now``; after the last swap that includes the straggler."""
        return [p for p in range(self.n - 1) if p != now] if now <= self.n - 2 else list(range(self.n))

    def live(self, now: int) -> list[int]:
        """Chunks that are final on some ranks but not on all."""
        return [c for c in range(min(now, self.n - 1)) if self.holders[c] < self.n - 1]

    def due(self, chunk: int, now: int) -> int:
        """The round in which ``chunk`` should be on all ranks: ``levels`` after its swap."""
        return max(now, min(chunk + self.levels + self.spare, self.rounds - 1))

    def best(self, now: int, ranks: list[int]) -> Best:
        wanted = {chunk: self._growth(chunk, now) for chunk in self.live(now)}
        nothing = dict.fromkeys(ranks, (0.0, -1))
        holders = {chunk: [src for src in ranks if self.have[src] >> chunk & 1] for chunk in wanted}
        choices: Best = {}
        for dst in ranks:
            choices[dst] = row = nothing.copy()
            candidates = [] if dst == self.n - 1 else self._candidates(dst, now, wanted)
            for weight, chunk in reversed(candidates):  # the heaviest is written last
                row.update(dict.fromkeys(holders[chunk], (weight, chunk)))
        return choices

    def _growth(self, chunk: int, now: int) -> float:
        """Least growth of ``chunk`` in this round, as a share of its holders, if it doubles from then on."""
        needed = -(-(self.n - 1) // (1 << self.due(chunk, now) - now))
        return max(0, needed - self.holders[chunk]) / self.holders[chunk]

    def _candidates(self, dst: int, now: int, wanted: dict[int, float]) -> list[tuple[float, int]]:
        """(weight, chunk) of the chunks that ``dst`` lacks, heaviest first."""
        meets_soon = now < dst < now + self.levels
        candidates = []
        for chunk, growth in wanted.items():
            if self.have[dst] >> chunk & 1:
                continue
            weight = 10 + self.random.random() + self.weights.grow * growth
            due = self.due(chunk, now)
            if due - (due == dst) <= now:
                weight += self.weights.last
            if meets_soon and chunk == dst - self.levels:
                weight += self.weights.window
            elif meets_soon and chunk > dst - self.levels:
                weight -= min(9, self.weights.window)
            candidates.append((weight, chunk))
        return sorted(candidates, reverse=True)

    def apply(self, now: int, moves: list[Move]) -> None:
        for _, dst, chunk, _ in moves:
            self.have[dst] |= 1 << chunk
            if dst != self.n - 1:
                self.holders[chunk] += 1

    def too_late(self, now: int) -> bool:
        """Whether a chunk cannot be on all ranks in time, even if it doubled in each remaining round."""
        left = self.rounds - 1 - now
        with_straggler = int(now >= self.n - 2)
        return any((self.holders[c] + with_straggler) << left < self.n - 1 for c in self.live(now + 1)) or (
            left == 0 and min(self.holders) < self.n - 1
        )


def _pairs(ranks: list[int], best: Best) -> list[tuple[int, int]]:
    """Disjoint pairs of great weight, as (src, dst) in both directions.

    Greedy by weight, then improved as long as two pairs gain by exchanging partners.
    """
    weight = {a: {b: best[b][a][0] + best[a][b][0] for b in ranks} for a in ranks}
    edges = sorted(((weight[a][b], a, b) for i, a in enumerate(ranks) for b in ranks[i + 1 :]), reverse=True)
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for _, a, b in edges:
        if a not in taken and b not in taken:
            taken |= {a, b}
            pairs.append((a, b))
    better = True
    while better:
        better = False
        for i in range(len(pairs)):
            for j in range(i):
                (a, b), (c, d) = pairs[i], pairs[j]
                least = weight[a][b] + weight[c][d] + 1e-9
                across, along = weight[a][c] + weight[b][d], weight[a][d] + weight[b][c]
                if max(across, along) > least:
                    pairs[i], pairs[j] = ((a, c), (b, d)) if across >= along else ((a, d), (b, c))
                    better = True
    return [pair for a, b in pairs for pair in ((a, b), (b, a))]


def _senders(ranks: list[int], best: Best) -> list[tuple[int, int]]:
    """A sender for each receiver, of great weight, as (src, dst).

    Greedy by weight, then improved as long as two receivers gain by exchanging senders.
    """
    edges = sorted(((best[b][a][0], a, b) for b in ranks for a in ranks), reverse=True)
    sender: dict[int, int] = {}
    taken: set[int] = set()
    for _, a, b in edges:
        if a not in taken and b not in sender:
            taken.add(a)
            sender[b] = a
    better = True
    while better:
        better = False
        for i, b in enumerate(ranks):
            for d in ranks[:i]:
                now = best[b][sender[b]][0] + best[d][sender[d]][0]
                if best[b][sender[d]][0] + best[d][sender[b]][0] > now + 1e-9:
                    sender[b], sender[d] = sender[d], sender[b]
                    better = True
    return [(a, b) for b, a in sender.items()]


@cache
def stragglar(kind: CollectiveKind, n: int, *, straggler: int) -> Schedule:
    """StragglAR for n >= 2 positions, of which ``straggler`` comes late.

    Phase 1: the others reduce-scatter among themselves, n - 2 rounds on a ring; then ``owner[c]`` holds chunk c reduced
    over all but the straggler. Phase 2: the straggler exchanges partial sums with one of them after the other, which
    makes that chunk final on both, while the others spread the final chunks. For a power of two, phase 2 takes n +
    log2(n) - 2 rounds, which is optimal.
    """
    second = match(n) if n & (n - 1) else spread(n)
    return _in_phases("stragglar", kind, straggler, ring("reduce_scatter", n - 1), second)


MOST_LOST = 0.01
"""What a piece of the first phase of eager StragglAR may cost if it was begun for nothing, as a share of Ring."""


def eager_piece_count(n: int, rounds: int) -> int:
    """Number of pieces of the first phase over ``n`` positions, where the second has ``rounds``.

    T_crit divided by this number is what a piece costs against Ring if nobody is late (without latency).
    """
    return ceil(((n - 2 + rounds) / (2 * (n - 1) ** 2 / n) - 1) / MOST_LOST)


def eager(kind: CollectiveKind, n: int) -> Schedule:
    """Eager StragglAR for n >= 4 positions: whichever n - 1 come first begin with the first phase, piece by piece.

    The transfers are those of Ring, to which it comes down where nobody is late.
    """
    made = stragglar(kind, n, straggler=n - 1)
    return replace(
        ring(kind, n), algorithm="stragglar-eager", pieces=eager_piece_count(n, made.rounds - made.first_phase)
    )


@cache
def eager_pieces(n: int, straggler: int, pieces: int) -> Schedule:
    """The first phase of ``stragglar`` in ``pieces``, one after another; not a whole collective.

    Piece p of chunk c is slot c * pieces + p.
    """
    made = stragglar("all_reduce", n, straggler=straggler)
    transfers = tuple(
        Transfer(piece * made.first_phase + t.round, t.src, t.dst, t.chunk * pieces + piece, t.op)
        for piece in range(pieces)
        for t in made.transfers
        if t.round < made.first_phase
    )
    return replace(
        made,
        chunks=made.chunks * pieces,
        owner=tuple(position for position in made.owner for _ in range(pieces)),
        transfers=transfers,
        first_phase=pieces * made.first_phase,
        weights=(1,) * (made.chunks * pieces),
        pieces=pieces,
    )


@lru_cache(maxsize=64)
def eager_whole(n: int, straggler: int, pieces: int, begun: int) -> Schedule:
    """Eager StragglAR whose ``straggler`` came when ``begun`` of the ``pieces`` of the first phase had begun.

    Of each of the n - 1 chunks these pieces are summed as in ``stragglar``, and the rest of the buffer by Ring. Slot
    3 c is the pieces of chunk c; the next two are what chunks c and c + 1 of Ring have of its rest.
    """
    made, rest = stragglar("all_reduce", n, straggler=straggler), ring("all_reduce", n)
    if begun == pieces:
        return replace(made, weights=(1,) * made.chunks)  # whose bounds are those of the pieces
    transfers = [Transfer(t.round, t.src, t.dst, 3 * t.chunk, t.op) for t in made.transfers]
    for t in rest.transfers:
        for slot in (3 * t.chunk - 1,) * (t.chunk > 0) + (3 * t.chunk + 1,) * (t.chunk < made.chunks):
            transfers.append(Transfer(made.rounds + t.round, t.src, t.dst, slot, t.op))
    left = pieces - begun
    return replace(
        made,
        chunks=3 * made.chunks,
        owner=tuple(position for chunk, own in enumerate(made.owner) for position in (own, chunk, chunk + 1)),
        transfers=tuple(transfers),
        weights=tuple(w for chunk in range(1, n) for w in (n * begun, left * (n - chunk), left * chunk)),
    )


def straggler_direct(kind: CollectiveKind, n: int, *, straggler: int) -> Schedule:
    """The baseline "Direct" for n >= 2 positions, of which ``straggler`` comes late.

    Phase 1: the others all-reduce, 2 (n - 2) rounds on a ring. Phase 2: the straggler exchanges the whole buffer with
    one of them, which makes the sum final on both, and both broadcast it on a binomial tree: ceil(log2 n) rounds of the
    whole buffer.
    """
    late, chunks = n - 1, range(n - 1)
    second: list[list[Move]] = [[(a, b, c, "reduce") for a, b in ((late, 0), (0, late)) for c in chunks]]
    holders, waiting = [late, 0], list(range(1, late))
    while waiting:
        pairs = list(zip(holders, waiting, strict=False))
        second.append([(src, dst, c, "copy") for src, dst in pairs for c in chunks])
        holders += [dst for _, dst in pairs]
        waiting = waiting[len(pairs) :]
    return _in_phases("straggler-direct", kind, straggler, ring("all_reduce", n - 1), second)


def _in_phases(
    algorithm: str, kind: CollectiveKind, straggler: int, first: Schedule, second: Sequence[Sequence[Move]]
) -> Schedule:
    """The schedule of both phases, in which n - 1 stands for the straggler and the numbers below it for the others."""
    others = tuple(p for p in range(first.n + 1) if p != straggler)
    ranks = (*others, straggler)
    moves = [(t.round, t.src, t.dst, t.chunk, t.op) for t in first.transfers]
    moves += [(number, *move) for number, now in enumerate(second, first.rounds) for move in now]
    return Schedule(
        algorithm=algorithm,
        kind=kind,
        n=len(ranks),
        chunks=len(others),
        owner=others,
        transfers=tuple(Transfer(round_, ranks[src], ranks[dst], chunk, op) for round_, src, dst, chunk, op in moves),
        one_port=True,
        straggler=straggler,
        first_phase=first.rounds,
    )
