"""Who waits for whom: other members until the last of them has asked, and then the controller."""

from __future__ import annotations

import json
from typing import Any

from watch.folders import SCALE, synthetic

from commands.page.view.index import PointFacts, PointIndex
from commands.page.view.payloads import state, timeline

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
