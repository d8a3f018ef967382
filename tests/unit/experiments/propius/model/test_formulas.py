"""Formulas of edge transfers, and the link that flows share, against values by hand."""

from __future__ import annotations

import math
from functools import partial

import pytest
from edge.trunk_player import MBPS, TrunkPlayer
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.trunk import TrunkArbiter
from experiments.propius.model.formulas import (
    answer_s,
    crossing_delay_s,
    root_bytes,
    rotor_round_s,
    shared_round_s,
    transfer_s,
    turns_round_s,
)
from experiments.propius.model.plane import Clock, SharedLink
from railyard.scale import goodput_share

MODEL = 9.25e6
SHARE = goodput_share(9000)


def test_a_transfer_takes_its_bits_at_the_goodput_and_one_round_trip() -> None:
    assert transfer_s(1.25e6, 10, 0.1) == pytest.approx(1 / SHARE + 0.1)


@pytest.mark.parametrize(
    ("topology", "mode", "least", "most"),
    [("star", "fixed", 48, 48), ("star", "authors", 48, 48), ("tree", "fixed", 4, 4), ("tree", "authors", 4, 48)],
)
def test_bytes_on_the_root_link(topology: str, mode: str, least: int, most: int) -> None:
    assert root_bytes([12] * 4, MODEL, topology, mode) == (least * MODEL, most * MODEL)  # type: ignore[arg-type]


def test_a_region_without_clients_fetches_nothing() -> None:
    assert root_bytes([3, 0], MODEL, "tree", "fixed") == (MODEL, MODEL)


def ended(rate: float, sends: list[tuple[float, float, float]]) -> list[float]:
    """When transfers of (start, bytes, most bit/s) end."""
    clock = Clock()
    link = SharedLink(clock, rate)
    ends = [0.0] * len(sends)
    for number, (start, size, most) in enumerate(sends):
        clock.at(start, link.send, size, most, partial(lambda n: ends.__setitem__(n, clock.now), number))
    while clock.next_time < float("inf"):
        clock.step()
    return ends


def test_a_link_is_shared_fairly_and_slow_flows_leave_the_rest_to_the_others() -> None:
    assert ended(8e6, [(0, 1e6, 1e9), (0, 1e6, 1e9)]) == pytest.approx([2, 2])
    assert ended(8e6, [(0, 1e6, 2e6), (0, 3e6, 1e9)]) == pytest.approx([4, 4])
    assert ended(8e6, [(0, 1e6, 1e9), (0.5, 1e6, 1e9)]) == pytest.approx([1.5, 2])


REGIONS = st.integers(1, 6)
SECONDS = st.integers(0, 400).map(lambda hundredths: hundredths / 64)
SOME_SECONDS = st.integers(1, 200).map(lambda hundredths: hundredths / 64)
"""Multiples of a power of two: sums are exact, and nobody asks a rounding error too late for a slot."""


def played(
    policy: str,
    regions: int,
    transfer_s: float,
    work_s: float,
    delay_s: float,
    slot_s: float = 0.0,
    began: float = 0.0,
) -> float:
    """The time of a round by the arbiter of the product, event by event."""
    player = TrunkPlayer(TrunkArbiter(regions, policy, MBPS, slot_s), delay_s)
    flushed: list[int] = []

    def fetched(region: int) -> None:
        flush = partial(player.transfer, region, transfer_s, partial(flushed.append, region))
        player.at(player.now + work_s, flush)

    def begin() -> None:
        for region in range(regions):
            player.transfer(region, transfer_s, partial(fetched, region))

    player.at(began, begin)
    player.play(lambda: len(flushed) == regions)
    return player.now - began


@given(regions=REGIONS, transfer_s=SOME_SECONDS, work_s=SECONDS, delay_s=SECONDS)
def test_turns_take_what_the_formula_says(regions: int, transfer_s: float, work_s: float, delay_s: float) -> None:
    expected = turns_round_s(regions, transfer_s, work_s, delay_s)
    for policy in ("phase", "demand"):
        assert played(policy, regions, transfer_s, work_s, delay_s) == pytest.approx(expected)


@given(regions=REGIONS, transfer_s=SOME_SECONDS, work_s=SECONDS, delay_s=SECONDS, longer_s=SECONDS, began=SECONDS)
def test_rotor_takes_what_the_formula_says(
    regions: int, transfer_s: float, work_s: float, delay_s: float, longer_s: float, began: float
) -> None:
    slot_s = transfer_s + longer_s
    expected = rotor_round_s(regions, transfer_s, work_s, delay_s, slot_s, began)
    assert played("rotor", regions, transfer_s, work_s, delay_s, slot_s, began) == pytest.approx(expected)


@given(regions=st.integers(2, 8), transfer_s=SOME_SECONDS, work_s=SOME_SECONDS)
def test_at_the_crossing_both_trunks_take_the_same(regions: int, transfer_s: float, work_s: float) -> None:
    delay_s, electrical = crossing_delay_s(regions, transfer_s, work_s), shared_round_s(regions, transfer_s, work_s)
    assert turns_round_s(regions, transfer_s, work_s, delay_s) == pytest.approx(electrical)
    assert turns_round_s(regions, transfer_s, work_s, 0.9 * delay_s) < electrical
    assert turns_round_s(regions, transfer_s, work_s, 1.1 * delay_s) > electrical


def test_golden_numbers() -> None:
    """4 regions, a model of 0.74 s, 10 s of work: (4 + 1) x (0.1 + 0.74) + 10, and 3/5 of 0.74 s."""
    assert turns_round_s(4, 0.74, 10, 0.1) == pytest.approx(14.2)
    assert shared_round_s(4, 0.74, 10) == pytest.approx(15.92)
    assert crossing_delay_s(4, 0.74, 10) == pytest.approx(0.444)
    assert crossing_delay_s(1, 0.74, 10) == 0.0, "with one region there is nothing to share"
    assert math.isinf(rotor_round_s(4, 1.0, 10, 0.1, 0.9))


def test_a_rotor_of_slots_of_one_model_waits_for_its_next_turn() -> None:
    assert rotor_round_s(2, 1.0, 2.5, 0.0, 1.0) == pytest.approx(6.0)  # region 1: model at 2, asks at 4.5, slot at 5


def test_a_second_manager_halves_the_load_of_the_first() -> None:
    assert answer_s(80, 0.01, 1) == pytest.approx(0.05)
    assert answer_s(80, 0.01, 2) == pytest.approx(0.01 / 0.6)
    assert answer_s(100, 0.01, 1) == math.inf
