"""Sizes of all-reduces, the ceiling, and the shortest slot."""

from __future__ import annotations

from typing import Any

import pytest

from commands.bench import NotMeasured, collectives
from commands.bench.bed import Bed
from commands.bench.collectives import LARGE, SCALING, WITHIN, ideal_s, planned_duty, short_slots, size_of
from railyard.errors import ConfigError
from railyard.scale import goodput_bytes_per_s

PORT = goodput_bytes_per_s(0.1, 1500)


def row(slot_ms: float, duty_cycle: float) -> dict[str, Any]:
    """Of slots of 9.5 ms of data in 10, with 1 ms of delay, or as much of other slots."""
    return {
        "bytes_per_pair": 3.7 * 0.95 * slot_ms / 1e3 * PORT,
        "slot_ms": slot_ms,
        "reconfiguration_delay_ms": 0.1 * slot_ms,
        "port_gbps": 0.1,
        "mtu": 1500,
        "duty_cycle": duty_cycle,
    }


def test_what_is_planned_for_a_slot_is_less_than_it_could_carry() -> None:
    assert planned_duty(row(10.0, 0.8)) == pytest.approx(0.95 / 1.1)


def test_short_slots_are_judged_by_their_plan_at_rest_and_beside_load(monkeypatch: pytest.MonkeyPatch) -> None:
    duty = {10.0: 0.86, 5.0: 0.84, 2.0: 0.83}
    monkeypatch.setattr(collectives, "_slot_row", lambda _, slot_ms, *rest: row(slot_ms, duty[slot_ms]))
    found = short_slots(Bed("bpf"))
    assert [(one.limit, one.ok) for one in found] == 2 * [(0.98, True), (0.98, False), (0.95, True)]
    assert [one.name for one in found[2:4]] == ["floor_slot_2ms_over_plan", "floor_slot_10ms_over_plan_loaded"]


def test_a_slot_that_a_run_refuses_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> dict[str, Any]:
        raise ConfigError("is too short", key="slots_ms")

    monkeypatch.setattr(collectives, "_slot_row", refuse)
    first, *_ = short_slots(Bed("bpf"))
    assert (first.value, first.ok) == (None, False) and "slots_ms: is too short" in first.why_not


@pytest.mark.parametrize("size", [*SCALING, *LARGE, size_of(64, 100.0), size_of(512, 10.0)])
def test_chunks_of_all_reduces_take_long_beside_the_latency_of_a_round(size: Any) -> None:
    rounds = 2 * (size.hosts - 1)
    assert ideal_s(size.hosts, size.rate_mbps, size.bytes) / rounds > 0.03
    assert size.bytes % 4 == 0 and size.steps > 1


def test_the_all_reduce_of_the_ceiling_is_judged_by_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Bed, size: Any) -> tuple[list[float], float]:
        slow = 1.0 if size.hosts * size.rate_mbps <= 5000 else WITHIN + 0.01
        return [slow * ideal_s(size.hosts, size.rate_mbps, size.bytes)], 0.1

    monkeypatch.setattr(collectives, "run", run)
    (row,) = collectives.highest_aggregate(Bed("bpf"), 64)
    assert row.value is not None and 4500 <= row.value <= 5000 and row.ok is False
    monkeypatch.setattr(collectives, "run", lambda *_: ([1e9], 0.1))
    with pytest.raises(NotMeasured, match=r"of 64 hosts within 1\.05: this machine does not carry"):
        collectives.highest_aggregate(Bed("bpf"), 64)
