"""The draw of a campaign: repeatable, even over all faults, and without faults that cannot be made."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.faults.fault import (
    LIVES,
    PHASES,
    SIGNALS,
    Fault,
    Place,
    chosen,
    control_places,
    evenly,
    faults,
    signal_places,
    start_places,
)
from experiments.faults.victims import PROBED, SPLICE, victim_of


def test_every_signal_is_sent_to_every_process_in_every_phase_that_it_has() -> None:
    places = signal_places()
    assert len(places) == len(set(places)) == len(SIGNALS) * sum(map(len, LIVES.values()))
    assert {phase for place in places for phase in [place.phase]} == set(PHASES)


@given(st.integers(0, 1 << 32))
def test_each_round_of_the_draw_has_each_place_once(seed: int) -> None:
    places = [*control_places(), *start_places()]
    drawn = list(islice(evenly(places, Random(seed)), 2 * len(places)))
    assert set(drawn[: len(places)]) == set(drawn[len(places) :]) == set(places)


@given(st.integers(0, 1 << 32))
def test_sixty_faults_have_every_process_every_phase_and_every_signal(seed: int) -> None:
    found = [fault.place for fault in chosen(seed, 60)]
    assert {place.process for place in found} == {*LIVES, ""}
    assert {place.phase for place in found} == set(PHASES)
    sent = Counter(place.what for place in found if place.kind == "signal")
    assert set(sent) == set(SIGNALS)
    assert max(sent.values()) - min(sent.values()) <= 2
    assert Counter(place.kind for place in found)["signal"] == 45


def test_a_fault_depends_on_seed_and_number_alone() -> None:
    short, long = chosen(7, 10), chosen(7, 200)
    assert long[:10] == short
    assert chosen(7, 60, only=(3, 150)) == [long[3], long[150]]
    assert chosen(8, 10) != short
    assert long[150].command == "railyard run faults --seed 7 --only 150"


def test_a_fault_is_made_in_a_run_that_has_its_process_and_its_point() -> None:
    for fault in islice(faults(1), 1000):
        victim = victim_of(fault)
        assert fault.point < victim.points
        assert (victim is SPLICE) == (fault.place.phase == "splice")
        assert (victim is PROBED) == (fault.place.process in ("probe", "delay relay"))


def test_amounts_are_within_their_bounds_and_in_words() -> None:
    says = {fault.place.what: fault.says for fault in chosen(1, 400)}
    assert says["results disk"].startswith("results disk ")
    assert says["stall"].startswith("stall ") and says["stall"].endswith(" s")
    assert any(text == "KILL main" for text in (fault.says for fault in chosen(1, 400)))


@pytest.mark.parametrize(
    ("amount", "says"), [(64.0, "64"), (65_536.0, "66k"), (1.44e6, "1.4M"), (9.9e6, "9.9M"), (382e6, "382M")]
)
def test_amounts_are_said_without_exponents(amount: float, says: str) -> None:
    assert Fault(0, 1, Place("resource", "", "memory", "bring-up"), amount=amount).says == f"memory {says}"
