"""What the events of a point say in any window, and who waits for whom."""

from __future__ import annotations

import json
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
import pytest
from fabric_plans import rail_plan
from hypothesis import given
from hypothesis import strategies as st
from synthetic_job import RATE_MBPS
from watch.folders import SCALE, synthetic

from commands.page.view.bars import KINDS
from commands.page.view.index import PointFacts, PointIndex
from commands.page.view.payloads import _thin, state, strips, timeline
from measure.metrics.intervals import difference, overlap, total, union
from measure.metrics.point import Point
from measure.metrics.stall import read_darks, stalls
from measure.metrics.steps import Steps
from railyard.scale import Scale
from railyard.timeline import Event


def indexed(point: Point, events: Sequence[Event], **more: Any) -> PointIndex:
    """The index of a point whose first event is ``run point``."""
    facts = PointFacts(0, point.plan, point.scale, events[0].t, events[0].end, point.groups, **more)
    index = PointIndex(facts)
    assert all(index.add_line((event.to_line() + "\n").encode()) for event in events)
    index.settle()
    return index


POINT, EVENTS = synthetic()
T0, END = EVENTS[0].t, EVENTS[0].end or 0.0
INDEX = indexed(POINT, EVENTS)
DURATION = SCALE.real_s(END - T0)
WHOLE = timeline(INDEX, 0.0, DURATION, 8000, DURATION, live=False)


def bars_of(lane: str, kind: str, found: dict[str, Any] = WHOLE) -> list[tuple[float, float]]:
    bars, number = found["bars"].get(lane, {"k": []}), KINDS.index(kind)
    return [(bars["s"][i], bars["e"][i]) for i, k in enumerate(bars["k"]) if k == number]


def real(events: Sequence[Event]) -> list[tuple[float, float]]:
    return [(SCALE.real_s(e.t - T0), SCALE.real_s((e.end or e.t) - T0)) for e in events]


@pytest.mark.parametrize("rank", range(8))
def test_the_bars_of_a_rank_are_its_events(rank: int) -> None:
    mine = [e for e in EVENTS if e.source == "agent" and e.get("rank") == rank]
    for kind, events in (
        ("compute", [e for e in mine if e.kind == "compute"]),
        ("dp", [e for e in mine if e.kind == "communicate" and e["dimension"] == "dp"]),
        ("pp", [e for e in mine if e.kind == "communicate" and e["dimension"] == "pp"]),
    ):
        assert bars_of(f"rank{rank}", kind) == [pytest.approx(bar, abs=1e-5) for bar in sorted(real(events))]
        assert events


@pytest.mark.parametrize("rank", range(8))
def test_waits_are_dark_where_a_port_of_the_rank_is_and_requests_elsewhere(rank: int) -> None:
    waits = union(real([e for e in EVENTS if e.kind == "wait" and e["rank"] == rank]))
    own = union(
        (SCALE.real_s(d.t - T0), SCALE.real_s(d.end - T0)) for d in read_darks(POINT, EVENTS) if rank in d.ranks
    )
    assert total(bars_of(f"rank{rank}", "dark")) == pytest.approx(total(overlap(waits, own)), abs=1e-4)
    assert total(bars_of(f"rank{rank}", "ask")) == pytest.approx(total(difference(waits, own)), abs=1e-4)


@pytest.mark.parametrize("rank", range(8))
def test_what_is_left_of_a_step_is_a_wait_for_others(rank: int) -> None:
    mine = [e for e in EVENTS if e.source == "agent" and e.get("rank") == rank]
    steps = union(real([e for e in mine if e.kind == "step"]))
    busy = union(real([e for e in mine if e.kind in ("compute", "communicate", "wait")]))
    left = difference(steps, busy)
    assert bars_of(f"rank{rank}", "wait") == [pytest.approx(gap, abs=1e-5) for gap in left]


def naive_circuits(t: float) -> dict[str, dict[int, tuple[str, int]]]:
    """The state of every port at ``t``, from all reconfigurations in order."""
    found = {rail.name: {p.number: ("start", 0) for p in rail.ports} for rail in POINT.plan.network("rail")}
    for dark in sorted((e for e in EVENTS if e.kind == "reconfigure"), key=lambda e: e.t):
        start, end = SCALE.real_s(dark.t - T0), SCALE.real_s((dark.end or dark.t) - T0)
        ports = found[dark["rail"]]
        for port in dark["ports"] if t >= start else ():
            ports[port] = ("dark", 0) if t < end else ("none", 0)
        for a, b in dark["circuits"] if t >= end else ():
            dimension = POINT.groups[dark["group"]].dimension
            ports[a], ports[b] = (dimension, b), (dimension, a)
    return found


