"""A demand matrix as turns of circuits: which matchings, and how long each must stand so that all demand is served.

``matrix[i][j]`` is what position i has to send to position j, in any one unit; the lengths that come out have the same
unit. Everything is exact inside (whole numbers) and rounded once, at the end.

Sources: Birkhoff, 1946, and von Neumann, 1953 (a matrix with equal line sums is a weighted sum of permutations);
longest turns first as in Solstice, Liu et al., CoNEXT'15; as many turns as a position has partners are enough: Koenig,
1916.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import fsum, isfinite, lcm

import networkx

from controllers.circuits.matchings import Pair, Pairs, one_factorization
from controllers.circuits.rotation import Demand
from railyard.errors import ConfigError

Whole = list[list[int]]
"""A square matrix of whole numbers."""
MatchingShare = tuple[Pairs, int]
"""The pairs of a turn and its length."""
Choice = Callable[[dict[Pair, int]], Pairs]
"""The pairs to join next, of those that still have something to send."""
MOST_TRIED = 16
"""How many mixes of long turns and turns for the rest are compared."""


@dataclass(frozen=True)
class Weighted:
    """A turn: ``pairs`` have a circuit for ``length``, in the unit of the demand.

    Directed, (sender, receiver), from ``birkhoff_von_neumann``; otherwise both ways, the lower position first.
    """

    pairs: Pairs
    length: float


def check_demand(matrix: Sequence[Sequence[float]], n: int) -> Demand:
    """``matrix`` as a demand between ``n`` positions.

    ``ConfigError`` unless it is n x n, every entry finite and 0 or more, 0 on the diagonal, and something is demanded.
    """
    shape = [len(row) for row in matrix]
    if shape != [n] * n:
        found = f"{len(shape)} rows of {', '.join(map(str, sorted(set(shape))))}" if shape else "empty"
        raise ConfigError(
            f"must be a matrix of {n} x {n}, a row for each of the {n} senders, not {found}", key="demand"
        )
    try:
        checked = tuple(tuple(float(entry) for entry in row) for row in matrix)
        for i, row in enumerate(checked):
            _check_row(i, row)
        whole = fsum(map(fsum, checked))
    except OverflowError:
        raise ConfigError("its entries are too large to be added up; choose a larger unit", key="demand") from None
    if not whole:
        raise ConfigError("must have an entry above 0; nobody demands anything", key="demand")
    return checked


def _check_row(i: int, row: Sequence[float]) -> None:
    for j, entry in enumerate(row):
        if not (isfinite(entry) and entry >= 0):
            raise ConfigError(f"entry ({i}, {j}) must be a finite number of 0 or more, not {entry:g}", key="demand")
    if row[i]:
        raise ConfigError(f"entry ({i}, {i}) must be 0, not {row[i]:g}: nobody sends to itself", key="demand")


# ---- a port to send and another to receive ---------------------------------------------------------------------------


def birkhoff_von_neumann(matrix: Sequence[Sequence[float]], most_slots: int = 0) -> tuple[Weighted, ...]:
    """Partial permutations that together serve every demand, each pair (sender, receiver) without i -> i.

    For each pair the lengths of its turns add up to at least its demand. With as many turns as it takes
    (``most_slots`` 0) all lengths together are the largest row or column sum, which no schedule can beat. With fewer,
    the longest turns of that decomposition come first and the rest is served whole, a turn as long as the largest
    demand in it: longer together, but not more than ``most_slots``.

    ``ConfigError`` for what is no demand (``check_demand``), and where ``most_slots`` is less than the partners that
    some position has to send to or to receive from, naming the least that works.
    """
    _check_most(most_slots)
    demand, unit = _whole(check_demand(matrix, len(matrix)))
    turns = list(_slices(demand))
    if most_slots and len(turns) > most_slots:
        least = _degree(demand)
        if most_slots < least:
            raise ConfigError(
                f"{most_slots} slots cannot serve a position that sends to, or receives from, {least} others; "
                f"at least {least} slots work",
                key="most_slots",
            )
        turns = _bounded(demand, turns, most_slots)
    return _weighted(turns, unit)


def _slices(demand: Whole) -> Iterator[MatchingShare]:
    """Permutations of the demand padded to equal line sums, the one whose smallest entry is largest first."""
    left = [row[:] for row in demand]
    padding = _padding(demand, max(_line_sums(demand)))
    length = max(map(max, demand))
    while any(map(any, left)):
        both = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(left, padding, strict=True)]
        cost = [[-entry if entry else None for entry in row] for row in both]
        chosen = _least_perfect(cost, floor=-length)
        length = min(both[i][j] for i, j in chosen)
        yield tuple((i, j) for i, j in chosen if left[i][j]), length
        for i, j in chosen:
            served = min(left[i][j], length)
            left[i][j] -= served
            padding[i][j] -= length - served


def _bounded(demand: Whole, turns: list[MatchingShare], most: int) -> list[MatchingShare]:
    """The first few of ``turns`` and whole demands afterwards, by whichever number of the first is best."""
    left = [row[:] for row in demand]
    best: list[MatchingShare] = []
    every = -(-most // MOST_TRIED)
    for kept in range(most):
        if kept % every == 0 and _degree(left) <= most - kept:
            tried = [*turns[:kept], *_whole_demands(left, most - kept)]
            if not best or _total(tried) < _total(best):
                best = tried
        pairs, length = turns[kept]
        for i, j in pairs:
            left[i][j] = max(0, left[i][j] - length)
    return best


def _whole_demands(left: Whole, most: int) -> Iterator[MatchingShare]:
    """At most ``most`` turns (``_degree`` or more) that serve each entry of ``left`` at once, small ones together.

    Every line is filled up to ``most`` entries with turns in which it stays dark, so a permutation can always be taken.
    """
    left = [row[:] for row in left]
    dark = _padding([[int(entry > 0) for entry in row] for row in left], most)
    for _ in range(most):
        cost = [[0 if y else x or None for x, y in zip(*rows, strict=True)] for rows in zip(left, dark, strict=True)]
        chosen = _least_perfect(cost, floor=0)
        lit = tuple((i, j) for i, j in chosen if not dark[i][j])
        if lit:
            yield lit, max(left[i][j] for i, j in lit)
        for i, j in chosen:
            if dark[i][j]:
                dark[i][j] -= 1
            else:
                left[i][j] = 0


def _least_perfect(cost: Sequence[Sequence[int | None]], floor: int) -> Pairs:
    """The perfect matching (row, column) whose largest cost is least; None is no edge, there must be a matching.

    It is looked for from ``floor`` on upwards, one cost further, then two, four, ..., as it is mostly near.
    """
    costs = sorted({floor, *(entry for row in cost for entry in row if entry is not None and entry > floor)})
    low, high, step = -1, 0, 1
    found = _perfect(cost, costs[0])
    while not found:
        low, high, step = high, min(high + step, len(costs) - 1), 2 * step
        found = _perfect(cost, costs[high])
    while high - low > 1:
        middle = (low + high) // 2
        tried = _perfect(cost, costs[middle])
        if tried:
            high, found = middle, tried
        else:
            low = middle
    return found


def _perfect(cost: Sequence[Sequence[int | None]], most: int) -> Pairs:
    """A perfect matching between rows and columns over the edges of at most this cost; () if there is none."""
    n = len(cost)
    graph = networkx.Graph()
    graph.add_nodes_from(range(2 * n))
    graph.add_edges_from(
        (i, n + j) for i, row in enumerate(cost) for j, entry in enumerate(row) if entry is not None and entry <= most
    )
    matched = networkx.bipartite.hopcroft_karp_matching(graph, range(n))
    return tuple((i, matched[i] - n) for i in range(n)) if len(matched) == 2 * n else ()


def _padding(matrix: Whole, line: int) -> Whole:
    """What must be added so that every row and column adds up to ``line``."""
    n = len(matrix)
    rows = [line - sum(row) for row in matrix]
    columns = [line - sum(column) for column in zip(*matrix, strict=True)]
    added = [[0] * n for _ in range(n)]
    for i, j in product(range(n), repeat=2):
        added[i][j] = more = min(rows[i], columns[j])
        rows[i] -= more
        columns[j] -= more
    return added


def _line_sums(matrix: Whole) -> list[int]:
    return [sum(line) for line in (*matrix, *zip(*matrix, strict=True))]


def _degree(matrix: Whole) -> int:
    """The most entries above 0 in a row or column."""
    return max(_line_sums([[int(entry > 0) for entry in row] for row in matrix]))


def _total(turns: Sequence[MatchingShare]) -> int:
    return sum(length for _, length in turns)


def most_partners(matrix: Sequence[Sequence[float]]) -> int:
    """The most positions that one position sends to or receives from: as many turns serve each demand at once."""
    return _degree(_whole(check_demand(matrix, len(matrix)))[0])


# ---- one port for both: pairs, both ways at once ---------------------------------------------------------------------


def optimal_matching(matrix: Sequence[Sequence[float]]) -> Pairs:
    """The matching whose pairs have most to send to each other, both directions added up."""
    demand, _ = _whole(check_demand(matrix, len(matrix)))
    return _heaviest(_both_ways(demand))


def greedy_matchings(matrix: Sequence[Sequence[float]]) -> tuple[Weighted, ...]:
    """Matchings that together serve every demand: each takes the pair with most to send, then the next that fits.

    Each pair stands in one turn, which is as long as the most that one of its pairs has to send in one direction.
    """
    return _undirected(matrix, _largest_first)


def optimal_matchings(matrix: Sequence[Sequence[float]]) -> tuple[Weighted, ...]:
    """The same, each the ``optimal_matching`` of what is left."""
    return _undirected(matrix, _heaviest)


def covering_matchings(matrix: Sequence[Sequence[float]], most_slots: int = 0) -> tuple[Weighted, ...]:
    """Matchings that together serve every demand, each pair in one turn: the shortest together of what is known.

    Compared are greedy and optimal ones, optimal ones among those that relieve the positions with most partners, and
    the pairs of ``one_factorization`` that have something to send. ``most_slots`` (0: any number) leaves out what takes
    more turns; ``ConfigError`` if all of them do, naming how many would do.
    """
    _check_most(most_slots)
    demand, unit = _whole(check_demand(matrix, len(matrix)))
    known = [list(_in_turns(demand, choice)) for choice in (_heaviest, _largest_first, _busiest)]
    known.append(list(_factored(demand)))
    fitting = [turns for turns in known if not most_slots or len(turns) <= most_slots]
    if not fitting:
        fewest = min(map(len, known))
        raise ConfigError(
            f"{most_slots} slots cannot serve all pairs that have something to send, at most one circuit for each "
            f"position; {fewest} slots work",
            key="most_slots",
        )
    return _weighted(min(fitting, key=_total), unit)


def _undirected(matrix: Sequence[Sequence[float]], choice: Choice) -> tuple[Weighted, ...]:
    demand, unit = _whole(check_demand(matrix, len(matrix)))
    return _weighted(list(_in_turns(demand, choice)), unit)


def _in_turns(demand: Whole, choice: Choice) -> Iterator[MatchingShare]:
    """What ``choice`` takes of the pairs that are left, until none is."""
    left = _both_ways(demand)
    while left:
        pairs = choice(left)
        yield pairs, _longest(demand, pairs)
        for pair in pairs:
            del left[pair]


def _factored(demand: Whole) -> Iterator[MatchingShare]:
    """The turns of ``one_factorization``, without the pairs that demand nothing."""
    wanted = _both_ways(demand)
    for turn in one_factorization(len(demand)):
        pairs = tuple(pair for pair in turn if pair in wanted)
        if pairs:
            yield pairs, _longest(demand, pairs)


def _largest_first(left: dict[Pair, int]) -> Pairs:
    """Pair by pair, the one with most to send first, as long as both are free."""
    taken: set[int] = set()
    pairs = []
    for a, b in sorted(left, key=lambda pair: (-left[pair], pair)):
        if not taken & {a, b}:
            taken |= {a, b}
            pairs.append((a, b))
    return tuple(pairs)


def _heaviest(left: dict[Pair, int]) -> Pairs:
    """The matching with most to send."""
    graph = networkx.Graph()
    graph.add_weighted_edges_from((a, b, weight) for (a, b), weight in left.items())
    return tuple(sorted((min(pair), max(pair)) for pair in networkx.max_weight_matching(graph)))


def _busiest(left: dict[Pair, int]) -> Pairs:
    """The matching with as many as can be of the positions that have most partners, and then most to send."""
    partners = Counter(position for pair in left for position in pair)
    most, first = max(partners.values()), sum(left.values()) + 1
    return _heaviest({pair: weight + first * sum(partners[p] == most for p in pair) for pair, weight in left.items()})


def _both_ways(demand: Whole) -> dict[Pair, int]:
    """What the pairs that demand anything have to send to each other, both directions added up."""
    sums = {(i, j): demand[i][j] + demand[j][i] for i, j in combinations(range(len(demand)), 2)}
    return {pair: weight for pair, weight in sums.items() if weight}


def _longest(demand: Whole, pairs: Pairs) -> int:
    return max(max(demand[a][b], demand[b][a]) for a, b in pairs)


# ---- exact numbers ---------------------------------------------------------------------------------------------------


def _whole(demand: Demand) -> tuple[Whole, int]:
    """The demand in whole numbers, and how many of them are one of its own unit."""
    exact = [[Fraction(entry) for entry in row] for row in demand]
    unit = lcm(*(entry.denominator for row in exact for entry in row))
    return [[int(entry * unit) for entry in row] for row in exact], unit


def _weighted(turns: Sequence[MatchingShare], unit: int) -> tuple[Weighted, ...]:
    return tuple(Weighted(pairs, float(Fraction(length, unit))) for pairs, length in turns)


def _check_most(most_slots: int) -> None:
    if most_slots < 0:
        raise ConfigError(f"must be 0 (as many as it takes) or more, not {most_slots}", key="most_slots")
