"""Phase 2 of StragglAR for n up to 64: swaps with the straggler as for powers of two, spreading by weighted matching.

Rank n - 1 is the straggler, rank k owns chunk k; in round r <= n - 2 rank r exchanges partial sums with the straggler.
The other transfers of that round are a matching of great weight found by local search: for even n of disjoint pairs,
for odd n (not in the paper) from senders to receivers, each at most once. A transfer weighs more the closer its chunk
is to its deadline: the chunk must double to reach all ranks in time, its receiver has no other round for it, or its
receiver is about to meet the straggler. The additional weights are searched: attempts with different weights and
tie-breaks, each from a seed of its own, first for the least number of rounds, n + L - 2 with L = ceil(log2 n), then for
more. An attempt ends as soon as a chunk cannot arrive in time. ``FOUND`` has the attempts that succeed.

Source: arXiv 2505.23523 (even n: greedy matching with the critical window as a filter). The weights, the search and odd
n are our own; it needs fewer rounds than published for n = 12, 14 and 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random

from workloads.collectives.spread import Move, swap

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
    found = _attempt(n, n + (n - 1).bit_length() - 2 + spare, _some_weights(random), random)
    assert found is not None, f"FOUND has no attempt that succeeds for {n} ranks"
    return found


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
        """The best transfer between each two of ``ranks``."""
        wanted = {chunk: self._growth(chunk, now) for chunk in self.live(now)}
        nothing = dict.fromkeys(ranks, (0.0, -1))
        holders = {chunk: [src for src in ranks if self.have[src] >> chunk & 1] for chunk in wanted}
        found: Best = {}
        for dst in ranks:
            found[dst] = row = nothing.copy()
            candidates = [] if dst == self.n - 1 else self._candidates(dst, now, wanted)
            for weight, chunk in reversed(candidates):  # the heaviest is written last
                row.update(dict.fromkeys(holders[chunk], (weight, chunk)))
        return found

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
        """Record the chunks that the ranks receive in round ``now``."""
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
