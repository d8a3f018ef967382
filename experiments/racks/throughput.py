"""Throughput of each job over time, around the fault of a run, from the payload bytes in the events of its agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from experiments.racks.recovery import JobIncarnation, read_incarnations, recoveries
from experiments.racks.row import FailoverRow
from measure.metrics.point import within
from measure.results.row import Row
from railyard.scale import Scale
from railyard.timeline import Event

_MOST_BINS = 100_000
_BINS_PER_STEP = 8
_SHORTEST_BIN_S = 0.05
_MOST_RUNS = 6
_INSTANT_S = 1e-9
"""Duration of a transfer without one, so that it has a rate."""


@dataclass(frozen=True)
class JobThroughput:
    """Throughput of a job in bins, summed over its ranks.

    ``gbps[i]`` is the rate of received payload, in Gb/s of the real system, between ``edges_s[i]`` and
    ``edges_s[i + 1]``, in real seconds after the time zero of ``job_throughputs``.
    """

    edges_s: tuple[float, ...]
    gbps: tuple[float, ...]


@dataclass(frozen=True)
class FabricRun:
    """One fault on one fabric: its recovery, and the throughput of the job and, if there is one, its neighbour."""

    fabric: str
    system: str
    recovery: FailoverRow
    series: tuple[JobThroughput, ...]

    @property
    def marks(self) -> dict[str, float]:
        """The ends of the parts of the recovery in seconds after the fault, by name."""
        names = [name for name, _ in self.recovery.breakdown]
        return dict(zip(names, accumulate(seconds for _, seconds in self.recovery.breakdown), strict=True))


def fabric_runs(events: Sequence[Event], rows: Iterable[Row], scale: Scale) -> Iterator[FabricRun]:
    """The first run with a fault on each fabric, at most ``_MOST_RUNS``; of repeats one that a row shows.

    A run is the time of a ``run point`` event, whose ``mode`` is the name of the fabric in the rows.
    """
    rows = list(rows)
    systems = {row["fabric"]: row["system"] for row in rows}
    shown: dict[str, set[int]] = {}
    for row in rows:
        if row.get("point") is not None:
            shown.setdefault(row["fabric"], set()).add(row["point"])
    drawn: set[str] = set()
    for e in events:
        if e.source != "run" or e.kind != "point" or e.end is None or e["mode"] in drawn or len(drawn) >= _MOST_RUNS:
            continue
        if e["mode"] in shown and e.get("point") not in shown[e["mode"]]:
            continue
        run = fabric_run(within(events, e.t, e.end), e["mode"], systems.get(e["mode"], ""), scale)
        if run is not None:
            drawn.add(e["mode"])
            yield run


def fabric_run(events: Sequence[Event], fabric: str, system: str, scale: Scale) -> FabricRun | None:
    """The first fault of a run with the throughput around it; None if no job lost a chip."""
    recovery = next((row for row in recoveries(events, scale) if row.state != "no member"), None)
    if recovery is None:
        return None
    step_s = recovery.step_time_before_s or recovery.first_step_s or 1.0
    bin_s = max(step_s / _BINS_PER_STEP, _SHORTEST_BIN_S)
    found = job_throughputs(events, scale, recovery.fault_t or 0.0, bin_s)
    if recovery.tenant not in found:
        return None
    others = [series for job, series in found.items() if job != recovery.tenant]
    return FabricRun(fabric, system, recovery, (found[recovery.tenant], *others[:1]))


def job_throughputs(
    events: Sequence[Event], scale: Scale, zero: float, bin_s: float = 0.5
) -> Mapping[str, JobThroughput]:
    """The throughput of every job in bins of ``bin_s`` real seconds, one of which begins at ``zero`` (event clock).

    A transfer counts evenly from its first byte to its last, at the receiving rank. Without recorded transfers the sent
    bytes of communications count. Bins are wider if there would be more than ``_MOST_BINS``.
    """
    jobs = dict.fromkeys(incarnation.job for incarnation in read_incarnations(events))
    moved = {job: _moved(read_incarnations(events, job), zero, scale) for job in jobs}
    parts = [part for parts in moved.values() for part in parts]
    if not parts:
        return {}
    first_s, last_s = min(start for start, _, _ in parts), max(end for _, end, _ in parts)
    bin_s = max(bin_s, (last_s - first_s) / _MOST_BINS)
    edges = np.arange(np.floor(first_s / bin_s), np.ceil(last_s / bin_s) + 1) * bin_s
    found = {}
    for job, own in moved.items():
        gbits = np.zeros(len(edges) - 1)
        for start, end, gbit in own:
            low, high = np.searchsorted(edges, start, "right") - 1, np.searchsorted(edges, end) + 1
            inside = np.diff(np.clip(edges[low:high], start, end))
            gbits[low : high - 1] += gbit * inside / (end - start)
        found[job] = JobThroughput(tuple(edges.tolist()), tuple((gbits / bin_s).tolist()))
    return found


def _moved(incarnations: Iterable[JobIncarnation], zero: float, scale: Scale) -> list[tuple[float, float, float]]:
    """(time of first byte, time of last byte, Gbit) of all transfers of a job, real and after ``zero``."""
    events = [e for incarnation in incarnations for e in incarnation.events if e.end is not None]
    chosen = [e for e in events if e.kind == "transfer"] or [e for e in events if e.kind == "communicate"]
    found = []
    for e in chosen:
        size = e["bytes"] if e.kind == "transfer" else e.get("payload_bytes", e.get("sent_bytes", 0))
        start, end = scale.real_s(e.t - zero), scale.real_s((e.end or e.t) - zero)
        found.append((start, max(end, start + _INSTANT_S), scale.real_bytes(size) * 8 / 1e9))
    return found
