"""Matchings that join every pair of positions, slot by slot, whatever the traffic: the schedule of a rotor.

``n`` is the number of positions (0 to n - 1). With one port per position, which sends and receives, a slot is a set of
pairs (a 1-factorization of the complete graph). With a port to send and another to receive, a slot is a permutation.

Source: the circle method of Kirkman, 1847 (a round-robin tournament); cyclic shifts as in RotorNet, SIGCOMM'17.
"""

from __future__ import annotations

from railyard.errors import ConfigError

Pair = tuple[int, int]
"""Two positions: (sender, receiver) of a directed pair, otherwise the lower first."""
Pairs = tuple[Pair, ...]
Permutation = tuple[int, ...]
"""``p[i]`` is the position that receives from position ``i``."""


def one_factorization(n: int) -> tuple[Pairs, ...]:
    """The fewest matchings in which each pair of ``n`` positions occurs exactly once.

    n even: n - 1 perfect matchings; matching r joins n - 1 to r, and r + k to r - k (modulo n - 1, for k = 1 to
    n/2 - 1). n odd: n matchings; matching r leaves position r out. ``ConfigError`` below 2 positions.

    >>> one_factorization(4)
    (((0, 3), (1, 2)), ((1, 3), (0, 2)), ((2, 3), (0, 1)))
    """
    _check(n)
    around = n - 1 if n % 2 == 0 else n
    slots = []
    for r in range(around):
        across = [_pair((r + k) % around, (r - k) % around) for k in range(1, (around + 1) // 2)]
        slots.append(tuple(across if n % 2 else [(r, n - 1), *across]))
    return tuple(slots)


def cyclic_shifts(n: int) -> tuple[Permutation, ...]:
    """The n - 1 permutations in which position i sends to i + 1, to i + 2, and so on (modulo ``n``).

    Each ordered pair occurs in exactly one of them. ``ConfigError`` below 2 positions.

    >>> cyclic_shifts(3)
    ((1, 2, 0), (2, 0, 1))
    """
    _check(n)
    return tuple(tuple((i + shift) % n for i in range(n)) for shift in range(1, n))


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _check(n: int) -> None:
    if n < 2:
        raise ConfigError(f"matchings need at least 2 positions, not {n}", key="n")
