"""What an all-to-all must take: slot by slot over circuits that take turns, and the bound of the wire elsewhere.

Source: PIP, arXiv 2501.18136: with D bytes per pair and a reconfiguration T before each of the n - 1 matchings,
(n - 1)(D / B + T). Other demands and ways have other slots, each as long as its longest transfer.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.decomposition import birkhoff_von_neumann, covering_matchings
from controllers.matchings import cyclic_shifts, one_factorization
from controllers.rotation import Cycle
from railyard.case import Case
from railyard.case_row import wire_bound_s
from railyard.scale import goodput_share


def formula(case: Case) -> float:
    """What the all-to-all must take (``all_to_all_columns``), in seconds of the real system."""
    cycle, rate = case.cycle, bytes_per_s(case)
    if cycle is None:
        return wire_bound_s(case)
    turns = [(longest / rate, case.reconfiguration_delay_s) for longest in longest_transfers(case, cycle)]
    return sum(map(sum, turns))


def longest_transfers(case: Case, cycle: Cycle) -> list[float]:
    """Bytes of the longest transfer in each slot that is needed, in order."""
    n = case.schedule.n
    if cycle.demand:
        found = birkhoff_von_neumann if cycle.simplex else covering_matchings
        return [turn.length for turn in found(cycle.demand, cycle.most_slots)]
    turns = cyclic_pairs(n) if cycle.simplex else [both_ways(pairs) for pairs in one_factorization(n)]
    hops: list[dict[tuple[int, int], float]] = [{} for _ in range(case.schedule.rounds)]
    size = case.bytes * n
    whole = sum(case.schedule.weights) or case.schedule.chunks
    for t in case.schedule.transfers:
        share = (case.schedule.weights[t.chunk] if case.schedule.weights else 1) / whole
        hops[t.round][t.src, t.dst] = hops[t.round].get((t.src, t.dst), 0.0) + size * share
    return [max((hop.get(pair, 0.0) for pair in pairs), default=0.0) for hop in hops for pairs in turns]


def cyclic_pairs(n: int) -> list[list[tuple[int, int]]]:
    """(sender, receiver) of each cyclic shift."""
    return [list(enumerate(shift)) for shift in cyclic_shifts(n)]


def both_ways(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each pair in both directions."""
    return [way for a, b in pairs for way in ((a, b), (b, a))]


def bytes_per_s(case: Case) -> float:
    """The payload that one rank's ports carry together one way."""
    ports = 2 if case.cycle is None and case.fabric.ports_per_rank > 1 else 1
    return ports * case.fabric.port_gbps * 1e9 / 8 * goodput_share(case.fabric.mtu)