@given(st.floats(0, DURATION))
def test_the_state_at_any_moment_is_that_of_all_events_before_it(t: float) -> None:
    found, wanted = state(INDEX, t), naive_circuits(t)
    for rail, ports in wanted.items():
        assert found["dark"][rail] == [number for number, (kind, _) in ports.items() if kind == "dark"]
        circuits = {(c["a"], c["b"]): c["kind"] for c in found["circuits"][rail]}
        assert circuits == {(n, peer): kind for n, (kind, peer) in ports.items() if peer > n}
    allowed = {"compute": {"compute"}, "communicate": {"dp", "pp"}, "wait": {"ask", "dark"}}
    for rank in range(8):
        mine = [e for e in EVENTS if e.source == "agent" and e.get("rank") == rank and e.end is not None]
        times = zip(mine, real(mine), strict=True)
        kinds = {e.kind for e, (start, end) in times if start <= t < end and e.kind in allowed}
        shown = found["ranks"].get(str(rank), {"kind": "nothing"})["kind"]
        assert shown in set().union(*(allowed[kind] for kind in kinds)) if kinds else shown in ("wait", "nothing")


@given(st.floats(0, DURATION), st.floats(1e-3, DURATION), st.integers(16, 3000))
def test_no_window_loses_a_moment(start: float, length: float, px: int) -> None:
    found = timeline(INDEX, start, start + length, px, DURATION, live=False)
    width = length / px + 1e-4
    for lane in ("rank0", "rank5", "rail0:1"):
        here = union(zip(found["bars"].get(lane, {"s": []})["s"], found["bars"].get(lane, {"e": []})["e"], strict=True))
        whole = union(zip(WHOLE["bars"][lane]["s"], WHOLE["bars"][lane]["e"], strict=True))
        window = [(start + width, start + length - width)]
        assert total(difference(overlap(whole, union(window)), [(a - width, b + width) for a, b in here])) < 1e-6
        wide = union((a - width, b + width) for a, b in whole)
        assert total(difference(overlap(here, union(window)), wide)) < 1e-6


def test_the_ports_of_a_lane_name_their_peers() -> None:
    lit = [i for i, k in enumerate(WHOLE["bars"]["rail0:2"]["k"]) if KINDS[k] in ("dp", "pp")]
    assert lit and all(WHOLE["bars"]["rail0:2"]["p"][i] for i in lit)
    assert {lane["group"] for lane in WHOLE["lanes"]} == {"rail0", "rail1"}
    assert [lane["id"] for lane in WHOLE["lanes"]][:6] == ["rank0", "rank2", "rank4", "rank6", "rail0:1", "rail0:2"]


def test_rates_of_links_are_those_of_the_counters() -> None:
    gather = next(e for e in EVENTS if e.kind == "communicate" and e["dimension"] == "dp")
    t = SCALE.real_s((gather.t + (gather.end or 0)) / 2 - T0)
    link = state(INDEX, t)["links"][f"g{gather['rank']}-r0"]
    assert link["tx_gbps"] <= RATE_MBPS * 4 * 1.01 and link["tx_gbps"] > 0
    assert link["share"] == pytest.approx(link["tx_gbps"] / (RATE_MBPS / 1e3 / SCALE.rate), abs=1e-3)


def test_strips_have_the_steps_and_stalls_of_the_report() -> None:
    steps, found = Steps.read(EVENTS), strips(INDEX, 0.0, DURATION, 500)
    assert [s["seconds"] for s in found["steps"]] == [pytest.approx(SCALE.real_s(d)) for d in steps.durations()]
    each = stalls(POINT, EVENTS, read_darks(POINT, EVENTS), steps.complete)
    assert [s["stall_s"] for s in found["steps"]] == [pytest.approx(SCALE.real_s(each.circuits_s), abs=1e-5)] * 3
    assert [s["warmup"] for s in found["steps"]] == [True, False, False]


