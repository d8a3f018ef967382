"""A fabric on two machines: each is judged by itself, and what fails names its machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from synthetic_job import Job, build_point

from experiments.redraw import build_trace
from measure.metrics.checks import Verdict, machine_names, with_machine
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from railyard.timeline import Event

POINT = build_point("on-demand", 0.04)
ONE = Job(POINT, steps=6).with_samples().timeline()


def _named(e: Event, machine: str, **more: Any) -> Event:
    return replace(e, fields={**e.fields, "machine": machine, **more})


def _two() -> list[Event]:
    """The same point where machine m1 has the links, and m0 has processors and Open vSwitch as well."""
    found = with_machine(ONE, "m1")
    also = with_machine([e for e in ONE if e.kind in ("cpu", "forwarding")], "m0")
    cpus = sum(e.kind == "cpu" for e in also)
    also += [_named(e, "m0", events=cpus) for e in ONE if e.kind == "sampled"]
    return sorted([*found, *also], key=lambda e: e.t)


def _spoiled(machine: str, kind: str, **more: Any) -> list[Event]:
    return [_named(e, machine, **more) if (e.kind, e.get("machine")) == (kind, machine) else e for e in _two()]


def verdict(events: Sequence[Event]) -> Verdict:
    return judge(POINT, events, measure_point(POINT, events))


def test_two_machines_that_kept_up_are_faithful() -> None:
    assert machine_names(_two()) == ("m0", "m1") and machine_names(ONE) == machine_names([]) == (None,)
    one, two = verdict(ONE), verdict(_two())
    assert one.faithful and two.faithful, str(two)
    assert [(c.name, c.limit, c.unit) for c in two.checks] == [(c.name, c.limit, c.unit) for c in one.checks]


@pytest.mark.parametrize("machine", ["m0", "m1"])
@pytest.mark.parametrize(
    ("kind", "more", "name", "value", "says"),
    [
        ("cpu", {"busy": 1.0}, "cores", 1.0, "all cores were busy 100% of the time"),
        ("cpu", {"steal": 0.06}, "other guests", 0.06, "other guests of the hardware took 6.0% of the processors"),
        ("cpu", {"other": 0.2}, "other processes", 0.4, "other processes kept 0.40 of 2 processors busy"),
        ("cpu", {"other": 0.02, "cores": 16}, "other processes", 0.32, "other processes kept 0.32 of 16 processors"),
        ("cpu", {"softirq": 1.0}, "datapath thread", 1.0, "a processor did nothing but forward 100% of the time"),
    ],
)
def test_a_machine_that_did_not_keep_up_is_named_and_not_averaged(
    machine: str, kind: str, more: dict[str, float], name: str, value: float, says: str
) -> None:
    failed = verdict(_spoiled(machine, kind, **more)).failed
    assert [check.name for check in failed] == [name]
    assert failed[0].value == pytest.approx(value) and failed[0].says.startswith(f"on {machine} {says}")


@pytest.mark.parametrize("machine", ["m0", "m1"])
def test_packets_that_went_up_are_those_of_one_machine(machine: str) -> None:
    events = _two()
    last = max(i for i, e in enumerate(events) if (e.kind, e.get("machine")) == ("forwarding", machine))
    events[last] = replace(events[last], fields={**events[last].fields, "up": 1000})
    failed = verdict(events).failed
    assert [check.name for check in failed] == ["fast path"]
    assert failed[0].says == f"on {machine} 999 of 2000 packets went up to Open vSwitch (limit 1%)"


@pytest.mark.parametrize("machine", ["m0", "m1"])
@pytest.mark.parametrize(
    ("kind", "names", "says"),
    [
        (
            "cpu",
            {"other guests", "other processes", "cores", "datapath thread", "samples", "sampler events"},
            "on {} cores not measured: no CPU sample was recorded",
        ),
        ("sampled", {"sampler events"}, "on {} sampler events not measured: the events of the sampler have no end"),
        (
            "forwarding",
            {"fast path", "datapath thread", "counters"},
            "counters not measured: how packets are forwarded on {} was not read before and after the steps",
        ),
    ],
)
def test_what_one_machine_did_not_record_is_not_hidden_by_the_other(
    machine: str, kind: str, names: set[str], says: str
) -> None:
    found = verdict([e for e in _two() if (e.kind, e.get("machine")) != (kind, machine)])
    assert {check.name for check in found.failed} == names
    assert says.format(machine) in str(found)


@pytest.mark.parametrize("machine", ["m0", "m1"])
def test_a_sampler_that_stood_still_on_one_machine(machine: str) -> None:
    start = min(e.t for e in ONE if e.kind == "cpu")
    gone = [e for e in _two() if e.get("machine") == machine and e.kind == "cpu" and 1 < e.t - start < 2.5]
    failed = verdict([e for e in _two() if e not in gone]).failed
    assert {check.name for check in failed} == {"samples", "sampler events"}
    assert any(c.says.startswith(f"on {machine} samples not measured: for 1.") for c in failed), [
        c.says for c in failed
    ]


def test_a_clock_alone_shows_that_there_is_a_machine() -> None:
    clock = Event(ONE[0].t, "link", "clock", None, {"machine": "m2", "offset_s": 0.0, "uncertainty_s": 1e-5})
    assert "on m2 cores not measured" in str(verdict([*_two(), clock]))


def test_the_trace_has_a_track_for_the_processors_of_each_machine() -> None:
    def tracks(events: Sequence[Event]) -> set[str]:
        return {str(t["name"]) for t in build_trace(events, POINT.scale)["traceEvents"] if t["ph"] == "C"}

    assert (tracks(ONE), tracks(_two())) == ({"CPU"}, {"CPU of m0", "CPU of m1"})
