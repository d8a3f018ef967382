from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import synthetic_job

from measure.metrics.checks import Check, Limits, Verdict
from measure.metrics.fidelity import interface_drops, judge
from measure.metrics.metrics import measure_point
from measure.results.row import MeasuredRow
from railyard.timeline import Event
from railyard.verdict import NOT_FAITHFUL


def _verdict(job: Any, limits: Limits | None = None) -> Verdict:
    events = job.timeline()
    return judge(job.point, events, measure_point(job.point, events), limits)


def _later(events: list[Event], kind: str, seconds: float) -> list[Event]:
    """Events of which those of a kind end later."""
    return [replace(e, end=(e.end or 0) + seconds) if e.kind == kind else e for e in events]


def _check(verdict: Verdict, name: str) -> Check:
    return next(c for c in verdict.checks if c.name == name)


@pytest.mark.parametrize("mode", ["electrical", "on-demand", "provisioned"])
def test_an_exact_run_is_faithful(make_point: Any, make_job: Any, mode: str) -> None:
    verdict = _verdict(make_job(make_point(mode)).with_samples())
    assert verdict.faithful, str(verdict)
    assert str(verdict) == "faithful"
    assert _check(verdict, "link rate").value == pytest.approx(1.0, rel=1e-3)


def test_what_was_not_measured_does_not_pass(make_point: Any, make_job: Any) -> None:
    verdict = _verdict(make_job(make_point()))
    assert not verdict.faithful
    sampled = {
        "other guests",
        "other processes",
        "cores",
        "datapath thread",
        "fast path",
        "drops",
        "samples",
        "counters",
    }
    assert {c.name for c in verdict.failed} == {*sampled, "sampler events"}
    assert all("not measured" in c.says and c.value is None for c in verdict.failed)
    assert str(verdict).startswith(NOT_FAITHFUL)


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        ({"busy": 1.0}, {"cores"}),
        ({"steal": 0.05}, {"other guests"}),
        ({"other": 0.2}, {"other processes"}),
        ({"thread": 1.0}, {"datapath thread"}),
        ({"softirq": 1.0}, {"datapath thread"}),
        ({"thread": 1.0, "datapath": "ovs"}, {"datapath thread"}),
    ],
)
def test_a_saturated_machine(make_point: Any, make_job: Any, spoil: dict[str, Any], names: set[str]) -> None:
    verdict = _verdict(make_job(make_point()).with_samples(**spoil))
    assert {c.name for c in verdict.failed} == names


def test_what_others_took_of_the_processors_comes_first(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point(), late_s=0.02).with_samples(steal=0.09, other=0.48)
    verdict = _verdict(job)
    assert str(verdict).startswith(
        "NOT FAITHFUL: other guests of the hardware took 9.0% of the processors (which ones cannot be seen from within "
        "this one), more than 4%; other processes kept"
    )
    assert "other processes kept 0.96 of 2 processors busy, more than 0.2;" in str(verdict)
    row = MeasuredRow()
    row.judge(verdict)
    assert row.steal_share == pytest.approx(0.09) and row.other_cores == pytest.approx(0.96) and row.disturbed


def test_through_open_vswitch_its_thread_counts_and_not_the_kernel(make_point: Any, make_job: Any) -> None:
    assert _verdict(make_job(make_point()).with_samples(softirq=1.0, datapath="ovs")).faithful