def test_an_act_before_the_first_step_has_a_mark_at_the_start() -> None:
    what = {"what": "fail", "rail": "rail0", "ports": [1]}
    acts = [Event(T0 + at, "controller", "manual", None, what) for at in (-0.5, 0.5)]
    refused = Event(T0 - 0.5, "controller", "refused", None, {"job": "a", "group": "g", "index": 0, "reason": "r"})
    later = (pytest.approx(SCALE.real_s(0.5)), "manual")
    found = indexed(POINT, [EVENTS[0], refused, *acts])
    assert [(mark.t, mark.kind) for mark in found.marks] == [(0.0, "manual"), later]
    shown = timeline(found, 0.0, DURATION, 800, DURATION, live=False)["marks"]
    assert [(mark["t"], mark["manual"]) for mark in shown] == [(0.0, True), (later[0], True)]


def test_strips_count_every_byte_of_a_rail() -> None:
    last = {e["interface"]: e["tx_bytes"] for e in EVENTS if e.kind == "bytes"}
    for px in (7, 500):
        found = strips(INDEX, 0.0, DURATION, px)
        for rail, strip in zip(POINT.plan.network("rail"), found["rates"], strict=True):
            gigabits = sum(SCALE.real_bytes(last[p.interface]) for p in rail.ports) * 8 / 1e9
            half = DURATION / len(found["t"]) / 2
            shown = [(v, t) for v, t in zip(strip["values"], found["t"], strict=True) if v is not None]
            known = [np.diff(np.clip((t - half, t + half), *INDEX.counters.known))[0] for _, t in shown]
            assert sum(v * s for (v, _), s in zip(shown, known, strict=True)) == pytest.approx(gigabits, rel=0.02)
            assert strip["line_gbps"] == pytest.approx(8 * RATE_MBPS / 1e3 / SCALE.rate)


def test_a_strip_counts_the_ports_of_ranks_in_jobs_and_knows_nothing_after_the_last_sample() -> None:
    """Known are the times that processors were sampled too, as an interface without a record has sent nothing."""
    plan = rail_plan(4)
    rail = plan.network("rail")[0]
    index = PointIndex(PointFacts(0, plan, Scale(1.0), 100.0))

    def sampled(t: float) -> None:
        for number, port in enumerate(rail.ports):
            index.add({"t": t, "source": "link", "kind": "bytes", "interface": port.interface,
                       "tx_bytes": 1e6 * t * (number + 1), "rx_bytes": 0})  # fmt: skip

    for t in (100.0, 101.0):
        sampled(t)
    index.add_line(b'{"t":101.0,"source":"link","kind":"cpu","end":102.0,"busy":0.1}\n')
    (every,) = strips(index, 0.0, 4.0, 80)["rates"]
    gbps = rail.ports[0].rate_mbps / 1e3
    assert (every["ports"], every["port_gbps"]) == (len(rail.ports), gbps)
    assert every["line_gbps"] == pytest.approx(len(rail.ports) * gbps)
    quarter = len(every["values"]) // 4
    assert all(value > 0 for value in every["values"][:quarter])
    assert every["values"][quarter : 2 * quarter] == [0.0] * quarter
    assert every["values"][2 * quarter :] == [None] * (len(every["values"]) - 2 * quarter)
    index.add({"t": 100.5, "source": "run", "kind": "launch", "job": "A", "incarnation": 0, "members": [1]})
    (used,) = strips(index, 0.0, 4.0, 80)["rates"]
    mine = [number for number, port in enumerate(rail.ports) if port.rank == 1]
    assert used["ports"] == len(mine) < every["ports"]
    assert used["values"][0] == pytest.approx(8e-3 * sum(number + 1 for number in mine), rel=1e-3)


def test_predictions_stand_beside_their_steps() -> None:
    index = indexed(POINT, EVENTS, predicted=(1.0, 2.0), warmup=2)
    shown = strips(index, 0.0, DURATION, 100)["steps"]
    assert [(s["predicted_s"], s["warmup"]) for s in shown] == [(1.0, True), (2.0, True), (2.0, False)]


@given(st.floats(0, DURATION))
def test_those_that_wait_are_those_that_are_drawn_waiting(t: float) -> None:
    found = state(INDEX, t)
    drawn = [int(rank) for rank, now in found["ranks"].items() if now["kind"] in ("wait", "ask", "dark")]
    assert [wait["rank"] for wait in found["waits"]] == sorted(drawn)


