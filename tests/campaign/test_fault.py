"""The draw of a campaign: repeatable, even over all faults, and without faults that cannot be made."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.campaign.fault import (
    CONTROL_PLACES,
    LIVES,
    PHASES,
    PROBED,
    SIGNAL_PLACES,
    SIGNALS,
    SPLICE,
    START_PLACES,
    chosen,
    evenly,
    faults,
)


@given(st.integers(0, 1 << 32))
def test_each_round_of_the_draw_has_each_place_once(seed: int) -> None:
    places = [*CONTROL_PLACES, *START_PLACES]
    drawn = list(islice(evenly(places, Random(seed)), 2 * len(places)))
    assert set(drawn[: len(places)]) == set(drawn[len(places) :]) == set(places)


@given(st.integers(0, 1 << 32))
def test_sixty_faults_have_every_process_every_phase_and_every_signal(seed: int) -> None:
    found = [fault.place for fault in chosen(seed, range(60))]
    assert {place.process for place in found} == {*LIVES, ""}
    assert {place.phase for place in found} == set(PHASES)
    assert set(SIGNAL_PLACES) > {place for place in found if place.kind == "signal"}
    sent = Counter(place.what for place in found if place.kind == "signal")
    assert set(sent) == set(SIGNALS)
    assert max(sent.values()) - min(sent.values()) <= 2
    assert Counter(place.kind for place in found)["signal"] == 45


def test_a_fault_depends_on_seed_and_number_alone() -> None:
    short, long = chosen(7, range(10)), chosen(7, range(200))
    assert long[:10] == short
    assert chosen(7, (3, 150)) == [long[3], long[150]]
    assert chosen(8, range(10)) != short
    assert long[150].command == "sudo scripts/test.sh --fault 150 --seed 7"


def test_a_fault_is_made_in_a_run_that_has_its_process_and_its_point() -> None:
    for fault in islice(faults(1), 1000):
        victim = fault.victim
        assert fault.point < victim.points
        assert (victim is SPLICE) == (fault.place.phase == "splice")
        assert (victim is PROBED) == (fault.place.process in ("probe", "delay relay"))
