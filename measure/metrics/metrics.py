"""Computes the metrics of a measured point from its events. Pure: no clock, no files, no root."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from controllers.circuits.losses import SHORTEST_DARK_S
from measure.metrics.intervals import Interval
from measure.metrics.point import Point
from measure.metrics.quantiles import Quantiles, median, quantiles
from measure.metrics.stall import Dark, last_rank, read_darks, reconfigurations_per_step, stalls
from measure.metrics.steps import Steps
from measure.metrics.transfers import Bandwidth, bandwidths, read_transfers
from measure.metrics.windows import critical_windows, read_phases, windows
from railyard.timeline import Event


@dataclass(frozen=True)
class PointMetrics:
    """The metrics of a measured point.

    Times of the job are real seconds; per-step numbers are medians over the steps after the warm-up. Values about the
    machine and not the job (``timer_lag_s``, ``control_latency_s``, ``dark_configured_s``, ``dark_s``,
    ``dark_error_s``) are wall-clock seconds. Definitions: stalls in ``measure.metrics.stall``, step time in
    ``measure.metrics.steps``, windows in ``measure.metrics.windows``, bandwidths in ``measure.metrics.transfers``. None
    where nothing was recorded.
    """

    steps: int
    warmup_steps: int
    step_times_s: tuple[float, ...]
    step_time_s: float | None
    stale_step_time_s: float | None
    predicted_step_time_s: float | None
    reconfigurations_per_step: float
    reconfigurations: dict[str, int]
    circuit_wait_s: float
    circuit_wait_worst_s: float
    readiness_wait_s: float
    control_wait_s: float
    windows_s: tuple[float, ...]
    critical_windows_s: tuple[float, ...]
    bandwidth: dict[str, Bandwidth]
    packets_lost: int
    packets_lost_outside_dark: int | None
    retransmissions: int
    refusals: int
    timer_lag_s: Quantiles | None
    timer_lag_per_step_s: float | None
    control_latency_s: Quantiles | None
    dark_configured_s: float
    dark_s: Quantiles | None
    dark_error_s: Quantiles | None
    verified: int
    wrong: int
    disturbed: frozenset[int]
    """Places of the steps in which there was no controller; no per-step number counts them."""
    controller_restart_wall_s: float | None
    controller_wait_wall_s: float | None
    """How long the last rank that waits for circuits has waited when there is a controller again."""
    controller_late_wall_s: float | None
    """By how much the disturbed steps together were longer than as many median ones."""

    @property
    def window_median_s(self) -> float | None:
        """Median window between two phases, in real seconds; None without windows."""
        return median(self.windows_s)


def measure_point(point: Point, events: Sequence[Event]) -> PointMetrics:
    real = point.scale.real_s
    steps = Steps.read(events)
    times = steps.durations()
    restart = restart_of(events)
    disturbed = steps.during(restart) if restart is not None else frozenset[int]()
    measured = point.counted(steps.complete, disturbed)
    darks = read_darks(point, events)
    stall = stalls(point, events, darks, measured)
    step_time = median(point.counted(times, disturbed))
    stale_time = median(time for step, time in zip(steps.complete, times, strict=True) if step == point.stale_step)
    late_s = sum(times[place] - step_time for place in disturbed) if disturbed and step_time is not None else None
    dark_seconds = [d.end - d.t for d in darks]
    lost, lost_otherwise = packets_lost(point, events)
    phases = read_phases(events)
    return PointMetrics(
        steps=len(times),
        warmup_steps=point.warmup(len(times)),
        step_times_s=tuple(map(real, times)),
        step_time_s=None if step_time is None else real(step_time),
        stale_step_time_s=None if stale_time is None else real(stale_time),
        predicted_step_time_s=point.predicted_step_time_s,
        reconfigurations_per_step=reconfigurations_per_step(darks, steps, measured),
        reconfigurations=dict(Counter(d.switch for d in darks)),
        circuit_wait_s=real(stall.circuits_s),
        circuit_wait_worst_s=real(stall.circuits_worst_s),
        readiness_wait_s=real(stall.readiness_s),
        control_wait_s=real(stall.control_s),
        windows_s=tuple(map(real, windows(phases, measured))),
        critical_windows_s=tuple(map(real, critical_windows(phases, last_rank(point, events), measured))),
        bandwidth=bandwidths(point, read_transfers(point, events, measured)),
        packets_lost=lost,
        packets_lost_outside_dark=lost_otherwise,
        retransmissions=_total(events, "agent", "sockets", "retransmits"),
        refusals=sum(e.source == "controller" and e.kind == "refused" for e in events),
        timer_lag_s=quantiles(e["late_s"] for e in _computes(events)),
        timer_lag_per_step_s=_lag_per_step(events, measured),
        control_latency_s=quantiles(control_latencies(point, events, darks)),
        dark_configured_s=point.dark_s,
        dark_s=quantiles(dark_seconds),
        dark_error_s=quantiles(s - point.dark_s for s in dark_seconds),
        verified=sum(e.source == "agent" and e.kind == "verified" for e in events),
        wrong=_total(events, "agent", "verified", "wrong"),
        disturbed=disturbed,
        controller_restart_wall_s=None if restart is None else restart[1] - restart[0],
        controller_wait_wall_s=None if restart is None else _wait_for_controller(events, restart[1]),
        controller_late_wall_s=late_s,
    )


def restart_of(events: Sequence[Event]) -> Interval | None:
    """From the end of the controller under a job to the readiness of another; None if it did not end."""
    for e in events:
        if e.source == "run" and e.kind == "restarted":
            return e.t - e["restart_s"], e.t
    return None


def _wait_for_controller(events: Sequence[Event], ready: float) -> float:
    waits = [e for e in events if e.source == "agent" and e.kind == "wait" and e.t < ready < (e.end or e.t)]
    return ready - max((e.t for e in waits), default=ready)


def control_latencies(point: Point, events: Sequence[Event], darks: Sequence[Dark]) -> list[float]:
    """Times from the last request to the acknowledgement where no circuit had to change (wall-clock seconds).

    The last request is the ``ready`` field of the ``ack``, where the controller gives it; else the latest of its
    ``asked`` (first request) and the starts of the members' waits for it. Acknowledgements with a dark interval of a
    member's port between request and answer are left out, since they waited for circuits.
    """
    waits: dict[tuple[str, int], float] = defaultdict(float)
    for e in events:
        if e.source == "agent" and e.kind == "wait":
            key = (e["group"], e["index"])
            waits[key] = max(waits[key], e.t)
    found = []
    for e in events:
        if e.source != "controller" or e.kind != "ack":
            continue
        group = point.groups.get(e["group"])
        members = set(group.members) if group else set(e.get("ranks", ()))
        asked = e.get("asked", e.t)
        if any(d.end > asked and d.t < e.t and members & d.ranks for d in darks):
            continue
        ready = e.get("ready") or max(asked, min(waits[e["group"], e["index"]], e.t))
        found.append(max(0.0, e.t - ready))
    return found


def _computes(events: Sequence[Event]) -> list[Event]:
    return [e for e in events if e.source == "agent" and e.kind == "compute" and e.get("late_s") is not None]


def _lag_per_step(events: Sequence[Event], measured: Sequence[int]) -> float | None:
    """Sum of the lateness of all timers of a step, of the worst rank; the median over the measured steps."""
    late: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for e in _computes(events):
        late[e["step"]][e["rank"]] += max(0.0, e["late_s"])
    return median(max(late[s].values()) for s in measured if s in late)


def packets_lost(point: Point, events: Sequence[Event]) -> tuple[int, int | None]:
    """(packets lost at dark ports, packets otherwise lost in switches); the second is None without switch counters.

    Packets that entered a switch and did not leave it were lost. The controller counts those lost at dark ports if the
    dark time is long enough to count; if it is shorter, all losses of optical switches count as lost at dark ports.
    """
    dark = sum(e["packets"] for e in events if e.source == "switch" and e.kind == "dropped")
    first: dict[str, Event] = {}
    last: dict[str, Event] = {}
    for e in events:
        if e.source == "link" and e.kind == "switch":
            first.setdefault(e["switch"], e)
            last[e["switch"]] = e
    if not last:
        return dark, None
    optical = {s.name for s in point.plan.switches if s.kind == "ocs"}
    lost = {name: _stayed(last[name]) - _stayed(first[name]) for name in last}
    in_optical = sum(count for name, count in lost.items() if name in optical)
    elsewhere = sum(count for name, count in lost.items() if name not in optical)
    if optical and 0 < point.dark_s < SHORTEST_DARK_S:
        return max(0, in_optical), max(0, elsewhere)
    return dark, max(0, in_optical - dark) + max(0, elsewhere)


def _stayed(event: Event) -> int:
    return int(event["packets_in"] - event["packets_out"])


def _total(events: Sequence[Event], source: str, kind: str, name: str) -> int:
    return sum(e.get(name, 0) for e in events if e.source == source and e.kind == kind)