@pytest.mark.parametrize("line", [b"", b'{"t":1001.0,"source":"agent","kind":"compute","end":10', b"\xff\xfe\x00{"])
def test_a_line_that_is_cut_short_is_said_to_be(line: bytes) -> None:
    assert not indexed(POINT, EVENTS[:1]).add_line(line)


def test_a_point_with_very_many_bars_stays_under_two_megabytes() -> None:
    index = indexed(POINT, EVENTS[:1])
    for rank in range(8):
        for place in range(6000):
            start = T0 + (END - T0) * place / 6000
            end = start + (END - T0) / 6500
            index.add({"t": start, "source": "agent", "kind": "compute", "end": end, "rank": rank, "step": place,
                       "op": 0, "name": f"operation {place} of rank {rank}"})  # fmt: skip
    index.settle()
    found = timeline(index, 0, DURATION, 8192, DURATION, live=False)
    assert len(json.dumps(found)) <= 2_000_000
    assert found["thinned"] and len(found["bars"]["rank0"]["s"]) > 500


def a_line(t: float, kind: str, **fields: Any) -> bytes:
    return json.dumps({"t": T0 + t, "source": "agent", "kind": kind, **fields}, separators=(",", ":")).encode()


def agent_lines(n: int, rank: int, group: str) -> list[bytes]:
    common: dict[str, Any] = {"rank": rank, "step": n, "end": T0 + 1.5}
    move = {"group": group, "dimension": "dp", "name": f"move {n}", "bytes": 1}
    return [
        a_line(1.0, "compute", **common, name=f"layer {n}"),
        a_line(1.0, "communicate", **common, **move),
        a_line(1.0, "wait", **common, group=group),
        a_line(1.0, "step", **common),
    ]


def kept(index: PointIndex) -> int:
    ranks = index.ranks
    lists: tuple[Sized, ...] = (ranks._waits, ranks._steps, ranks._posted, ranks.members, ranks.groups, *ranks._posts)
    return sum(map(len, (*lists, *ranks.lanes, index.steps._steps, index.labels.texts, index.kinds)))


def test_nothing_is_kept_of_bars_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.page.view.index._MOST_BARS", 8)
    index = PointIndex(PointFacts(0, POINT.plan, SCALE, T0))
    for n in range(2):
        assert all(map(index.add_line, agent_lines(n, 1, f"group {n}")))
    before = kept(index)
    for n in range(2, 100):
        assert all(map(index.add_line, agent_lines(n, 1, f"group {n}")))
    assert kept(index) == before and index.left_out == 98 * 4


def test_of_many_steps_those_with_the_longest_stalls_are_kept() -> None:
    steps = [{"step": n, "seconds": 1.0, "stall_s": 0.5 if n % 4 == 1 else None} for n in range(12)]
    assert [step["step"] for step in _thin(steps, 3)] == [1, 5, 9]
    steps = [{"step": n, "seconds": 2.0 if n in (2, 5) else 1.0} for n in range(8)]
    assert [step["step"] for step in _thin(steps, 2)] == [2, 5]
    assert _thin(steps, 8) == steps and _thin([], 8) == []


POINT, _ = synthetic()


def test_who_waits_for_whom() -> None:
    found = PointIndex(PointFacts(0, POINT.plan, SCALE, 100.0, None, POINT.groups))
    lines = [
        {"t": 100.0, "end": 104.0, "kind": "wait", "rank": 0, "step": 0, "op": 0, "group": "dp0.0", "index": 0},
        {"t": 102.0, "end": 104.0, "kind": "wait", "rank": 2, "step": 0, "op": 0, "group": "dp0.0", "index": 0},
    ]
    for line in lines:
        assert found.add_line(json.dumps({"source": "agent", **line}).encode())
    ack = {"t": 103.8, "source": "controller", "kind": "ack", "group": "dp0.0", "index": 0, "ranks": [0, 2]}
    assert found.add_line(json.dumps({**ack, "asked": 100.1, "ready": 102.1}).encode())
    found.settle()
    assert state(found, 0.5)["waits"] == [{"rank": 0, "group": "dp0.0", "for": [2]}]
    assert state(found, 1.5)["waits"] == [{"rank": rank, "group": "dp0.0", "for": []} for rank in (0, 2)]
    assert state(found, 2.5)["waits"] == []
    assert [state(found, t)["ranks"]["0"] for t in (0.5, 1.5)] == [
        {"kind": "wait", "label": "dp0.0"}, {"kind": "ask", "label": "dp0.0"}
    ]  # fmt: skip


