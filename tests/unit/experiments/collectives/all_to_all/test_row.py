"""The columns of an all-to-all: slots, and the share of their time in which ranks sent."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.collectives.all_to_all.experiment import FULL_CYCLES, AllToAllSettings
from experiments.collectives.all_to_all.formula import bytes_per_s
from experiments.collectives.all_to_all.row import AllToAllRow, duty_cycle, full_cycles
from experiments.collectives.row import described
from experiments.collectives.trial import WORLD, Trial
from experiments.runner import Measured
from experiments.settings import validated
from measure.live.delivery import Delivery
from measure.metrics.checks import Check, Verdict
from measure.metrics.collective import CollectiveTimes, StepTimes
from measure.metrics.point import Point
from railyard.scale import Scale
from railyard.timeline import Event
from workloads.program import Group

N, SLOT_S, DARK_S = 4, 0.1, 0.01
SLOW = Check("timers", 1.0, 0.0, "s", False, "slow")


def row_of(
    made: Trial,
    events: list[Event],
    times: CollectiveTimes,
    delivered: Delivery | None,
    checks: tuple[Check, ...] = (),
) -> dict[str, Any]:
    """The row of a trial that was measured with these events; the model takes 0.5 s after the last arrival."""
    scale = Scale(1.0)
    row = described(AllToAllRow, made, scale, 1)
    assert isinstance(row, AllToAllRow)
    row.predicted_after_arrival_s = 0.5
    row.after_arrival_s = times.after_arrival_s
    row.by_formula(made)
    nothing: Any = None
    row.count(delivered)
    measured = Measured(point(made, scale), events, nothing, delivered)
    vars(measured)["verdict"] = Verdict(not checks, checks)
    row.by_measurement(made, measured, times)
    return {**row.to_json(), "checks": [check.name for check in row.checks]}


def trial(**values: Any) -> Trial:
    given = {"studies": ["slot"], "policies": ["rotor"], "ranks": [N], "slots_ms": [SLOT_S * 1e3], "guard_ms": 2}
    (found,) = validated(AllToAllSettings, given | values).trials()
    return found


def point(made: Trial, scale: Scale) -> Point:
    return Point(0, "rotor", made.fabric.plan(scale), {WORLD: Group(WORLD, "ep", tuple(range(N)))}, scale)


def played(share: float, slots: int, made: Trial, scale: Scale) -> tuple[list[Event], CollectiveTimes]:
    """Slots from 10 s on, in each of which every rank sends so much of what its port carries in a slot."""
    events, begin = list[Event](), 10.0
    size = share * SLOT_S * scale.time * bytes_per_s(made) * scale.rate
    t = begin
    for number in range(slots):
        t += DARK_S * scale.time
        events.append(Event(t, "controller", "slot", t + SLOT_S * scale.time, {"slot": number}))
        events += [Event(t, "agent", "sent_in_slot", t + 0.001, {"rank": rank, "bytes": size}) for rank in range(N)]
        t += SLOT_S * scale.time
    arrivals, ends = (begin,) * N, (t,) * N
    return events, CollectiveTimes((StepTimes(0, tuple(range(N)), arrivals, ends),))


def test_in_study_slot_some_cycles_are_full_and_no_more() -> None:
    assert full_cycles(trial()) == FULL_CYCLES
    assert full_cycles(trial(scale={"rate": "1/100"}, port_gbps=5)) == FULL_CYCLES


@pytest.mark.parametrize(("share", "cycles"), [(0.5, 0), (0.9, 0), (0.97, 1), (1.5, 1), (2.0, 2)])
def test_a_cycle_is_full_if_everybody_has_enough_for_its_slots(share: float, cycles: int) -> None:
    size = share * (SLOT_S - 0.002) * AllToAllSettings().bytes_per_s
    assert full_cycles(trial(studies=["grid"], sizes=[int(size)])) == cycles


@pytest.mark.parametrize("values", [{"slots_ms": [0]}, {"demand": "skewed"}, {"policies": ["electrical"]}])
def test_without_slots_of_a_length_or_with_uneven_demand_no_cycle_is(values: dict[str, Any]) -> None:
    made = trial(**{"studies": ["grid"], "sizes": [10_000_000], **values})
    events, times = played(1.0, 3, made, Scale(1.0))
    assert full_cycles(made) == 0 and duty_cycle(made, point(made, Scale(1.0)), events, times) is None


@pytest.mark.parametrize("scale", [Scale(1.0), Scale(0.01), Scale(0.01, 4.0)])
def test_the_duty_cycle_is_what_ranks_sent_of_what_ports_carry_dark_and_light(scale: Scale) -> None:
    made = trial(scale={"rate": scale.rate, "time": scale.time}, port_gbps=0.05 / scale.rate)
    events, times = played(0.9, FULL_CYCLES * (N - 1) + 2, made, scale)
    found = duty_cycle(made, point(made, scale), events, times)
    assert found == pytest.approx(0.9 * SLOT_S / (SLOT_S + DARK_S))


def test_slots_after_the_full_cycles_do_not_count() -> None:
    made, scale = trial(), Scale(1.0)
    events, times = played(0.9, FULL_CYCLES * (N - 1), made, scale)
    more = [Event(50.0, "controller", "slot", 50.1, {"slot": 99})]
    late = CollectiveTimes((StepTimes(0, tuple(range(N)), times.steps[0].arrivals, (51.0,) * N),))
    assert duty_cycle(made, point(made, scale), [*events, *more], late) == duty_cycle(
        made, point(made, scale), events, times
    )


def test_fewer_slots_than_full_ones_have_no_duty_cycle() -> None:
    made, scale = trial(), Scale(1.0)
    events, times = played(0.9, FULL_CYCLES * (N - 1) - 1, made, scale)
    assert duty_cycle(made, point(made, scale), events, times) is None


def test_the_columns_without_a_ledger() -> None:
    made, scale = trial(studies=["grid"], sizes=[500_000]), Scale(1.0)
    events, times = played(0.9, 3, made, scale)
    row = row_of(made, events, times, None)
    assert row["time_s"] == pytest.approx(3 * (SLOT_S + DARK_S)) and row["predicted_time_s"] == 0.5
    assert row["over_formula"] == pytest.approx(row["time_s"] / row["formula_s"])
    assert row["slots"] == 3 and row["full_cycles"] == 0
    assert row["duty_cycle"] == pytest.approx(3 * 500_000 / bytes_per_s(made) / row["time_s"])
    assert row["ideal_duty_cycle"] == pytest.approx((SLOT_S - 0.002) / (SLOT_S + DARK_S))
    assert row["goodput_gbps"] == pytest.approx(3 * 500_000 * 8 / row["time_s"] / 1e9)
    assert row["misdelivered"] is None and row["lost_packets"] is None
    assert row["faithful"] is False and row["checks"] == ["delivery", "loss"]
    assert row["verdict"].count("not measured: the counters of the rails were not read") == 2


def moved(sent: int, received: int) -> list[Event]:
    ends = [("communicate", {"payload_bytes": sent}), ("transfer", {"bytes": received})]
    return [Event(10.0, "agent", kind, 11.0, {"group": WORLD, "step": 0, "op": 2, "rank": 0, **f}) for kind, f in ends]


@pytest.mark.parametrize(
    ("misdelivered", "received", "faithful", "verdict"),
    [
        (0, 100, True, "faithful"),
        (
            None,
            100,
            True,
            "NOT FAITHFUL: delivery not measured: a kernel before 5.19 does not count packets at a wrong host",
        ),
        (0, 0, True, "NOT FAITHFUL: delivery not measured: no agent reported what it sent"),
        (3, 100, True, "NOT FAITHFUL: 3 packets arrived at a host other than their destination"),
        (0, 90, True, "NOT FAITHFUL: 100 bytes were sent and 90 received"),
        (3, 100, False, "NOT FAITHFUL: slow; 3 packets arrived at a host other than their destination"),
    ],
)
def test_what_goes_astray_is_not_faithful(
    misdelivered: int | None, received: int, faithful: bool, verdict: str
) -> None:
    made, scale = trial(studies=["grid"], sizes=[500_000]), Scale(1.0)
    events, times = played(0.9, 3, made, scale)
    events += moved(100 if received else 0, received)
    delivered = Delivery(10, 10, 1000, 1000, misdelivered)
    row = row_of(made, events, times, delivered, () if faithful else (SLOW,))
    assert row["verdict"] == verdict and row["faithful"] == (verdict == "faithful")
    assert row["misdelivered"] == misdelivered and row["sent_bytes"] == 1000


@pytest.mark.parametrize(("received", "faithful"), [(1_000_000, True), (995_000, True), (994_000, False)])
def test_what_many_packets_met_the_dark_is_not_faithful(received: int, faithful: bool) -> None:
    made, scale = trial(), Scale(1.0)
    events, times = played(0.9, FULL_CYCLES * (N - 1), made, scale)
    delivered = Delivery(1000, 994, 1_000_000, received, 0)
    row = row_of(made, [*events, *moved(100, 100)], times, delivered)
    assert row["faithful"] == faithful and row["lost_packets"] == 6
    lost = "NOT FAITHFUL: 6 packets were lost, 0.60% of all bytes (limit 0.5%)"
    assert row["verdict"] == ("faithful" if faithful else lost)
