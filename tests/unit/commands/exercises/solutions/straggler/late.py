"""A solution of lab straggler."""

from math import log2


def ring_s(ranks: int, wire_s: float, late_s: float) -> float:
    return late_s + 2 * (ranks - 1) / ranks * wire_s


def stragglar_s(ranks: int, wire_s: float, late_s: float) -> float:
    chunk_s = wire_s / (ranks - 1)
    return max(late_s, (ranks - 2) * chunk_s) + (ranks + log2(ranks) - 2) * chunk_s


def faster(ranks: int, wire_s: float, late_s: float) -> str:
    return "ring" if ring_s(ranks, wire_s, late_s) < stragglar_s(ranks, wire_s, late_s) else "stragglar"


def adds_s(rank: int, late_s: float) -> float:
    window_s = 0.0 if rank < 4 else 0.334
    return max(0.0, late_s - window_s)
