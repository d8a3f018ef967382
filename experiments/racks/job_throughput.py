"""Throughput of each job over time, from the payload bytes in the events of its agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.racks.incarnations import JobIncarnation, incarnations_of, jobs_of, read_incarnations
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.timeline import Event

_MOST_BINS = 100_000


@dataclass(frozen=True)
class JobThroughput:
    """Throughput of a job in bins, summed over its ranks.

    ``gbps[i]`` is the rate of received payload, in Gb/s of the real system, between ``edges_s[i]`` and
    ``edges_s[i + 1]``, in real seconds after the time zero of ``job_throughputs``.
    """

    job: str
    edges_s: tuple[float, ...]
    gbps: tuple[float, ...]


def job_throughputs(
    events: Sequence[Event], scale: Scale, zero: float, bin_s: float = 0.5
) -> Mapping[str, JobThroughput]:
    """The throughput of every job in bins of ``bin_s`` real seconds, one of which begins at ``zero`` (event clock).

    A transfer counts evenly from its first byte to its last, at the receiving rank. Without recorded transfers the sent
    bytes of communications count. ``ConfigError`` for a bin that is not above 0.
    """
    if not bin_s > 0:
        raise ConfigError(f"must be above 0, not {bin_s:g}", key="bin_s")
    incarnations = read_incarnations(events)
    moved = {job: _moved(incarnations_of(incarnations, job)) for job in jobs_of(incarnations)}
    times = [t for parts in moved.values() for start, end, _ in parts for t in (start, end)]
    if not times:
        return {}
    edges = _edges((min(times) - zero) / scale.time, (max(times) - zero) / scale.time, bin_s)
    return {job: JobThroughput(job, tuple(edges), _gbps(parts, edges, zero, scale)) for job, parts in moved.items()}


def _edges(first_s: float, last_s: float, bin_s: float) -> NDArray[np.float64]:
    """Edges of bins over the whole time; the bins are wider if there would be more than ``_MOST_BINS``."""
    bin_s = max(bin_s, (last_s - first_s) / _MOST_BINS)
    return np.arange(np.floor(first_s / bin_s), np.ceil(last_s / bin_s) + 1) * bin_s


def _moved(incarnations: Iterable[JobIncarnation]) -> list[tuple[float, float, float]]:
    """(time of first byte, time of last byte, emulated bytes) of all transfers of a job."""
    events = [e for incarnation in incarnations for e in incarnation.events if e.end is not None]
    found = [(e.t, e.end or e.t, float(e["bytes"])) for e in events if e.kind == "transfer"]
    if found:
        return found
    communications = [e for e in events if e.kind == "communicate"]
    return [(e.t, e.end or e.t, float(e.get("payload_bytes", e.get("sent_bytes", 0)))) for e in communications]


def _gbps(
    parts: Iterable[tuple[float, float, float]], edges: NDArray[np.float64], zero: float, scale: Scale
) -> tuple[float, ...]:
    width = float(edges[1] - edges[0])
    found = np.zeros(len(edges) - 1)
    for start, end, size in parts:
        low, high = ((t - zero) / scale.time for t in (start, end))
        one = min(int((low - edges[0]) / width), len(found) - 1)
        other = min(int((high - edges[0]) / width), len(found) - 1)
        if other == one:
            found[one] += size
            continue
        inside = np.minimum(edges[one + 1 : other + 2], high) - np.maximum(edges[one : other + 1], low)
        found[one : other + 1] += size * inside / (high - low)
    return tuple(float(rate) for rate in scale.real_bytes(1.0) * found * 8 / width / 1e9)
