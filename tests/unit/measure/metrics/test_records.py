"""No check passes on what was not recorded: whatever is missing or cut from a faithful point is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from synthetic_job import Job, build_point

from measure.metrics.checks import Verdict
from measure.metrics.fidelity import judge
from measure.metrics.metrics import measure_point
from measure.metrics.point import Point
from railyard.timeline import Event, with_gaps

POINT = build_point("on-demand", 0.04)
JOB = Job(POINT, steps=6).with_samples()
JOB.add(JOB.start + 0.5, "switch", "dropped", rail="rail0", packets=3, bytes=30, during=1)
for _rank in range(POINT.plan.ranks):
    JOB.add(JOB.start + 0.5, "agent", "verified", rank=_rank, step=0, op=0, wrong=0)
EVENTS = JOB.timeline()
HALF = (JOB.start + JOB.end) / 2
KINDS = sorted({(e.source, e.kind) for e in EVENTS})
LATER = sorted({(e.source, e.kind) for e in EVENTS if e.t >= HALF})
SOURCES = ("agent", "controller", "link")


def verdict(events: Sequence[Event], point: Point = POINT) -> Verdict:
    return judge(point, events, measure_point(point, events))


def failed(events: Sequence[Event], point: Point = POINT) -> set[str]:
    found = verdict(events, point)
    assert found.faithful is not bool(found.failed)
    return {check.name for check in found.failed}


def test_the_complete_point_is_faithful() -> None:
    assert verdict(EVENTS).faithful, str(verdict(EVENTS))
    assert len(KINDS) == 16


@pytest.mark.parametrize(("source", "kind"), KINDS)
def test_a_kind_of_events_that_is_missing_is_named(source: str, kind: str) -> None:
    found = verdict([e for e in EVENTS if (e.source, e.kind) != (source, kind)])
    named = {
        "agent": {"agent events"},
        "controller": {"controller events"},
        "switch": {"controller events"},
        "link": {"samples", "counters", "sampler events"},
    }[source]
    assert not found.faithful and named & {check.name for check in found.failed}
    assert all("not measured" in check.says for check in found.failed if check.name in named)


@pytest.mark.parametrize(("source", "kind"), LATER)
def test_a_kind_of_events_that_ends_at_half_time_is_named(source: str, kind: str) -> None:
    cut = [e for e in EVENTS if (e.source, e.kind) != (source, kind) or e.t < HALF]
    assert {"agent events", "controller events", "samples", "counters", "sampler events"} & failed(cut)


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_missing_or_ends_at_half_time_is_named(source: str) -> None:
    assert failed([e for e in EVENTS if e.source != source])
    name = {"agent": "agent events", "controller": "controller events", "link": "samples"}[source]
    assert name in failed([e for e in EVENTS if e.source != source or e.t < HALF])


@pytest.mark.parametrize("rank", [0, 5])
def test_an_agent_whose_events_are_missing_or_cut_is_named(rank: int) -> None:
    def of_agent(e: Event) -> bool:
        return e.source == "agent" and e["rank"] == rank

    for left in (
        [e for e in EVENTS if not of_agent(e)],
        [e for e in EVENTS if not of_agent(e) or e.t < HALF],
        [e for e in EVENTS if not of_agent(e) or e.kind == "sockets" or e.t > HALF],
    ):
        check = next(check for check in verdict(left).failed if check.name == "agent events")
        assert f"rank {rank}" in check.says


@pytest.mark.parametrize("lines", [1, 3])
def test_a_head_that_is_missing_is_named(lines: int) -> None:
    """Of each file of a point: those of an agent, the sampler and the controller."""
    of_agent = [e for e in EVENTS if e.source == "agent" and e["rank"] == 2]
    sampled = [e for e in EVENTS if e.kind in ("bytes", "cpu", "sampled")]
    told = [e for e in EVENTS if e.source in ("controller", "switch")]
    for file, name in ((of_agent, "agent events"), (sampled, "sampler events"), (told, "controller events")):
        rest = [e for e in EVENTS if not any(e is each for each in file)]
        assert name in failed([*rest, *with_gaps(file[lines:])])


CUTS: dict[str, tuple[Callable[[Event], bool], set[str]]] = {
    "the sampler was killed early": (
        lambda e: e.kind in ("cpu", "bytes") and e.t > JOB.start + 0.3,
        {"samples", "sampler events"},
    ),
    "the sampler stood still": (lambda e: e.kind == "cpu" and HALF < e.t < HALF + 1.1, {"samples", "sampler events"}),
    "links of one host were not sampled": (
        lambda e: e.kind == "bytes" and e["rank"] == 3,
        {"samples", "sampler events"},
    ),
    "queues of one host were not read": (lambda e: e.kind == "qdisc" and e["rank"] == 3, {"counters"}),
    "the queue of one interface was read once": (
        lambda e: e.kind == "qdisc" and e["interface"] == "g3-r0" and e.t > HALF,
        {"counters"},
    ),
    "one switch was not read": (lambda e: e.kind == "switch" and e["switch"] == "rail1", {"counters"}),
    "switches were not read": (lambda e: e.kind == "switch", {"counters", "drops"}),
    "one acknowledgement was lost": (lambda e: e.kind == "ack" and e.get("n") == 12, {"controller events"}),
    "the end of the job was lost": (lambda e: e.kind == "finished", {"controller events"}),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_part_that_is_missing_is_named(cut: str) -> None:
    gone, names = CUTS[cut]
    left = [e for e in EVENTS if not gone(e)]
    assert len(left) < len(EVENTS)
    assert failed(left) == names


def test_the_losses_of_lossy_links_must_be_counted() -> None:
    rail, *rest = POINT.plan.switches
    lossy = replace(rail, ports=tuple(replace(port, loss_percent=1.0) for port in rail.ports))
    point = replace(POINT, plan=replace(POINT.plan, switches=(lossy, *rest)))
    assert failed(EVENTS, point) == {"counters"}
    lost = Event(JOB.start, "link", "lost", JOB.end, {"interface": "g0-r0", "dropped": 3})
    assert not failed([*EVENTS, lost], point)


def test_a_line_that_was_cut_is_named() -> None:
    assert failed([*EVENTS, Event(HALF, "run", "cut", None, {"lines": 1})]) == {"logs"}


def test_a_job_without_controller_needs_no_events_of_it() -> None:
    left: list[Any] = [e for e in EVENTS if e.source != "controller"]
    assert "controller events" not in failed(left, replace(POINT, controlled=False))


def test_a_point_whose_own_controller_left_is_not_faithful() -> None:
    left = Event(HALF, "run", "left", None, {"what": "your controller left at 3 s"})
    (check,) = verdict([*EVENTS, left]).failed
    assert (check.name, check.says) == ("your controller", "your controller left at 3 s")
