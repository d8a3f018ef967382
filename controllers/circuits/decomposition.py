"""Decomposition of a demand matrix into slots: matchings, and how long each must be up to serve all demand.

``matrix[i][j]`` is the demand from position i to position j, in any one unit; the lengths of slots have the same unit.
All computations are exact (integers) and rounded once, at the end.

Sources: Birkhoff, 1946, and von Neumann, 1953 (a matrix with equal line sums is a weighted sum of permutations);
longest slots first as in Solstice, Liu et al., CoNEXT'15; as many slots as a position has partners are enough: Koenig,
1916.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import fsum, isfinite, lcm

from controllers.circuits.matchings import Pair, Pairs, one_factorization
from controllers.circuits.rotation import Demand
from railyard.errors import ConfigError

IntMatrix = list[list[int]]
"""A square matrix of integers."""
IntSlot = tuple[Pairs, int]
"""The pairs of a slot and its length, as an integer."""
Choice = Callable[[dict[Pair, int]], Pairs]
"""A function that chooses the pairs of the next slot among the pairs that still have demand."""
MAX_TRIED = 16
"""The most combinations of long slots and slots for the remaining demand that are compared."""


@dataclass(frozen=True)
class DemandSlot:
    """A slot in which ``pairs`` have a circuit for ``length``, in the unit of the demand.

    Pairs are directed, (sender, receiver), from ``birkhoff_von_neumann``; otherwise both ways, the lower position
    first.
    """

    pairs: Pairs
    length: float


def check_demand(matrix: Sequence[Sequence[float]], n: int) -> Demand:
    """``matrix`` as a demand between ``n`` positions.

    ``ConfigError`` unless it is n x n, with finite entries of 0 or more, 0 on the diagonal, and one entry above 0.
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
        total = fsum(map(fsum, checked))
    except OverflowError:
        raise ConfigError("has entries too large to be added up; choose a larger unit", key="demand") from None
    if not total:
        raise ConfigError("must have at least one entry above 0", key="demand")
    return checked


def _check_row(i: int, row: Sequence[float]) -> None:
    for j, entry in enumerate(row):
        if not (isfinite(entry) and entry >= 0):
            raise ConfigError(f"entry ({i}, {j}) must be a finite number of 0 or more, not {entry:g}", key="demand")
    if row[i]:
        raise ConfigError(
            f"entry ({i}, {i}) must be 0, not {row[i]:g}: a position does not send to itself", key="demand"
        )


# ---- a port to send and another to receive ---------------------------------------------------------------------------


def birkhoff_von_neumann(matrix: Sequence[Sequence[float]], most_slots: int = 0) -> tuple[DemandSlot, ...]:
    """Partial permutations that together serve every demand; pairs are (sender, receiver), without i -> i.

    For each pair the lengths of its slots add up to at least its demand. With any number of slots (``most_slots`` 0)
    all lengths together are the largest row or column sum, which no schedule can beat. With fewer, the longest slots of
    that decomposition come first, and each remaining demand is served in one slot, as long as the largest demand in it:
    longer together, but not more than ``most_slots``.

    ``ConfigError`` for an invalid demand (``check_demand``), and if ``most_slots`` is less than the number of partners
    that some position sends to or receives from, naming the least that works.
    """
    _check_most_slots(most_slots)
    demand, unit = _to_integers(check_demand(matrix, len(matrix)))
    slots = list(_slices(demand))
    if most_slots and len(slots) > most_slots:
        least = _degree(demand)
        if most_slots < least:
            raise ConfigError(
                f"{most_slots} slots cannot serve a position that sends to, or receives from, {least} others; "
                f"at least {least} slots work",
                key="most_slots",
            )
        slots = _bounded(demand, slots, most_slots)
    return _in_demand_unit(slots, unit)


def _slices(demand: IntMatrix) -> Iterator[IntSlot]:
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


