"""The matchings that join everybody to everybody in turns, whatever the traffic: what a rotor steps through.

``n`` is the number of positions (0 to n - 1). With one port per position, which sends and receives, a turn is a set of
pairs (a 1-factorization of the complete graph). With a port to send and another to receive, a turn is a permutation.

Source: the circle method of Kirkman, 1847 (a round-robin tournament); cyclic shifts as in RotorNet, SIGCOMM'17.
"""

from __future__ import annotations

from railyard.errors import ConfigError

Pair = tuple[int, int]
"""Two positions; the lower first where no direction is meant, otherwise (sender, receiver)."""
Pairs = tuple[Pair, ...]
Permutation = tuple[int, ...]
"""``p[i]`` is the position that receives from position ``i``."""


def one_factorization(n: int) -> tuple[Pairs, ...]:
    """Turns in which each pair of ``n`` positions meets exactly once, as few as can be.

    n even: n - 1 perfect matchings; turn r joins n - 1 to r, and r + k to r - k (modulo n - 1, for k = 1 to n/2 - 1).
    n odd: n matchings, each with one position left out (the bye of turn r is r). ``ConfigError`` below 2 positions.

    >>> one_factorization(4)
    (((0, 3), (1, 2)), ((1, 3), (0, 2)), ((2, 3), (0, 1)))
    """
    _check(n)
    around = n - 1 if n % 2 == 0 else n
    turns = []
    for r in range(around):
        across = [_pair((r + k) % around, (r - k) % around) for k in range(1, (around + 1) // 2)]
        turns.append(tuple(across if n % 2 else [(r, n - 1), *across]))
    return tuple(turns)


def perfect_matchings(n: int) -> tuple[Pairs, ...]:
    """The n - 1 matchings of ``one_factorization`` that leave nobody out.

    ``ConfigError`` for an odd ``n``, which has no perfect matching, naming what works instead.
    """
    _check(n)
    if n % 2:
        raise ConfigError(
            f"{n} positions have no perfect matching, one is always left out; take {n + 1} or {n - 1} of them, "
            f"or {n} matchings with a bye each (one_factorization), or {n - 1} cyclic shifts, which need a port to "
            "send and another to receive (simplex)",
            key="n",
        )
    return one_factorization(n)


def cyclic_shifts(n: int) -> tuple[Permutation, ...]:
    """The n - 1 permutations in which position i sends to i + 1, to i + 2, and so on (modulo ``n``).

    Each ordered pair stands in exactly one. ``ConfigError`` below 2 positions.

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
