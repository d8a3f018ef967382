"""The time from a request for circuits to the first payload over them, and its four parts."""

from __future__ import annotations

from typing import Any

import pytest

from measure.metrics.circuit_delay import circuit_delays
from railyard.scale import Scale
from railyard.timeline import Event


def agent(t: float, kind: str, end: float | None = None, **fields: Any) -> Event:
    return Event(t, "agent", kind, end, {"step": 0, **fields})


def controller(t: float, kind: str, end: float | None = None, **fields: Any) -> Event:
    return Event(t, "controller", kind, end, fields)


def changed(asked: float, t: float, end: float, group: str = "pp") -> Event:
    return controller(t, "reconfigure", end, rail="rail0", ports=[1, 2], circuits=[[1, 2]], asked=asked, group=group)


def test_the_parts_sum_to_the_whole(make_point: Any) -> None:
    point = make_point("on-demand", 0.1, Scale(1 / 100, time=2.0))
    events = [
        agent(0.5, "wait", 1.212, rank=0, op=3, group="pp", index=4),
        agent(0.9, "wait", 1.213, rank=4, op=7, group="pp", index=4),
        changed(asked=1.0, t=1.002, end=1.202),
        controller(1.21, "ack", group="pp", index=4, ranks=[0, 4], asked=0.5, ready=1.0),
        agent(1.22, "transfer", 1.3, rank=4, op=7, transfer=1),
        agent(1.215, "transfer", 1.3, rank=4, op=7, transfer=0),
        agent(1.0, "transfer", 1.1, rank=4, op=6, transfer=0),
    ]
    (delay,) = circuit_delays(point, events)
    assert (delay.control, delay.dark, delay.recovery) == pytest.approx((0.01, 0.2, 0.0))
    assert delay.first_byte == pytest.approx(0.005) and delay.whole == pytest.approx(0.215)
    assert delay.whole == pytest.approx(delay.control + delay.dark + delay.recovery + delay.first_byte)


def test_circuits_that_nobody_waits_for_have_no_delay(make_point: Any) -> None:
    events = [
        changed(asked=1.0, t=1.0, end=1.1),
        controller(1.1, "ack", group="pp", index=0, ranks=[0, 4], asked=1.0, ready=1.0),
        agent(3.0, "transfer", 3.1, rank=4, op=7, transfer=0),
    ]
    assert circuit_delays(make_point("provisioned", 0.1), events) == []


def test_of_several_changes_for_one_request_the_last_counts(make_point: Any) -> None:
    events = [
        agent(1.0, "wait", 1.5, rank=4, op=7, group="pp", index=0),
        changed(asked=1.0, t=1.0, end=1.1),
        changed(asked=1.0, t=1.3, end=1.4),
        controller(1.5, "ack", group="pp", index=0, ranks=[4], asked=1.0, ready=1.0),
        agent(1.5, "transfer", 1.6, rank=4, op=7, transfer=0),
    ]
    (delay,) = circuit_delays(make_point("on-demand", 0.1), events)
    assert (delay.control, delay.dark, delay.whole) == pytest.approx((0.4, 0.1, 0.5))