def _bounded(demand: IntMatrix, slots: list[IntSlot], most: int) -> list[IntSlot]:
    """The first of ``slots``, then slots that serve whole entries: at most ``most``, split where the total is least."""
    left = [row[:] for row in demand]
    best: list[IntSlot] = []
    stride = -(-most // MAX_TRIED)
    for kept in range(most):
        if kept % stride == 0 and _degree(left) <= most - kept:
            tried = [*slots[:kept], *_whole_entries(left, most - kept)]
            if not best or _total(tried) < _total(best):
                best = tried
        pairs, length = slots[kept]
        for i, j in pairs:
            left[i][j] = max(0, left[i][j] - length)
    return best


def _whole_entries(left: IntMatrix, most: int) -> Iterator[IntSlot]:
    """At most ``most`` slots (``_degree`` or more) that serve each entry of ``left`` in one slot, small ones together.

    Every line is padded to ``most`` entries with slots in which it stays dark, so there is always a permutation.
    """
    left = [row[:] for row in left]
    dark = _padding([[int(entry > 0) for entry in row] for row in left], most)
    for _ in range(most):
        cost = [[0 if y else x or None for x, y in zip(*rows, strict=True)] for rows in zip(left, dark, strict=True)]
        chosen = _least_perfect(cost, floor=0)
        active = tuple((i, j) for i, j in chosen if not dark[i][j])
        if active:
            yield active, max(left[i][j] for i, j in active)
        for i, j in chosen:
            if dark[i][j]:
                dark[i][j] -= 1
            else:
                left[i][j] = 0


def _least_perfect(cost: Sequence[Sequence[int | None]], floor: int) -> Pairs:
    """The perfect matching (row, column) whose largest cost is least; None is no edge, a matching must exist.

    The search goes upwards from ``floor`` by one cost, then two, four, ..., since the answer is mostly near.
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
    import networkx  # here and below, because it takes 0.1 s and few policies need it

    n = len(cost)
    graph = networkx.Graph()
    graph.add_nodes_from(range(2 * n))
    graph.add_edges_from(
        (i, n + j) for i, row in enumerate(cost) for j, entry in enumerate(row) if entry is not None and entry <= most
    )
    matched = networkx.bipartite.hopcroft_karp_matching(graph, range(n))
    return tuple((i, matched[i] - n) for i in range(n)) if len(matched) == 2 * n else ()


def _padding(matrix: IntMatrix, line: int) -> IntMatrix:
    """The matrix to add so that every row and column adds up to ``line``."""
    n = len(matrix)
    rows = [line - sum(row) for row in matrix]
    columns = [line - sum(column) for column in zip(*matrix, strict=True)]
    added = [[0] * n for _ in range(n)]
    for i, j in product(range(n), repeat=2):
        added[i][j] = more = min(rows[i], columns[j])
        rows[i] -= more
        columns[j] -= more
    return added


def _line_sums(matrix: IntMatrix) -> list[int]:
    return [sum(line) for line in (*matrix, *zip(*matrix, strict=True))]


def _degree(matrix: IntMatrix) -> int:
    """The largest number of entries above 0 in a row or column."""
    return max(_line_sums([[int(entry > 0) for entry in row] for row in matrix]))


def _total(slots: Sequence[IntSlot]) -> int:
    return sum(length for _, length in slots)


def most_partners(matrix: Sequence[Sequence[float]]) -> int:
    """The most positions that one position sends to or receives from: the fewest slots that can serve the demand."""
    return _degree(_to_integers(check_demand(matrix, len(matrix)))[0])


# ---- one port for both: pairs, both ways at once ---------------------------------------------------------------------


def covering_matchings(matrix: Sequence[Sequence[float]], most_slots: int = 0) -> tuple[DemandSlot, ...]:
    """Matchings that together serve every demand, each pair in one slot: the best of four methods in total length.

    The methods are: in each slot the matching of largest demand; the pair of largest demand, then the next that fits;
    the matching that covers most positions with the most partners; and ``one_factorization`` without the pairs that
    have no demand. A slot is as long as the largest demand of its pairs in one direction. Results of more than
    ``most_slots`` slots (0: any number) are left out; ``ConfigError`` if all are, naming the number that would work.
    """
    _check_most_slots(most_slots)
    demand, unit = _to_integers(check_demand(matrix, len(matrix)))
    known = [list(_slots_by(demand, choice)) for choice in (_heaviest, _largest_first, _busiest)]
    known.append(list(_factored(demand)))
    fitting = [slots for slots in known if not most_slots or len(slots) <= most_slots]
    if not fitting:
        fewest = min(map(len, known))
        raise ConfigError(
            f"{most_slots} slots cannot serve all pairs that have a demand, with one circuit per position; "
            f"{fewest} slots work",
            key="most_slots",
        )
    return _in_demand_unit(min(fitting, key=_total), unit)


def _slots_by(demand: IntMatrix, choice: Choice) -> Iterator[IntSlot]:
    """Slots with the pairs that ``choice`` takes of those with remaining demand, until no pair is left."""
    left = _pair_demands(demand)
    while left:
        pairs = choice(left)
        yield pairs, _longest(demand, pairs)
        for pair in pairs:
            del left[pair]


def _factored(demand: IntMatrix) -> Iterator[IntSlot]:
    """The matchings of ``one_factorization`` as slots, without the pairs that have no demand."""
    wanted = _pair_demands(demand)
    for slot in one_factorization(len(demand)):
        pairs = tuple(pair for pair in slot if pair in wanted)
        if pairs:
            yield pairs, _longest(demand, pairs)


def _largest_first(left: dict[Pair, int]) -> Pairs:
    """A matching of the pairs in descending order of demand, each taken if both its positions are free."""
    taken: set[int] = set()
    pairs = []
    for a, b in sorted(left, key=lambda pair: (-left[pair], pair)):
        if not taken & {a, b}:
            taken |= {a, b}
            pairs.append((a, b))
    return tuple(pairs)


def _heaviest(left: dict[Pair, int]) -> Pairs:
    """The matching with the largest total demand."""
    import networkx

    graph = networkx.Graph()
    graph.add_weighted_edges_from((a, b, weight) for (a, b), weight in left.items())
    return tuple(sorted((min(pair), max(pair)) for pair in networkx.max_weight_matching(graph)))


def _busiest(left: dict[Pair, int]) -> Pairs:
    """The matching that covers most positions with the most partners, and of those the one of largest demand."""
    partners = Counter(position for pair in left for position in pair)
    most, first = max(partners.values()), sum(left.values()) + 1
    return _heaviest({pair: weight + first * sum(partners[p] == most for p in pair) for pair, weight in left.items()})


def _pair_demands(demand: IntMatrix) -> dict[Pair, int]:
    """The demand of each pair, both directions added up, for the pairs that have any."""
    sums = {(i, j): demand[i][j] + demand[j][i] for i, j in combinations(range(len(demand)), 2)}
    return {pair: weight for pair, weight in sums.items() if weight}


def _longest(demand: IntMatrix, pairs: Pairs) -> int:
    return max(max(demand[a][b], demand[b][a]) for a, b in pairs)


# ---- exact numbers ---------------------------------------------------------------------------------------------------


def _to_integers(demand: Demand) -> tuple[IntMatrix, int]:
    """The demand as integers, and the factor by which they are multiples of its own unit."""
    exact = [[Fraction(entry) for entry in row] for row in demand]
    unit = lcm(*(entry.denominator for row in exact for entry in row))
    return [[int(entry * unit) for entry in row] for row in exact], unit


def _in_demand_unit(slots: Sequence[IntSlot], unit: int) -> tuple[DemandSlot, ...]:
    return tuple(DemandSlot(pairs, float(Fraction(length, unit))) for pairs, length in slots)


def _check_most_slots(most_slots: int) -> None:
    if most_slots < 0:
        raise ConfigError(f"must be 0 (any number) or more, not {most_slots}", key="most_slots")
