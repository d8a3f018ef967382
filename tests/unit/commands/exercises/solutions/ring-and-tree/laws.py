"""A solution of lab ring-and-tree."""

from math import log2


def ring_s(ranks: int, wire_s: float, latency_s: float) -> float:
    return 2 * (ranks - 1) * (latency_s + wire_s / ranks)


def tree_s(ranks: int, wire_s: float, latency_s: float) -> float:
    return 2 * log2(ranks) * (latency_s + wire_s)


def faster(ranks: int, wire_s: float, latency_s: float) -> str:
    return "ring" if ring_s(ranks, wire_s, latency_s) < tree_s(ranks, wire_s, latency_s) else "tree"


def dark_s(ranks: int, delay_s: float) -> float:
    return (2 * log2(ranks) - 2) * delay_s
