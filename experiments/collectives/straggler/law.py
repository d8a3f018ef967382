"""Closed forms for the time of all-reduces with one late rank: Ring, halving-doubling, Direct and StragglAR.

Alpha-beta costs: a message of x bytes takes ``alpha_s`` + x / rate. Source: StragglAR, arXiv 2505.23523, section 4; the
break-even points follow from its costs. ``delay_s`` is the time from the other ranks' arrival to the straggler's.
``round_s`` is our addition: what a round of StragglAR costs beside its bytes (calls, a kernel that adds). One number,
fitted to the authors' 1.25x on 8 GPUs, also gives their break-even delay on H100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.collectives.stragglar import eager_piece_count

PAPER_ALGORITHMS = ("ring", "recursive-halving-doubling", "straggler-direct", "stragglar")
"""The algorithms that the paper compares, by their names in the catalog."""
EAGER = "stragglar-eager"
LAW_ALGORITHMS = (*PAPER_ALGORITHMS, EAGER)
"""The algorithms with a closed form."""


@dataclass(frozen=True)
class StragglerLaw:
    """Closed forms for all-reduces of ``bytes`` over ``n`` ranks, 3 or more, whose ports carry ``bytes_per_s``.

    ``alpha_s`` is the latency of a round, ``rounds`` the number of rounds of StragglAR's second phase (0: n + log2 n -
    2, those of powers of two), ``round_s`` the cost of each round of StragglAR. All times are in seconds.
    """

    n: int
    bytes: int
    alpha_s: float
    bytes_per_s: float
    rounds: int = 0
    round_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.rounds:
            object.__setattr__(self, "rounds", self.n + self.levels - 2)

    @property
    def wire_s(self) -> float:
        """Time of the whole buffer through one port (s b in StragglAR's notation)."""
        return self.bytes / self.bytes_per_s

    @property
    def levels(self) -> int:
        """L = log2 n, rounded up: the rounds of a binomial tree over all ranks."""
        return (self.n - 1).bit_length()

    @property
    def ring_s(self) -> float:
        """Time of Ring from the last arrival; before that it makes no progress."""
        return _ring_s(self.n, self.wire_s, self.alpha_s)

    @property
    def halving_doubling_s(self) -> float:
        """Time of recursive halving and doubling from the last arrival, for n that is a power of two."""
        return 2 * self.levels * self.alpha_s + 2 * (self.n - 1) / self.n * self.wire_s

    @property
    def direct_first_phase_s(self) -> float:
        """Time of Direct's first phase, a ring all-reduce among the ranks other than the straggler."""
        return _ring_s(self.n - 1, self.wire_s, self.alpha_s)

    @property
    def direct_s(self) -> float:
        """Time of Direct after its first phase: the whole buffer is exchanged with one rank, then sent down a tree."""
        return self.levels * (self.alpha_s + self.wire_s)

    @property
    def first_phase_s(self) -> float:
        """T_RS, time of StragglAR's first phase: a ring reduce-scatter among the others, n - 2 rounds of a chunk each.

        There are n - 1 chunks.
        """
        return (self.n - 2) * self._chunk_round_s

    @property
    def second_phase_s(self) -> float:
        """Time of StragglAR after the straggler's arrival and the first phase."""
        return self.rounds * self._chunk_round_s

    @property
    def _chunk_round_s(self) -> float:
        return self.alpha_s + self.round_s + self.wire_s / (self.n - 1)

    @property
    def critical_delay_s(self) -> float:
        """T_crit, the delay from which on StragglAR is faster than Ring; infinite if it never is (n = 3)."""
        delay = self.first_phase_s + self.second_phase_s - self.ring_s
        return delay if delay < self.first_phase_s else math.inf

    @property
    def speedup(self) -> float:
        """Time of Ring over StragglAR after arrival, at delays of at least ``first_phase_s``."""
        return self.ring_s / self.second_phase_s

    @property
    def critical_bytes(self) -> float:
        """Buffer from which on StragglAR is faster than halving-doubling past its first phase, at the same latency."""
        round_s = self._chunk_round_s - self.alpha_s
        gain_s = self.halving_doubling_s - 2 * self.levels * self.alpha_s - self.rounds * round_s
        return (self.rounds - 2 * self.levels) * self.alpha_s * self.bytes / gain_s if gain_s > 0 else math.inf

    @property
    def critical_reconfiguration_s(self) -> float:
        """Reconfiguration delay above which StragglAR, with circuits that change each round, loses to a static ring."""
        return max(self.ring_s - self.second_phase_s, 0.0) / self.rounds

    def knows(self, algorithm: str) -> bool:
        """Whether ``algorithm`` has a closed form for these ranks."""
        halving = algorithm == "recursive-halving-doubling"
        return algorithm in LAW_ALGORITHMS and not (halving and self.n & (self.n - 1))

    def after_arrival_s(self, algorithm: str, delay_s: float) -> float:
        """Time from the straggler's arrival to the end, for an algorithm that the law ``knows``."""
        if algorithm == "ring":
            return self.ring_s
        if algorithm == "recursive-halving-doubling":
            return self.halving_doubling_s
        if algorithm == "straggler-direct":
            return max(0.0, self.direct_first_phase_s - delay_s) + self.direct_s
        if algorithm == "stragglar":
            return max(0.0, self.first_phase_s - delay_s) + self.second_phase_s
        assert algorithm == EAGER
        return self.eager_s(delay_s)

    def eager_share(self, delay_s: float) -> float:
        """Share of the buffer whose first phase eager StragglAR has begun ``delay_s`` after all but one rank came.

        A piece of n - 2 rounds begins when the middle one of the piece before has left. The first begins at once, and
        the second half a piece later. From then on the rounds of two take turns: a piece begins half a piece and one
        round before the end of the one before.
        """
        pieces = eager_piece_count(self.n, self.rounds)
        sent = delay_s / self.first_phase_s * pieces
        begun = 1 + math.floor(sent + 0.5 + 1 / (self.n - 2)) if sent >= 0.5 else 1
        return min(1.0, begun / pieces)

    def eager_s(self, delay_s: float) -> float:
        """Time of eager StragglAR from the arrival of the last rank, whichever it is, ``delay_s`` after the one before.

        The pieces that have begun are finished, since none may be given up, and take the second phase; the rest of the
        buffer takes Ring. Derived here: with T the delay, s the share begun, and T_RS, P and R the times of the first
        phase, the second and Ring, it is max(0, s T_RS - T) + s P + (1 - s) R. So it falls from R + T_crit / pieces
        for T = 0 to P for T >= T_RS, and never has to know T: where StragglAR has a break-even, a delay below it is
        already of use. It is the least of all when the first phase is given up at T: s = T / T_RS.
        """
        share = self.eager_share(delay_s)
        left_s = max(0.0, share * self.first_phase_s - delay_s)
        return left_s + share * self.second_phase_s + (1 - share) * self.ring_s

    def total_s(self, algorithm: str, delay_s: float, second_s: float = 0.0) -> float:
        """Time from the arrival of the other ranks to the end.

        ``second_s``: lateness of one of those others, for which a first phase waits. So StragglAR is faster than Ring
        as long as the second rank comes more than ``critical_delay_s`` before the straggler.
        """
        last_s = max(delay_s, second_s)
        return last_s + self.after_arrival_s(algorithm, max(0.0, delay_s - second_s))

    def buckets_s(self, algorithms: Sequence[str], delay_s: float, second_s: float = 0.0) -> float:
        """Time of all-reduces one after another, each of ``bytes``, by their algorithms (the buckets of a step).

        The straggler is late for the first alone: it is ready for the others when that is over, as all ranks are.
        """
        first_s = self.total_s(algorithms[0], delay_s, second_s)
        return first_s + sum(self.total_s(name, 0.0) for name in algorithms[1:])

    def across_s(self, groups: int) -> float:
        """Time of a ring all-reduce of the buffer among the ranks of one place in ``groups`` groups of n ranks."""
        return _ring_s(groups, self.wire_s, self.alpha_s)

    def step_gain(self, all_reduce_share: float, delay_s: float, right: float = 1.0) -> float:
        """By how much a training step is longer with Ring than with StragglAR, relative to the latter.

        ``all_reduce_share`` is Ring's share of a step, ``delay_s`` that of a rank that is late in every step;
        StragglAR expects the late rank in the share ``right`` of the steps, and another rank in the others.
        """
        ring_step_s = self.ring_s / all_reduce_share
        own_s = right * self.total_s("stragglar", delay_s) + (1 - right) * self.wrong_s(delay_s)
        return ring_step_s / (ring_step_s - self.total_s("ring", delay_s) + own_s) - 1

    def wrong_s(self, delay_s: float, algorithm: str = "stragglar") -> float:
        """Total time if another rank than the predicted one is late: all phases follow the delay, unless eager."""
        return self.total_s(EAGER, delay_s) if algorithm == EAGER else delay_s + self.total_s(algorithm, 0.0)


def _ring_s(n: int, wire_s: float, alpha_s: float) -> float:
    """Time of a ring all-reduce of a buffer that takes ``wire_s`` through a port."""
    return 2 * (n - 1) * alpha_s + 2 * (n - 1) / n * wire_s
