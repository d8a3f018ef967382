from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from experiments.redraw import build_trace, trace_json
from railyard.scale import Scale
from railyard.timeline import Event


def test_the_trace_is_json_with_named_processes(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    job = make_job(point).with_samples()
    job.events.append(point.event(job.start, job.end))
    trace = json.loads(trace_json(job.timeline(), point.scale))
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {"run", "rail 0", "rail 1", *(f"rank {r}" for r in range(8))}
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in trace["traceEvents"] if e["ph"] == "X")
    assert {e["ph"] for e in trace["traceEvents"]} == {"X", "i", "C", "M"}


def test_times_are_real_microseconds_from_the_first_event(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.02, Scale(1 / 4000, time=2.0))
    events = make_job(point).timeline()
    dark = [e for e in build_trace(events, point.scale)["traceEvents"] if e["name"] == "dark: pp0.0"]
    assert dark[0]["dur"] == pytest.approx(20_000, abs=1)
    assert dark[0]["ts"] == pytest.approx((0.04 + 0.1 + 0.05) / 2 * 1e6, abs=1)


def test_nothing_overlaps_on_a_thread(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.04)
    trace = build_trace(make_job(point).timeline(), point.scale)
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in threads.values():
        ordered = sorted(spans)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))


def test_the_trace_begins_with_the_point_and_shows_what_a_person_asked_for(make_point: Any, make_job: Any) -> None:
    point = make_point("on-demand", 0.02)
    events = make_job(point).timeline()
    whole = build_trace(events, point.scale)
    noted = [
        Event(events[0].t - 5.0, "run", "begun", None, {"point": 0, "mode": "on-demand"}),
        Event(events[0].t - 1.0, "controller", "circuits", None, {"rail": "rail0", "circuits": [[1, 2]]}),
        Event(events[0].t, "run", "started", None, {"point": 0}),
    ]
    assert build_trace([*noted, *events], point.scale) == whole
    manual = Event(events[-1].t, "controller", "manual", None, {"what": "fail", "rail": "rail0", "ports": [3], "n": 9})
    names = [e["name"] for e in build_trace([*events, manual], point.scale)["traceEvents"]]
    assert names.count("fail by hand") == 1


def test_no_events_is_an_empty_trace() -> None:
    assert build_trace([], Scale(0.5))["traceEvents"] == []
