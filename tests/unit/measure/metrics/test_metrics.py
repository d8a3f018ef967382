from __future__ import annotations

from typing import Any

import pytest

from measure.metrics.metrics import measure_point
from measure.metrics.stall import hidden_s
from railyard.scale import Scale
from railyard.timeline import Event

GATHER, WINDOW, SEND, COMPUTE = 0.1, 0.05, 0.2, 0.3
ELECTRICAL = GATHER + WINDOW + SEND + COMPUTE


@pytest.mark.parametrize(
    ("mode", "delay", "exposed", "hidden"),
    [
        ("electrical", 0.0, 0.0, 0.0),
        ("on-demand", 0.04, 0.08, 0.0),
        ("on-demand", 0.2, 0.4, 0.0),
        ("provisioned", 0.04, 0.04, 0.04),
        ("provisioned", 0.2, 0.2 + 0.15, 0.05),
    ],
)
def test_step_time_and_stall_follow_the_stall_law(
    make_point: Any, make_job: Any, mode: str, delay: float, exposed: float, hidden: float
) -> None:
    point = make_point(mode, delay)
    m = measure_point(point, make_job(point).timeline())
    assert m.step_time_s == pytest.approx(ELECTRICAL + exposed)
    assert m.circuit_wait_s == pytest.approx(exposed)
    assert m.circuit_wait_worst_s == pytest.approx(exposed)
    assert hidden_s(m.reconfigurations_per_step, delay, exposed) == pytest.approx(hidden)
    assert m.readiness_wait_s == pytest.approx(0, abs=1e-9)
    assert m.reconfigurations_per_step == (0 if mode == "electrical" else 2)
    assert m.steps == 3 and m.warmup_steps == 1


def test_times_are_those_of_the_real_system(make_point: Any, make_job: Any) -> None:
    slow = make_point("on-demand", 0.02, Scale(1 / 4000, time=2.0))
    m = measure_point(slow, make_job(slow).timeline())
    assert slow.dark_s == pytest.approx(0.04)
    assert m.step_time_s == pytest.approx((ELECTRICAL + 0.08) / 2)
    assert m.circuit_wait_s == pytest.approx(0.04)
    assert m.window_median_s == pytest.approx(WINDOW / 2)
    assert m.dark_error_s is not None and m.dark_error_s.p50 == pytest.approx(0, abs=1e-9)


def test_steps_without_a_controller_are_counted_apart(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.02, Scale(1 / 4000, time=2.0))
    events = make_job(point, steps=4).timeline()
    (begun, ended), *_ = {(e.t, e.end): e for e in events if e.kind == "step" and e["step"] == 2}
    waits = [Event(begun + at, "agent", "wait", ended, {"rank": 0, "group": "x", "index": 9, "step": 2})
             for at in (0.0, 0.01)]  # fmt: skip
    events += [*waits, Event(begun + 0.04, "run", "restarted", None, {"restart_s": 0.05})]
    m = measure_point(point, events)
    assert m.disturbed == {1, 2} and m.step_time_s == pytest.approx((ELECTRICAL + 0.08) / 2)
    assert m.controller_restart_wall_s == pytest.approx(0.05)
    assert m.controller_wait_wall_s == pytest.approx(0.03)
    assert m.controller_late_wall_s == pytest.approx(0, abs=1e-9)


def test_windows_leave_the_wait_for_light_out(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.2)
    m = measure_point(point, make_job(point, steps=2).timeline())
    assert len(m.windows_s) == point.plan.ranks
    assert all(w == pytest.approx(WINDOW) for w in m.windows_s)