def test_a_kernel_that_forwards_is_judged_by_its_busiest_processor(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples(datapath="bpf")
    check = _check(_verdict(job), "datapath thread")
    assert check.ok and check.value == 0.0
    check = _check(_verdict(job), "fast path")
    assert check.ok and "20 of 2000 packets went up to Open vSwitch" in check.says


def test_a_bridge_that_goes_up_to_open_vswitch_during_a_run_is_seen(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    job.events[[e.kind for e in job.events].index("forwarding")].fields["up"] -= 40
    check = _check(_verdict(job), "fast path")
    assert not check.ok and check.value == 0.03
    for e in job.events:
        if e.kind == "forwarding":
            e.fields["datapath"] = "ovs"
    assert _check(_verdict(job), "fast path").ok


@pytest.mark.parametrize("missing", ["softirq", "switch_thread"])
def test_forwarding_without_samples_is_not_faithful(make_point: Any, make_job: Any, missing: str) -> None:
    job = make_job(make_point()).with_samples()
    for e in job.events:
        if e.kind == "cpu":
            e.fields[missing] = None
    check = _check(_verdict(job), "datapath thread")
    assert not check.ok and check.value is None and "not measured" in check.says


def test_a_datapath_that_nobody_named_is_not_faithful(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    job.events = [e for e in job.events if e.kind != "forwarding"]
    assert {c.name for c in _verdict(job).failed} == {"datapath thread", "fast path", "counters"}


def test_a_thread_that_polls_many_ports_may_be_busy_where_links_are_full(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples(thread=1.0, datapath="ovs")
    samples = [e for e in job.events if e.kind == "cpu"]
    for e in samples[len(samples) * 2 // 5 :]:
        e.fields["switch_thread"] = 0.5
    check = _check(_verdict(job), "datapath thread")
    assert check.ok and Limits().saturated_share < (check.value or 0) <= Limits().polling_share
    slow = _verdict(job, Limits(full_line_rate=1.1))
    assert {c.name for c in slow.failed} == {"datapath thread"}


def test_late_timers(make_point: Any, make_job: Any) -> None:
    verdict = _verdict(make_job(make_point(), late_s=0.02).with_samples())
    assert {c.name for c in verdict.failed} == {"timer lag", "timer lag of a step"}


def test_computes_of_a_script_have_no_timers_that_could_be_late(make_point: Any, make_job: Any) -> None:
    check = _check(_verdict(make_job(make_point(), late_s=None).with_samples()), "timer lag")
    assert check.ok and check.value is None and "no timer was set" in check.says


def test_steps_that_differ(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    job.events = [
        Event(e.t, e.source, e.kind, (e.end or 0) + 0.1, e.fields) if e.kind == "step" and e["step"] == 1 else e
        for e in job.events
    ]
    assert {c.name for c in _verdict(job).failed} == {"step spread"}
    check = _check(_verdict(job, Limits(noise_s=1.0)), "step spread")
    assert check.ok and not check.judged and "under the 1e+03 ms of wall-clock time that a process" in check.says
    assert _check(_verdict(job), "link rate").judged


def test_slow_links(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    for e in job.events:
        if e.kind == "communicate":
            e.fields["sent_bytes"] = round(e["sent_bytes"] * 0.85)
    check = _check(_verdict(job), "link rate")
    assert not check.ok and check.value == pytest.approx(0.85, rel=0.02)  # less the first and the last message


@pytest.mark.parametrize(("mode", "part", "more"), [
    ("on-demand", True, " in these steps; changes of circuits between them were not measured"),
    ("on-demand", False, ""),
    ("electrical", True, ""),
])  # fmt: skip
def test_the_dark_time_of_a_splice_between_the_steps_is_not_called_kept(
    make_point: Any, make_job: Any, mode: str, part: bool, more: str
) -> None:
    job = make_job(make_point(mode, 0.04)).with_samples()
    job.point = replace(job.point, part=part)
    job.events = [e for e in job.events if e.kind != "reconfigure"]
    check = _check(_verdict(job), "dark time")
    assert (check.says, check.ok, check.judged) == (f"dark time: no circuit changed{more}", True, not more)


def test_a_time_in_a_sentence_says_that_it_is_wall_clock(make_point: Any, make_job: Any) -> None:
    """Numbers beside it are those of the real system."""
    checks = _verdict(make_job(make_point()).with_samples()).checks
    timed = {c.name: c.says for c in checks if re.search(r"\d m?s\b", c.says)}
    assert {"link rate", "timer lag", "dark time", "worst dark time", "samples"} <= timed.keys()
    assert [says for says in timed.values() if "of wall-clock time" not in says] == []


def test_dark_time_off(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point("on-demand", 0.04)).with_samples()
    job.events = _later(job.events, "reconfigure", 0.005)
    verdict = _verdict(job)
    assert not _check(verdict, "dark time").ok
    assert _check(verdict, "worst dark time").ok


@pytest.mark.parametrize(("compute_s", "slow_s", "ok"), [(0.3, 0.007, True), (0.3, 0.012, False), (3.0, 0.012, True)])
def test_a_slow_swap_without_a_delay_is_judged_by_its_effect_on_the_step(
    make_point: Any, make_job: Any, monkeypatch: pytest.MonkeyPatch, compute_s: float, slow_s: float, ok: bool
) -> None:
    monkeypatch.setattr(synthetic_job, "COMPUTE", compute_s)
    job = make_job(make_point("on-demand", 0.0)).with_samples()
    place = [e.kind for e in job.events].index("reconfigure")
    job.events[place] = replace(job.events[place], end=job.events[place].t + slow_s)
    check = _check(_verdict(job), "worst dark time")
    assert check.ok is ok and check.value == pytest.approx(slow_s - Limits().dark_median_s)


@pytest.mark.parametrize(("more_s", "ok"), [(0.00005, True), (0.00015, False)])
def test_a_short_dark_time_may_be_off_by_a_fifth(make_point: Any, make_job: Any, more_s: float, ok: bool) -> None:
    job = make_job(make_point("on-demand", 0.0005)).with_samples()
    job.events = _later(job.events, "reconfigure", more_s)
    assert _check(_verdict(job), "dark time").ok is ok


def test_slow_answers_of_the_control_plane(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point("electrical")).with_samples()
    for k in range(50):
        job.add(job.start + 0.5, "controller", "ack", group="dp0.0", index=10 + k, ranks=[0], asked=job.start + 0.4)
    assert {c.name for c in _verdict(job).failed} == {"control plane"}


def test_drops_and_retransmissions_and_wrong_sums(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    job.add(job.end, "link", "qdisc", interface="g0-r0", rank=0, lane=0, dropped=40)
    job.add(job.end, "agent", "sockets", rank=0, retransmits=500, bytes=0)
    job.add(job.end, "agent", "verified", rank=0, step=0, op=0, wrong=1)
    assert interface_drops(job.events) == 40
    assert {c.name for c in _verdict(job).failed} == {"drops", "retransmissions", "sums"}


def test_loss_while_dark_is_the_experiment(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point()).with_samples()
    job.add(job.start + 0.01, "switch", "dropped", rail="rail0", packets=900, bytes=9000, during="dark")
    job.add(job.end, "agent", "sockets", rank=0, retransmits=900, bytes=0)
    assert _verdict(job).faithful


@pytest.mark.parametrize(("factor", "ok"), [(1.05, True), (0.92, True), (0.85, False), (1.2, False)])
def test_a_step_far_from_the_model_is_not_faithful(make_point: Any, make_job: Any, factor: float, ok: bool) -> None:
    job = make_job(make_point()).with_samples()
    metrics = measure_point(job.point, job.timeline())
    assert metrics.step_time_s is not None
    metrics = replace(metrics, predicted_step_time_s=metrics.step_time_s * factor)
    assert _check(judge(job.point, job.timeline(), metrics), "model").ok is ok


def _delayed(point: Any, **trouble: float) -> Any:
    """The point with the first link of its first rail in trouble."""
    rail, *rest = point.plan.switches
    port, *ports = rail.ports
    rail = replace(rail, ports=(replace(port, **trouble), *ports))
    return replace(point, plan=replace(point.plan, switches=(rail, *rest)))


def _held(late_p95_s: float | None = 0.0002, **more: Any) -> dict[str, Any]:
    late = {"late_p50_s": late_p95_s, "late_p95_s": late_p95_s, "late_worst_s": late_p95_s}
    return {"method": "relay", "frames": 100, **late, "overflowed": 0, **more}


@pytest.mark.parametrize(
    ("held", "ok", "says"),
    [
        (None, False, "not measured"),
        (_held(), True, "0.2 ms of wall-clock time off their time at the p95"),
        (_held(0.0015), False, "1.5 ms of wall-clock time off"),
        (_held(overflowed=3), False, "3 found no room"),
        (_held(None, frames=0), False, "not measured"),
        (_held(None, method="netem", frames=None), True, "netem"),
        (_held(None, method="netem", frames=None, overflowed=1), False, "not measured"),
    ],
)
def test_packets_leave_delayed_links_in_time(
    make_point: Any, make_job: Any, held: dict[str, Any] | None, ok: bool, says: str
) -> None:
    job = make_job(_delayed(make_point("electrical"), delay_s=0.005)).with_samples()
    if held is not None:
        job.add(job.start, "link", "delay", job.end, **held)
    check = _check(_verdict(job), "link delay")
    assert check.ok is ok and says in check.says


def test_links_without_delay_need_no_relay(make_point: Any, make_job: Any) -> None:
    check = _check(_verdict(make_job(make_point()).with_samples()), "link delay")
    assert check.ok and check.value is None


@pytest.mark.parametrize("trouble", [{"delay_s": 0.005}, {"loss_percent": 0.1}])
def test_the_model_does_not_pretend_to_know_link_delay_or_loss(
    make_point: Any, make_job: Any, trouble: dict[str, float]
) -> None:
    job = make_job(_delayed(make_point("electrical", predicted_step_time_s=1e9), **trouble)).with_samples()
    verdict = _verdict(job)
    check = _check(verdict, "model")
    assert check.ok and check.value is None and "the model has no link delay" in check.says
    assert _check(verdict, "link rate").value is None, "nor is the rate of transfers that wait for packets under way"


def test_random_loss_explains_retransmissions(make_point: Any, make_job: Any) -> None:
    job = make_job(_delayed(make_point("electrical"), loss_percent=1.0)).with_samples()
    for e in job.events:
        if e.kind == "sockets":
            e.fields["retransmits"] = 500
    check = _check(_verdict(job), "retransmissions")
    assert check.ok and "on purpose" in check.says
