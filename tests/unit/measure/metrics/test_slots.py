"""What slots lose of their plan: each cause is found under its name, and all of them are what was not sent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from measure.metrics.point import Point
from measure.metrics.slots import CAUSES, slot_losses
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo

POINT = Point(0, "rotor", plan(RailTopo(servers=4, gpus=1, ports=1, rate_mbps=10, fabric="ocs")), {}, Scale(1.0))
PAIRS = ([[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]])
Sent = Mapping[tuple[int, int], tuple[int, float, int]]
AS_PLANNED: Sent = {}
UP_S, DARK_S, PLANNED, FULL = 2.0, 0.5, 100, 6
"""Of nine slots the first six are full: the circuits of the others do not come back."""


def timeline(ask_s: float = 0.0, dark_s: float = 0.0, sent: Sent = AS_PLANNED) -> list[Event]:
    """Slots with ``sent`` (rank, slot) -> bytes, lateness and bytes of earlier slots; others are full and in time."""
    events = [
        Event(7.0 + rank / 100, "agent", "wait", 9.0, {"rank": rank, "group": "ep", "index": 1}) for rank in range(4)
    ]
    began = 7.03 + ask_s
    for slot in range(9):
        began += DARK_S + dark_s * (slot > 0)
        fields = {"group": "ep", "index": 1, "slot": slot, "pairs": PAIRS[slot % 3]}
        events.append(Event(began, "controller", "slot", began + UP_S, fields))
        for rank in range(4):
            size, late_s, again = sent.get((rank, slot), (PLANNED, 0.0, 0))
            of_rank = {"rank": rank, "group": "ep", "slot": slot, "late_s": late_s, "bytes": size}
            of_rank |= {"planned": float(PLANNED), "again": again}
            events.append(Event(began, "agent", "sent_in_slot", began + late_s, of_rank))
        began += UP_S
    return events


def losses(**of_measured: object) -> Mapping[str, float]:
    return slot_losses(POINT, [timeline(**of_measured)], timeline())  # type: ignore[arg-type]


PLAN_S = FULL * (UP_S + DARK_S)


def test_slots_as_planned_lose_nothing() -> None:
    assert losses() == dict.fromkeys(CAUSES, pytest.approx(0.0))


def test_slots_that_come_later_lose_time() -> None:
    late = losses(ask_s=1.0, dark_s=0.2)
    took_s = PLAN_S + 1.0 + 5 * 0.2
    assert late == dict.fromkeys(CAUSES, pytest.approx(0.0)) | {
        "ask": pytest.approx(1.0 / took_s),
        "dark": pytest.approx(1.0 / took_s),
    }


def test_bytes_that_are_missing_have_the_cause_that_was_noted_with_them() -> None:
    missing = losses(sent={(0, 0): (60, 0.0, 9), (1, 2): (70, 0.2, 0), (2, 5): (95, 0.0, 0), (3, 8): (1, 1.0, 0)})
    one = 1 / (4 * FULL * PLANNED)
    assert missing == {
        "ask": pytest.approx(0.0),
        "dark": pytest.approx(0.0),
        "again": pytest.approx(40 * one),
        "told": pytest.approx(10 * one),
        "rest": pytest.approx((20 + 5) * one),
    }


def test_all_causes_together_are_what_was_not_sent() -> None:
    share = 1 - sum(losses(ask_s=1.0, dark_s=0.2, sent={(0, 1): (40, 0.5, 0), (1, 4): (90, 0.0, 5)}).values())
    sent = 4 * FULL * PLANNED - 70
    assert share == pytest.approx(sent / (4 * FULL * PLANNED) * PLAN_S / (PLAN_S + 2.0))


def test_nothing_is_lost_where_no_slot_is_full() -> None:
    assert slot_losses(POINT, [timeline()], []) == {}
    empty = {(rank, slot): (0, 0.0, 0) for rank in range(4) for slot in range(3, 9)}
    assert losses(sent=empty) == {}