def test_waiting_for_a_slow_member_is_readiness_and_not_stall(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    job = make_job(point, steps=1)
    early = [
        Event(e.t - 0.01, e.source, e.kind, e.end, e.fields) if e.kind == "wait" and e["rank"] == 0 else e
        for e in job.timeline()
    ]
    m = measure_point(point, early)
    assert m.circuit_wait_s == pytest.approx(0.08)
    assert m.readiness_wait_s == pytest.approx(0.02)
    assert m.control_wait_s == pytest.approx(0, abs=1e-9)


def test_a_dark_port_of_another_rail_stalls_nobody(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    events = [e for e in make_job(point, steps=1).timeline() if not (e.kind == "reconfigure" and e["rail"] == "rail0")]
    rail0 = [e for e in events if e.source != "agent" or e["rank"] % 2 == 0]
    m = measure_point(point, rail0)
    assert m.circuit_wait_s == 0
    assert m.readiness_wait_s == pytest.approx(0.08)


def test_bandwidth_is_that_of_nccl_tests(make_point: Any, make_job: Any) -> None:
    point = make_point("electrical", 0.0)
    m = measure_point(point, make_job(point).timeline())
    line = 100e6 / 8 * 8948 / 9014 * 4000 / 1e9
    gather, send = m.bandwidth["all_gather"], m.bandwidth["send_recv"]
    assert send.algbw_gb_s == send.busbw_gb_s == pytest.approx(line, rel=1e-5)
    assert gather.algbw_gb_s == pytest.approx(4 * line, rel=1e-5)
    assert gather.busbw_gb_s == pytest.approx(2 * line, rel=1e-5)
    assert gather.count == 2 * 2 * 2, "two stages, two rails, two measured steps"


def test_counts_of_switch_agents_and_verification(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    job = make_job(point)
    job.add(job.start + 0.01, "switch", "dropped", rail="rail0", packets=7, bytes=7000, during=1)
    job.add(job.start, "link", "switch", switch="rail0", packets_in=100, packets_out=100)
    job.add(job.end, "link", "switch", switch="rail0", packets_in=1109, packets_out=1100)
    job.add(job.end, "agent", "sockets", rank=0, retransmits=5, bytes=10)
    job.add(job.end, "agent", "verified", rank=0, step=0, op=0, wrong=3)
    job.add(job.end, "controller", "refused", group="dp0.0", index=1, reason="in use")
    assert measure_point(point, make_job(point).timeline()).packets_lost_outside_dark is None, "nobody counted"
    m = measure_point(point, job.timeline())
    assert (m.packets_lost, m.packets_lost_outside_dark) == (7, 2)
    assert (m.retransmissions, m.verified, m.wrong, m.refusals) == (5, 1, 3, 1)
    assert m.reconfigurations == {"rail0": 12, "rail1": 12}


def test_timer_lag_and_control_latency(make_point: Any, make_job: Any) -> None:
    point = make_point("electrical", 0.0)
    job = make_job(point, late_s=0.001)
    job.add(job.start + 0.5, "controller", "ack", group="dp0.0", index=9, ranks=[0, 2], asked=job.start + 0.497)
    m = measure_point(point, job.timeline())
    assert m.timer_lag_s is not None and m.timer_lag_s.p50 == pytest.approx(0.001)
    assert m.timer_lag_per_step_s == pytest.approx(0.002)
    assert m.control_latency_s is not None and m.control_latency_s.high == pytest.approx(0.003)


def test_the_last_request_counts_where_the_controller_says_when_it_came(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point("electrical", 0.0))
    job.add(job.start + 0.5, "controller", "ack", group="dp0.0", index=9, ranks=[0, 2], asked=job.start,
            ready=job.start + 0.499)  # fmt: skip
    latency = measure_point(job.point, job.timeline()).control_latency_s
    assert latency is not None and latency.high == pytest.approx(0.001)


def test_a_transfer_into_a_buffer_does_not_flatter_the_link(make_point: Any, make_job: Any) -> None:
    job = make_job(make_point("electrical", 0.0))
    late = [
        Event(e.t + 0.15, e.source, e.kind, e.end, e.fields)
        if e.kind == "communicate" and e["op_kind"] == "recv" and e["step"] == 1
        else e
        for e in job.timeline()
    ]
    before, after = (measure_point(job.point, e).bandwidth["send_recv"] for e in (job.timeline(), late))
    assert after.algbw_gb_s == pytest.approx(before.algbw_gb_s)
    assert after.count == before.count / 2


def test_an_ack_that_waited_for_light_is_no_control_latency(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    assert measure_point(point, make_job(point).timeline()).control_latency_s is None


def test_a_run_that_died_early_has_no_numbers_but_no_error(make_point: Any) -> None:
    m = measure_point(make_point(), [])
    assert m.steps == 0 and m.step_time_s is None and m.windows_s == () and m.timer_lag_s is None


def test_a_step_that_one_rank_never_finished_does_not_count(make_point: Any, make_job: Any) -> None:
    point = make_point("electrical", 0.0)
    events = [e for e in make_job(point).timeline() if not (e.kind == "step" and e["rank"] == 3 and e["step"] == 2)]
    assert measure_point(point, events).steps == 2


def test_step_time_counts_from_end_to_end_when_ranks_run_ahead(make_point: Any) -> None:
    events = [
        Event(0.0, "agent", "step", 1.0, {"rank": 0, "step": 0}),
        Event(0.0, "agent", "step", 1.5, {"rank": 1, "step": 0}),
        Event(1.0, "agent", "step", 2.2, {"rank": 0, "step": 1}),
        Event(1.5, "agent", "step", 2.5, {"rank": 1, "step": 1}),
    ]
    assert measure_point(make_point(), events).step_times_s == pytest.approx((1.5, 1.0))
