"""Computes link throughput over time from the sampler's counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from railyard.scale import Scale
from railyard.timeline import Event


@dataclass(frozen=True)
class Throughput:
    """Throughput of one interface: ``tx_gbps[i]`` and ``rx_gbps[i]`` from ``edges_s[i]`` to ``edges_s[i + 1]``.

    Edges are wall-clock seconds (the clock of the events); rates are those of the real system, in Gb/s, Ethernet
    headers included.
    """

    interface: str
    rank: int
    lane: int
    edges_s: tuple[float, ...]
    tx_gbps: tuple[float, ...]
    rx_gbps: tuple[float, ...]


def throughputs(events: Iterable[Event], scale: Scale) -> tuple[Throughput, ...]:
    """Throughput of every interface, sorted by rank and lane; a counter that was reset gives 0 for that sample."""
    samples: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.kind == "bytes":
            samples[e["interface"]].append(e)
    return tuple(
        sorted((_series(i, s, scale) for i, s in samples.items() if len(s) > 1), key=lambda t: (t.rank, t.lane))
    )


def _series(interface: str, samples: list[Event], scale: Scale) -> Throughput:
    ordered = sorted(samples, key=lambda e: e.t)
    edges, tx, rx = [ordered[0].t], [], []
    for one, other in pairwise(ordered):
        seconds = other.t - one.t
        if seconds <= 0:
            continue
        edges.append(other.t)
        tx.append(_gbps(other["tx_bytes"] - one["tx_bytes"], seconds, scale))
        rx.append(_gbps(other["rx_bytes"] - one["rx_bytes"], seconds, scale))
    first = ordered[0]
    return Throughput(interface, first["rank"], first["lane"], tuple(edges), tuple(tx), tuple(rx))


def _gbps(emulated_bytes: int, wall_s: float, scale: Scale) -> float:
    """Rate in Gb/s of the real system; the time scale of bytes and seconds cancels out."""
    return max(0.0, scale.real_bytes(emulated_bytes) * 8 / scale.real_s(wall_s) / 1e9)