def test_a_rank_waits_for_members_until_the_last_has_asked_and_for_the_controller_only_from_then_on() -> None:
    found = PointIndex(PointFacts(0, POINT.plan, SCALE, 100.0, None, POINT.groups))
    asked = ((0, 100.0, "dp0.0"), (2, 102.0, "dp0.0"), (1, 100.0, "dp0.1"))
    waits: list[dict[str, Any]] = [
        {"t": t, "end": 104.0, "source": "agent", "kind": "wait", "rank": rank, "step": 0, "op": 0, "group": group}
        for rank, t, group in asked
    ]
    ports = [p.number for p in POINT.plan.network("rail")[0].ports if p.rank in (0, 2)]
    dark = {"t": 101.0, "end": 103.0, "source": "controller", "kind": "reconfigure", "rail": "rail0", "ports": ports,
            "circuits": [], "group": "dp0.0", "asked": 102.0}  # fmt: skip
    ack = {"t": 103.8, "source": "controller", "kind": "ack", "group": "dp0.0", "ranks": [0, 2], "ready": 102.0}
    alone = {"t": 103.9, "source": "controller", "kind": "ack", "group": "dp0.1", "ranks": [1], "ready": 100.0}
    for line in (*waits, dark, ack, alone):
        assert found.add_line(json.dumps(line).encode())
    found.settle()
    shown = timeline(found, 0.0, 3.0, 1000, 3.0, live=False)

    def bars(rank: int) -> list[tuple[str, float, float]]:
        mine = shown["bars"][f"rank{rank}"]
        columns = zip(mine["k"], mine["s"], mine["e"], strict=True)
        return [(shown["kinds"][kind], start, end) for kind, start, end in columns]

    assert bars(0) == [("wait", 0.0, 1.0), ("dark", 1.0, 1.5), ("ask", 1.5, 2.0)]
    assert bars(2) == [("dark", 1.0, 1.5), ("ask", 1.5, 2.0)]
    assert bars(1) == [("ask", 0.0, 2.0)], "all had asked when it began to wait"


def test_a_rank_without_an_operation_waits_for_nobody_that_is_known() -> None:
    found = PointIndex(PointFacts(0, POINT.plan, SCALE, 100.0, None, POINT.groups))
    for line in (
        {"t": 100.0, "end": 101.0, "kind": "compute", "rank": 6, "step": 0, "op": 0, "name": "f"},
        {"t": 100.0, "end": 104.0, "kind": "step", "rank": 6, "step": 0},
    ):
        assert found.add_line(json.dumps({"source": "agent", **line}).encode())
    found.settle()
    now = state(found, 1.0)
    assert now["ranks"]["6"] == {"kind": "wait", "label": "between two operations"}
    assert now["waits"] == [{"rank": 6, "group": "", "for": []}]


def test_a_rank_that_has_nothing_to_send_waits_for_those_that_have_not_posted() -> None:
    found = PointIndex(PointFacts(0, POINT.plan, SCALE, 100.0, None, POINT.groups))
    data = {"source": "agent", "step": 0, "op": 0, "name": "ag", "group": "dp0.0", "dimension": "dp", "bytes": 8}
    moments = ((0, 100.0, 104.0), (2, 103.0, 104.0))
    for rank, posted, start in moments:
        moved = {**data, "t": start, "end": 106.0, "kind": "communicate", "rank": rank, "posted": posted}
        assert found.add_line(json.dumps(moved).encode())
        step = {"t": 100.0, "end": 106.0, "source": "agent", "kind": "step", "rank": rank, "step": 0}
        assert found.add_line(json.dumps(step).encode())
    found.settle()
    assert {"rank": 0, "group": "dp0.0", "for": [2]} in state(found, 1.0)["waits"]
    assert {"rank": 0, "group": "dp0.0", "for": []} in state(found, 1.8)["waits"]
