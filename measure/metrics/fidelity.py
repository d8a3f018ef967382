"""The fidelity verdict of a point: whether the machine was fast and precise enough for its numbers to be trusted.

Each check has a value, a limit and a reason. A check whose data is missing says "not measured" and fails, since a point
that was not checked is not faithful. A check that does not apply (dark time in a run without a reconfiguration) says so
and passes. One that cannot judge a point (the rate of links that carry a few bytes) passes too, and the verdict names
it. Values are wall-clock: they judge the emulator, not the emulated system.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from measure.metrics.checks import Check, Limits, Verdict, does_not_apply, not_judged, not_measured
from measure.metrics.load import cores_check, datapath_check, fast_path_check, interference_checks, machine_checks
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from measure.metrics.records import fabric_checks, records_checks
from measure.metrics.stall import read_darks
from measure.metrics.steps import Steps
from measure.metrics.timed_acts import with_timetable
from measure.metrics.transfers import ObservedTransfer, read_transfers
from measure.metrics.underlay import clock_checks, underlay_checks
from railyard.timeline import Event
from topos.plan import FabricPlan

_CONTENDED = "jobs share links, whose queues drop packets when full; that shows in the step time"


@dataclass(frozen=True)
class JudgedPoint:
    """A point, or a part of one, with its events and what follows from them."""

    point: Point
    events: Sequence[Event]

    @cached_property
    def metrics(self) -> PointMetrics:
        return measure_point(self.point, self.events)

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.point, self.events, self.metrics)


def judge(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits | None = None) -> Verdict:
    limits = limits or Limits()
    links = _line_rate(point, events, limits)
    checks: tuple[Check, ...] = (
        *interference_checks(events, limits),
        *underlay_checks(events, limits),
        *clock_checks(events, point.scale.emulated_s(point.reconfiguration_delay_s), limits),
        links,
        cores_check(events, limits),
        datapath_check(events, links, limits),
        fast_path_check(events, limits),
        *_timers(point, events, metrics, limits),
        _control(point, metrics, limits),
        link_delay(point.plan.delayed, events, limits),
        _drops(point, events, metrics, limits),
        _retransmissions(point, events, metrics, limits),
        *_dark(point, events, metrics, limits),
        _spread(point, metrics, limits),
        _model(point, metrics, limits),
        _sums(metrics),
        _steps(metrics),
        *records_checks(point, events, limits),
    )
    checks = with_timetable(checks, events, limits)
    return Verdict(all(c.ok for c in checks), checks)


def _line_rate(point: Point, events: Sequence[Event], limits: Limits) -> Check:
    """Median share of the line rate that long transfers reached; where none is long, of the longest tenth."""
    name, unit, limit = "link rate", "of line rate", limits.line_rate_share
    if point.plan.delayed or point.plan.lossy:
        return not_judged(name, limit, unit, "transfers wait for link delay or lost packets, which no rate counts")
    if point.contended:
        return not_judged(name, limit, unit, "jobs share links from time to time; the step time shows what that costs")
    steps = {e["step"] for e in events if e.kind == "step" and e.source == "agent"}
    known = [t for t in read_transfers(point, events, steps) if t.line_rate_share is not None]
    if not known:
        return not_measured(name, limit, unit, "no transfer on the rails was recorded")
    steady = [t for t in known if not t.changes]
    if not steady:
        return not_judged(name, limit, unit, "circuits change within every transfer; the model includes that")
    chosen, which = _long(steady, limits)
    share = median(_rate_share(t, limits) for t in chosen) or 0.0
    if share < limit and all(t.rounds and not _is_long(t, limits) for t in chosen):
        over = median((t.seconds - t.ideal_s) / t.rounds for t in chosen) or 0.0
        if over <= limits.message_s:
            latency = f"a round took {_wall(over)} more than its few bytes, which is latency"
            return not_judged(name, limit, unit, latency)
    ok = share >= limit
    says = f"links reached {share:.1%} of line rate in {which}, {'at least' if ok else 'under'} {limit:.0%}"
    return Check(name, share, limit, unit, ok, says)


def _rate_share(transfer: ObservedTransfer, limits: Limits) -> float:
    """Share of the line rate that a transfer reached; for long ones without the time of first and last message."""
    if not _is_long(transfer, limits):
        return transfer.line_rate_share or 0.0
    return transfer.ideal_s / max(transfer.ideal_s, transfer.seconds - limits.message_s)


def _is_long(transfer: ObservedTransfer, limits: Limits) -> bool:
    """Whether the rounds of a transfer take long because of their bytes and not of their messages."""
    return transfer.ideal_s / max(1, transfer.rounds) >= limits.long_s


def _long(transfers: Sequence[ObservedTransfer], limits: Limits) -> tuple[Sequence[ObservedTransfer], str]:
    together = [t for t in transfers if t.together] or transfers
    long = [t for t in together if _is_long(t, limits)]
    if long:
        return long, f"{len(long)} transfers of {_wall(limits.long_s)} or more"
    ordered = sorted(together, key=lambda t: t.ideal_s)
    tenth = ordered[-max(1, len(ordered) // 10) :]
    return tenth, f"the {len(tenth)} longest transfers (none takes {_wall(limits.long_s)})"


def _step_wall_s(point: Point, metrics: PointMetrics) -> float:
    return point.scale.emulated_s(metrics.step_time_s or 0.0)


def _timers(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits) -> Iterable[Check]:
    """Checks of the p99 of timer lag and of the sum of all lags of a step; not applicable without compute."""
    step = _step_wall_s(point, metrics)
    limit = max(limits.lag_floor_s, limits.lag_step_share * step)
    lag, name = metrics.timer_lag_s, "timer lag"
    computes = (e for e in events if e.source == "agent" and e.kind == "compute")
    if step and all(e.get("late_s", 0.0) is None for e in computes):
        yield does_not_apply(name, limit, "s", "no timer was set: nothing was computed, or a script did it")
        return
    if lag is None or metrics.timer_lag_per_step_s is None or not step:
        yield not_measured(name, limit, "s", "no agent reported how late its timers were")
        return
    says = f"timers were {_wall(lag.p99)} late at the p99 (limit {_ms(limit)}), {_ms(lag.p50)} at the median"
    yield Check(name, lag.p99, limit, "s", lag.p99 <= limit, says)
    share, most = metrics.timer_lag_per_step_s / step, max(limits.lag_sum_share, limits.noise_s / step)
    says = f"timer lag added up to {share:.2%} of a step (limit {most:.0%})"
    yield Check("timer lag of a step", share, most, "of step", share <= most, says)


def _control(point: Point, metrics: PointMetrics, limits: Limits) -> Check:
    name, latency = "control plane", metrics.control_latency_s
    limit = max(limits.control_floor_s, limits.lag_step_share * _step_wall_s(point, metrics))
    if latency is None:
        return does_not_apply(name, limit, "s", "no request was answered without a change of circuits")
    says = f"the control plane answered within {_wall(latency.p99)} at the p99 (limit {_ms(limit)})"
    return Check(name, latency.p99, limit, "s", latency.p99 <= limit, says)


def link_delay(delayed: bool, events: Iterable[Event], limits: Limits | None = None) -> Check:
    """Check of how exactly packets left the delayed links, from ``link delay`` events; netem does not say it."""
    name, limit = "link delay", (limits or Limits()).link_delay_s
    if not delayed:
        return does_not_apply(name, limit, "s", "no link has a delay")
    found = [e for e in events if e.source == "link" and e.kind == "delay"]
    overflowed = sum(e["overflowed"] for e in found)
    known = [(e["late_p95_s"], e["late_worst_s"]) for e in found if e["late_p95_s"] is not None]
    if found and not overflowed and all(e["method"] == "netem" for e in found):
        return not_judged(name, limit, "s", "the kernel holds the packets (netem) and does not say how exactly")
    if not known:
        return not_measured(name, limit, "s", "nothing tells when packets left the delayed links")
    off, worst = (max(column) for column in zip(*known, strict=True))
    says = (
        f"packets left delayed links {_wall(off)} off their time at the p95 (limit {_ms(limit)}), {_ms(worst)} at worst"
    )
    says += f"; {overflowed} found no room" if overflowed else ""
    return Check(name, off, limit, "s", off <= limit and not overflowed, says)


def _packets(point: Point, events: Iterable[Event]) -> float:
    """Packets that the job sent, by the bytes of its sockets or, if the point was cut short, of its messages."""
    kind, field = ("communicate", "sent_bytes") if point.cut_short else ("sockets", "bytes")
    sent: int = sum(e.get(field, 0) for e in events if e.source == "agent" and e.kind == kind)
    return sent / point.plan.mtu


def interface_drops(events: Iterable[Event]) -> int:
    """Packets that interfaces and queues of the hosts dropped between their first and last counter event."""
    first: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], int] = {}
    for e in sorted((e for e in events if e.source == "link" and e.kind in ("bytes", "qdisc")), key=lambda e: e.t):
        key = e.kind, e["interface"]
        first.setdefault(key, e["dropped"])
        last[key] = e["dropped"]
    return sum(last[key] - first[key] for key in last)


def _drops(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits) -> Check:
    name, unit = "drops", "of packets"
    if point.contended:
        return not_judged(name, limits.packet_share, unit, _CONTENDED)
    packets = _packets(point, events)
    if not any(e.source == "link" and e.kind == "bytes" for e in events) or not packets:
        return not_measured(name, limits.packet_share, unit, "no link counters, or no socket counters, were recorded")
    on_links, outside = interface_drops(events), metrics.packets_lost_outside_dark
    if outside is None:
        return not_measured(name, limits.packet_share, unit, "the counters of switches were not read")
    in_switches = f"{outside} in switches"
    if not point.switch_losses:
        outside, in_switches = 0, "those in switches not told from the ones of a chip that died"
    share = (on_links + outside) / packets
    limit = max(limits.packet_share, limits.packet_floor / packets)
    lost = f"{on_links} packets dropped on links and queues, {in_switches}"
    says = f"{lost}: {share:.3%} of all (limit {limit:.2%})"
    return Check(name, share, limit, unit, share <= limit, says)


def _retransmissions(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits) -> Check:
    """Check of retransmitted segments; not applicable if packets were lost at dark ports, which explains them."""
    name, unit = "retransmissions", "of packets"
    if point.contended:
        return not_judged(name, limits.packet_share * 2, unit, _CONTENDED)
    if point.cut_short:
        return not_judged(name, limits.packet_share * 2, unit, "the sockets' counters cover more than this point")
    packets = _packets(point, events)
    if not packets:
        return not_measured(name, limits.packet_share * 2, unit, "no agent reported its sockets' counters")
    if point.plan.lossy:
        return not_judged(name, limits.packet_share * 2, unit, "links lose packets on purpose, which explains them")
    if metrics.packets_lost:
        return not_judged(name, limits.packet_share * 2, unit, "packets were lost while dark, which explains them")
    share, limit = metrics.retransmissions / packets, max(limits.packet_share * 2, limits.packet_floor / packets)
    says = (
        f"{metrics.retransmissions} segments sent again with nothing lost while dark, {share:.2%} of all "
        f"(limit {limit:.1%})"
    )
    return Check(name, share, limit, unit, share <= limit, says)


def _dark(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits) -> Iterable[Check]:
    """Checks of the dark time that the controller measured against the configured one."""
    configured, error = metrics.dark_configured_s, metrics.dark_error_s
    worst_limit = max(limits.dark_worst_s, limits.dark_worst_share * configured)
    shortest = min(limits.dark_median_s, limits.dark_short_share * configured)
    median_limit = max(shortest, limits.dark_median_share * configured)
    if configured == 0:
        median_limit = worst_limit  # Without a delay, the dark time is that of the message that swaps the circuits.
    if error is None and point.part and any(switch.kind == "ocs" for switch in point.plan.switches):
        why = "no circuit changed in these steps; changes of circuits between them were not measured"
        yield not_judged("dark time", median_limit, "s", why)
        return
    if error is None:
        yield does_not_apply("dark time", median_limit, "s", "no circuit changed")
        return
    values = [("dark time", abs(error.p50), median_limit)]
    if configured == 0:
        yield _slow_swaps(point, events, metrics, limits)
    else:
        values.append(("worst dark time", max(abs(error.low), abs(error.high)), worst_limit))
    for name, value, limit in values:
        says = f"{name} is off by {_ms(value)} from {_wall(configured)} (limit {_ms(limit)})"
        yield Check(name, value, limit, "s", value <= limit, says)


def _slow_swaps(point: Point, events: Sequence[Event], metrics: PointMetrics, limits: Limits) -> Check:
    """Check of the swaps of circuits without a delay, by the time that the slow ones of a step add to it."""
    name, steps = "worst dark time", Steps.read(events)
    usual = (metrics.dark_s.p50 if metrics.dark_s else 0.0) + limits.dark_median_s
    added: dict[tuple[int, int], float] = defaultdict(float)
    for dark in read_darks(point, events):
        for rank in dark.ranks:
            step = steps.at(rank, dark.t)
            if step is not None:
                added[rank, step] += max(0.0, dark.end - dark.t - usual)
    value = max(added.values(), default=0.0)
    limit = max(limits.dark_worst_s, limits.dark_step_share * _step_wall_s(point, metrics))
    says = f"swaps of circuits that took longer than usual added {_wall(value)} to a step (limit {_ms(limit)})"
    return Check(name, value, limit, "s", value <= limit, says)


def _noise_share(point: Point, metrics: PointMetrics, limits: Limits) -> float:
    step = _step_wall_s(point, metrics)
    return limits.noise_s / step if step else 0.0


def _noise(limits: Limits) -> str:
    return f"under the {_wall(limits.noise_s)} that a process may wait for a processor"


def _spread(point: Point, metrics: PointMetrics, limits: Limits) -> Check:
    """Check of the spread of the measured step times, after subtracting the predicted ones."""
    name, unit = "step spread", "of the median step"
    if point.contended:
        return not_judged(name, limits.step_spread, unit, "jobs share links, so their steps disturb each other")
    planned: Sequence[float] = point.predicted_step_times_s
    if len(planned) != len(metrics.step_times_s):
        planned = [0.0] * len(metrics.step_times_s)
    pairs = zip(metrics.step_times_s, planned, strict=True)
    off = point.counted([time - plan for time, plan in pairs], metrics.disturbed)
    if len(off) < 2 or not metrics.step_time_s:
        return not_judged(name, limits.step_spread, unit, "fewer than two steps after the warm-up")
    share, limit = (max(off) - min(off)) / metrics.step_time_s, limits.step_spread
    if limit < share <= _noise_share(point, metrics, limits):
        return not_judged(name, limit, unit, f"they differ by {share:.1%}, which is {_noise(limits)}", share)
    says = f"the measured steps differ by {share:.1%} (limit {limit:.0%})"
    return Check(name, share, limit, unit, share <= limit, says)


def _model(point: Point, metrics: PointMetrics, limits: Limits) -> Check:
    """Check against the prediction; a large difference means a disturbance or an effect missing in the model."""
    name, unit, limit = "model", "of the prediction", limits.model_share
    step, predicted = metrics.step_time_s, metrics.predicted_step_time_s
    if not predicted or step is None:
        return not_judged(name, limit, unit, "there is no prediction to compare with")
    if point.plan.delayed or point.plan.lossy:
        return not_judged(name, limit, unit, "the model has no link delay and no random loss, and links have some")
    off = step / predicted - 1
    if limit < abs(off) <= limits.noise_s / point.scale.emulated_s(predicted):
        return not_judged(name, limit, unit, f"the step is {off:+.1%} off it, which is {_noise(limits)}", abs(off))
    says = f"the step is {off:+.1%} off the model (limit {limit:.0%})"
    return Check(name, abs(off), limit, unit, abs(off) <= limit, says)


def _sums(metrics: PointMetrics) -> Check:
    if not metrics.verified:
        return does_not_apply("sums", 0, "elements", "verification was not requested")
    says = f"{metrics.wrong} wrong elements in {metrics.verified} verified operations"
    return Check("sums", metrics.wrong, 0, "elements", metrics.wrong == 0, says)


def _steps(metrics: PointMetrics) -> Check:
    if not metrics.steps:
        return not_measured("steps", 1, "steps", "not one step was finished by all ranks")
    return Check("steps", metrics.steps, 1, "steps", True, f"{metrics.steps} steps finished on all ranks")


def _wall(seconds: float) -> str:
    """A time of the emulator, which beside the numbers of a row could be taken for one of the real system."""
    return f"{_ms(seconds)} of wall-clock time"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def stretch_verdict(events: Sequence[Event], plan: FabricPlan, packets: int, misdelivered: int | None) -> Verdict:
    """Verdict on a stretch of time in which programs of a user sent ``packets`` packets; ``events`` are of that time.

    ``misdelivered`` of them came to a wrong host (None: the kernel does not count them).

    How fast those programs were to be is not known, so neither rate nor model is judged: only whether the machine kept
    up, what was lost beside circuits, and whether all that was to be sampled on ``plan`` was.
    """
    limits = Limits()
    sender = not_judged(
        "link rate", limits.line_rate_share, "of line rate", "the user's programs chose how fast to send"
    )
    dropped, share = interface_drops(events), limits.packet_share
    limit = max(share, limits.packet_floor / packets) if packets else share
    lost = dropped / packets if packets else 0.0
    says = f"{dropped} of {packets} packets dropped on links and queues (limit {limit:.2%})"
    drops = Check("drops", lost, limit, "of packets", lost <= limit, says)
    checks = (
        *machine_checks(events, sender, limits),
        link_delay(plan.delayed, events, limits),
        drops,
        _wrong_host(misdelivered),
        *fabric_checks(events, plan, limits),
    )
    return Verdict(all(check.ok for check in checks), checks)


def _wrong_host(misdelivered: int | None) -> Check:
    name, unit = "wrong host", "packets"
    if misdelivered is None:
        return not_measured(name, 0, unit, "this kernel does not count packets that come to a wrong host")
    return Check(name, misdelivered, 0, unit, not misdelivered, f"{misdelivered} packets came to a wrong host")


def iperf_verdict(share: float, events: Sequence[Event], plan: FabricPlan) -> Verdict:
    """Verdict on an iperf3 result: ``share`` is what it reached of the line rate, ``events`` are of the time it took.

    Faithful if it reached enough, neither the processors nor what forwards packets was saturated, and nothing that was
    to be sampled on ``plan`` is missing.
    """
    limits = Limits()
    limit = limits.line_rate_share
    says = f"iperf3 reached {share:.1%} of the line rate, {'at least' if share >= limit else 'under'} {limit:.0%}"
    rate = Check("link rate", share, limit, "of line rate", share >= limit, says)
    checks = (
        *machine_checks(events, rate, limits),
        *fabric_checks(events, plan, limits),
    )
    return Verdict(all(check.ok for check in checks), checks)
