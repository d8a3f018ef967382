"""Link throughput over time, from the counters that the sampler wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from railyard.scale import Scale
from railyard.timeline import Event


@dataclass(frozen=True)
class Throughput:
    """One interface: between ``edges_s[i]`` and ``edges_s[i + 1]`` it sent at ``tx_gbps[i]`` and got ``rx_gbps[i]``.

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
    """Every interface of the counters, by rank and lane. A counter that was set back gives 0 for that sample."""
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
    """Gb/s of the real system; bytes and seconds both carry the time scale, so it cancels."""
    return max(0.0, scale.real_bytes(emulated_bytes) * 8 / scale.real_s(wall_s) / 1e9)
