"""Where measured and predicted steps differ: the parts of any critical path fill the step, costs are told apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.policies.catalog import load_policy
from measure.metrics.explain import Explanation, Ledger, explain, last_step
from measure.metrics.point import Point
from measure.metrics.step_path import KINDS, Timeline
from measure.metrics.steps import Steps
from measure.model.prediction import Costs, Prediction, predict
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo
from workloads.catalog import load_workload

GROUPS = ("dp", "pp")
SCALE = Scale(1 / 100)
SMOKE = load_workload("smoke")
FABRIC = plan(RailTopo(servers=SMOKE.servers, gpus=SMOKE.gpus_per_server, rate_mbps=4000.0, fabric="ocs"))
POINT = Point(0, "on-demand", FABRIC, {}, SCALE)

times = st.floats(0.0, 10.0).map(lambda t: round(t, 2))  # coarse, so that many events coincide
ranks = st.integers(0, 2)
spans = st.tuples(times, times).map(sorted)


@st.composite
def agent_events(draw: st.DrawFn) -> Event:
    """Any event of an agent that a path can go through, of the first two steps and a few operations."""
    kind = draw(st.sampled_from(("compute", "communicate", "transfer", "wait")))
    begin, end = draw(spans)
    fields: dict[str, Any] = {"rank": draw(ranks), "step": draw(st.integers(0, 1)), "op": draw(st.integers(0, 3))}
    if kind in ("compute", "communicate"):
        fields["name"] = "one"
    if kind == "communicate":
        fields |= {"group": draw(st.sampled_from(GROUPS)), "dimension": "dp", "posted": draw(times)}
        fields["op_kind"] = draw(st.sampled_from(("all_gather", "send", "recv")))
    if kind == "transfer":
        fields |= {"peer": draw(ranks), "transfer": draw(st.integers(0, 3))}
    if kind == "wait":
        fields |= {"group": draw(st.sampled_from((*GROUPS, "circuit"))), "index": draw(st.integers(0, 1))}
    return Event(begin, "agent", kind, end, fields)


@st.composite
def controller_events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(("ack", "refused", "slot", "reconfigure")))
    begin, end = draw(spans)
    fields: dict[str, Any] = {"group": draw(st.sampled_from(GROUPS)), "index": draw(st.integers(0, 1))}
    if kind == "ack":
        fields |= {"asked": begin, "ready": draw(times), "ranks": [0, 1, 2]}
    if kind == "slot":
        fields["pairs"] = [[0, 1]]
    if kind == "reconfigure":
        ports = [port.number for port in FABRIC.rail_of(0).ports]
        fields |= {"rail": "rail0", "ports": ports, "circuits": [ports[:2]]}
    return Event(begin, "controller", kind, end, fields)


timelines = st.lists(agent_events() | controller_events(), max_size=24)
ends = [
    Event(0.0, "agent", "step", 6.0, {"rank": 0, "step": 0}),
    Event(6.0, "agent", "step", 9.5, {"rank": 0, "step": 1}),
]


@settings(max_examples=40)
@given(timelines, timelines)
def test_the_parts_of_any_path_add_up_to_its_step(measured: list[Event], predicted: list[Event]) -> None:
    for events in (measured := [*ends, *measured], predicted := [*ends, *predicted]):
        steps = Steps.read(events)
        lasts = dict(zip(steps.complete, steps.durations(), strict=True))
        for step, path in Timeline(events).paths().items():
            assert sum(part.seconds for part in path) == pytest.approx(lasts[step], abs=1e-9)
            assert all(part.seconds > 0 and part.kind in KINDS for part in path)
    found = explain(POINT, [measured], predicted)
    if found is None:
        return
    of_kinds = sum(found.difference(kind) for kind in KINDS)
    of_operations = sum(found.difference(operation=one) for one in found.operations())
    of_names = sum(found.difference(operation=one, named=True) for one in found.operations(named=True))
    off = found.measured_s - found.predicted_s
    assert (of_kinds, of_operations, of_names) == pytest.approx((off, off, off), abs=1e-9)


def predicted(delay_s: float = 0.0, **costs: float) -> Prediction:
    policy = load_policy("opus", FABRIC)
    return predict(SMOKE.program, FABRIC, policy, "on-demand", delay_s, scale=SCALE, steps=3, costs=Costs(**costs))


def differences(costly: Prediction, ideal: Prediction) -> dict[str, float]:
    found = explain(POINT, [costly.events], ideal.events)
    assert found is not None
    assert found.measured_s - found.predicted_s == pytest.approx(costly.step_time_s - ideal.step_time_s, abs=1e-9)
    assert found.predicted_s == pytest.approx(ideal.step_time_s)
    return {kind: found.difference(kind) for kind in KINDS}


def test_each_cost_of_the_model_is_found_under_its_name() -> None:
    ideal = predicted()
    asked = differences(predicted(control_s=0.002), ideal)
    assert asked["ask"] == pytest.approx(sum(asked.values())) and asked["ask"] > 0.0039
    dark = differences(predicted(0.05), ideal)
    assert dark["dark"] == pytest.approx(0.1) and sum(dark.values()) == pytest.approx(0.1)
    later = differences(predicted(alpha_s=0.001), ideal)
    assert later["wire"] + later["transfer"] == pytest.approx(sum(later.values())) and sum(later.values()) > 0.001


def test_the_last_step_alone_explains_as_much_as_all_of_them() -> None:
    costly, ideal = predicted(alpha_s=0.001), predicted()
    kept = last_step(ideal.events)
    assert len(kept) < 0.6 * len(ideal.events)
    of_last, of_all = (explain(POINT, [costly.events], events) for events in (kept, ideal.events))
    assert of_last is not None and of_all is not None and of_last.measured == of_all.measured
    assert of_last.predicted_s == pytest.approx(of_all.predicted_s)


def test_a_path_over_another_rank_is_known_as_such() -> None:
    def computed(*seconds: float) -> list[Event]:
        return [
            event
            for rank, end in enumerate(seconds)
            for event in (
                Event(0.0, "agent", "compute", end, {"rank": rank, "step": 0, "op": 0, "name": "one"}),
                Event(0.0, "agent", "step", end, {"rank": rank, "step": 0}),
            )
        ]

    same, other = (explain(POINT, [computed(2.0, 1.0)], computed(*times)) for times in ((3.0, 1.0), (1.0, 3.0)))
    assert same is not None and other is not None
    assert (same.other_ranks, other.other_ranks) == (0.0, 1.0)
    assert same.measured_s == other.measured_s == pytest.approx(SCALE.real_s(2.0))


def test_what_one_kind_has_more_and_another_less_has_moved() -> None:
    measured: Ledger = {("c", "c", "compute"): 1.0, ("d", "d", "peers"): 1.2}
    assert Explanation(1, measured, {("c", "c", "compute"): 1.7}, 0.5).moved_s == pytest.approx(0.7)
    assert Explanation(1, measured, {}, 0.5).moved_s == pytest.approx(0.0)


def test_nothing_is_explained_without_a_complete_step() -> None:
    assert explain(POINT, [[]], predicted().events) is None
    assert explain(POINT, [predicted().events], []) is None
