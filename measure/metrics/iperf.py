"""The verdict on an iperf3 result (``topos.kernel.iperf``). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from measure.metrics.checks import Check, Limits, Verdict
from measure.metrics.load import cores_check, datapath_check, fast_path_check, interference_checks
from measure.metrics.records import fabric_checks
from railyard.timeline import Event
from topos.plan import FabricPlan


def iperf_verdict(share: float, events: Sequence[Event], plan: FabricPlan, limits: Limits | None = None) -> Verdict:
    """Verdict on an iperf3 result: ``share`` is what it reached of the line rate, ``events`` are of the time it took.

    Faithful if it reached enough, neither the processors nor what forwards packets was saturated, and nothing that was
    to be sampled on ``plan`` is missing.
    """
    limits = limits or Limits()
    limit = limits.line_rate_share
    says = f"iperf3 reached {share:.1%} of the line rate, {'at least' if share >= limit else 'under'} {limit:.0%}"
    rate = Check("link rate", share, limit, "of line rate", share >= limit, says)
    checks = (
        *interference_checks(events, limits),
        rate,
        cores_check(events, limits),
        datapath_check(events, rate, limits),
        fast_path_check(events, limits),
        *fabric_checks(events, plan, limits),
    )
    return Verdict(all(check.ok for check in checks), checks)
