"""The verdict on an edge run: whether the machine was fast enough for its numbers to be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from measure.metrics.checks import Check, Limits, Verdict, does_not_apply, not_judged, not_measured
from measure.metrics.fidelity import interface_drops, link_delay
from measure.metrics.load import machine_checks
from measure.metrics.quantiles import median, quantiles
from measure.metrics.records import fabric_checks, numbers_check
from railyard.scale import goodput_share
from railyard.timeline import Event
from topos.plan import FabricPlan

LONG_S = 0.05
"""Uploads that take less at line rate do not show the rate of a link."""


@dataclass(frozen=True)
class EdgeLinks:
    """The links of uploads: rates of the clients' links in Mb/s, and seconds of a round trip to the server.

    ``bottleneck`` says whether the client's own link is the slowest on the way; ``lossy`` whether links lose packets on
    purpose.
    """

    rates_mbps: Sequence[float]
    round_trip_s: float
    mtu: int = 1500
    bottleneck: bool = True
    lossy: bool = False

    def upload_s(self, client: int, size: int) -> float:
        """Seconds of an upload of ``size`` bytes over an open connection, with its acknowledgement."""
        return size * 8 / (self.rates_mbps[client] * 1e6 * goodput_share(self.mtu)) + self.round_trip_s


@dataclass(frozen=True)
class Expected:
    """A measured value beside that of the model, both in the same unit; ``share`` is how far it may be off."""

    what: str
    measured: float | None
    model: float | None
    share: float


def judge_edge(
    events: Sequence[Event],
    links: EdgeLinks,
    expected: Sequence[Expected] = (),
    *,
    plan: FabricPlan,
    sums: tuple[int, int] | None = None,
    trains: bool = True,
    more: Sequence[Check] = (),
) -> Verdict:
    """The verdict from the events of a run on ``plan``; ``sums``: (wrong, checked) with ``--verify``.

    ``trains`` is False for a run whose clients only transfer; ``more`` are further checks.

    Where a link is meant to lose packets, or something is meant to fail, rates and drops say nothing and do not apply.
    """
    limits = Limits()
    rate = _link_rate(events, links, limits)
    checks = (
        *machine_checks(events, rate, limits),
        link_delay(plan.delayed, events, limits),
        numbers_check(events),
        *_records(events, plan, limits),
        _timers(events, limits) if trains else does_not_apply("timer lag", 0.0, "s", "no client trains in this run"),
        _drops(events, links, limits),
        *(_model(each) for each in expected),
        _sums(sums),
        *more,
    )
    return Verdict(all(check.ok for check in checks), checks)


def _records(events: Sequence[Event], plan: FabricPlan, limits: Limits) -> Iterable[Check]:
    """The checks that nothing is missing, and that links and switches were read as long as clients worked."""
    work = [e for e in events if e.source == "edge" and e.kind in ("get", "train", "push")]
    interval = min((e.t for e in work), default=0.0), max((e.t if e.end is None else e.end for e in work), default=0.0)
    return fabric_checks(events, plan, limits, interval if work else None)  # without: the transfers are no events


def _link_rate(events: Sequence[Event], links: EdgeLinks, limits: Limits) -> Check:
    """Median of ideal over measured time of the acknowledged uploads that are long enough to show a rate."""
    name, unit, limit = "link rate", "of line rate", limits.line_rate_share
    if not links.bottleneck:
        return not_judged(name, limit, unit, "clients share a slower link than their own")
    if links.lossy:
        return not_judged(name, limit, unit, "links lose packets on purpose")
    done = [e for e in events if e.kind == "push" and e.source == "edge" and e["outcome"] == "acknowledged"]
    ideal = [(links.upload_s(e["client"], e["bytes"]), e.seconds) for e in done]
    shares = [min(1.0, best / took) for best, took in ideal if best >= LONG_S and took > 0]
    share = median(shares)
    if share is None:
        long = f"{LONG_S * 1e3:g} ms of wall-clock time"
        return not_measured(name, limit, unit, f"no upload of {long} or more was acknowledged")
    ok = share >= limit
    reached = f"{share:.1%} of line rate (median of {len(shares)})"
    says = f"uploads reached {reached}, {'at least' if ok else 'under'} {limit:.0%}"
    return Check(name, share, limit, unit, ok, says)


def _timers(events: Sequence[Event], limits: Limits) -> Check:
    """Check of how late the timers of the clients' training were, at the 99th percentile."""
    name = "timer lag"
    trains = [e for e in events if e.kind == "train" and e.source == "edge"]
    late = quantiles([e["late_s"] for e in trains])
    if late is None:
        return not_measured(name, limits.lag_floor_s, "s", "no client trained")
    typical = median([e.seconds for e in trains]) or 0.0
    limit = max(limits.control_floor_s, limits.lag_step_share * typical)
    says = f"training ended {late.p99 * 1e3:.3g} ms of wall-clock time late at the p99 (limit {limit * 1e3:.3g} ms)"
    return Check(name, late.p99, limit, "s", late.p99 <= limit, says)


def _drops(events: Sequence[Event], links: EdgeLinks, limits: Limits) -> Check:
    name, unit = "drops", "of packets"
    if links.lossy:
        return not_judged(name, limits.packet_share, unit, "links lose packets on purpose")
    moved = sum(e.get("bytes", 0) for e in events if e.source == "edge" and e.kind in ("get", "push"))
    if not moved or not any(e.source == "link" and e.kind == "bytes" for e in events):
        return not_measured(name, limits.packet_share, unit, "no link counters, or no transfers, were recorded")
    packets = moved / links.mtu
    dropped = interface_drops(events)
    share, limit = dropped / packets, max(limits.packet_share, limits.packet_floor / packets)
    says = f"{dropped} packets dropped by interfaces and queues of the hosts: {share:.3%} of all (limit {limit:.2%})"
    return Check(name, share, limit, unit, share <= limit, says)


def _model(each: Expected) -> Check:
    name, unit = f"model: {each.what}", "of the prediction"
    if not each.model:
        return not_judged(name, each.share, unit, "there is no prediction to compare with")
    if each.measured is None:
        return not_measured(name, each.share, unit, f"there is no {each.what}")
    off = each.measured / each.model - 1
    says = f"{each.what} is {off:+.1%} off the model (limit {each.share:.0%})"
    return Check(name, abs(off), each.share, unit, abs(off) <= each.share, says)


def _sums(sums: tuple[int, int] | None) -> Check:
    if sums is None:
        return does_not_apply("sums", 0, "sums", "verification was not requested")
    wrong, checked = sums
    if not checked:
        return not_measured("sums", 0, "sums", "no sum was checked")
    return Check("sums", wrong, 0, "sums", wrong == 0, f"{wrong} wrong sums of {checked}")
