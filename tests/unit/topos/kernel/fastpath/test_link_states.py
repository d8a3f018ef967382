from __future__ import annotations

from topos.kernel.fastpath.link_states import Act, LinkStates, SetCarrier, SetUp
from topos.kernel.fastpath.rules import KernelPort

LINK, TAP = 1001, 7
PORTS = [KernelPort("s1", 1, LINK, TAP), KernelPort("s1", 2, 1002, 8)]


def started() -> LinkStates:
    """All interfaces have been seen up and with a carrier."""
    states = LinkStates(PORTS)
    for port in PORTS:
        assert states.seen(port.link, True, True) == states.seen(port.tap, True, True) == []
    return states


def test_the_tap_loses_its_carrier_with_the_link_and_gets_it_again() -> None:
    states = started()
    assert states.seen(LINK, True, False) == [SetCarrier(TAP, False)]
    assert states.seen(LINK, False, False) == [], "it passes no packets already"
    assert states.seen(LINK, True, False) == []
    assert states.seen(LINK, True, True) == [SetCarrier(TAP, True)]


def test_the_link_goes_down_with_the_tap_and_neither_chases_the_other() -> None:
    states = started()
    assert states.seen(TAP, False, True) == [SetUp(LINK, False)]
    assert states.seen(LINK, False, False) == [SetCarrier(TAP, False)]
    assert states.seen(TAP, False, False) == []
    assert states.seen(TAP, True, False) == [SetUp(LINK, True)]
    assert states.seen(LINK, True, True) == [SetCarrier(TAP, True)]
    assert states.seen(TAP, True, True) == []


def test_what_is_down_at_the_start_takes_only_a_carrier_away() -> None:
    states = LinkStates(PORTS)
    assert states.seen(TAP, False, True) == []
    assert states.seen(LINK, True, False) == [SetCarrier(TAP, False)]
    assert states.seen(TAP, True, False) == [SetUp(LINK, True)]


def test_reports_that_were_lost_are_found_in_the_next_dump() -> None:
    states = started()
    dump = [(LINK, True, False), (TAP, True, True), (1002, True, True), (8, False, True)]
    acts: list[Act] = []
    for one in dump:
        acts += states.seen(*one)
    assert acts == [SetCarrier(TAP, False), SetUp(1002, False)]


def test_a_link_that_is_gone_has_no_carrier() -> None:
    states = started()
    assert states.gone(LINK) == [SetCarrier(TAP, False)]
    assert states.gone(LINK) == states.seen(LINK, True, True) == []
    assert states.gone(8) == states.gone(1002) == states.seen(8, True, True) == []
    assert states.concerns(TAP) and not states.concerns(LINK) and not states.concerns(8)


def test_a_tap_whose_carrier_is_fixed_goes_down_in_its_place() -> None:
    states = started()
    assert states.seen(LINK, True, False) == [SetCarrier(TAP, False)]
    assert states.carrier_refused(TAP) == [SetUp(TAP, False)]
    assert states.seen(TAP, False, True) == [], "that was our own doing"
    assert states.seen(LINK, True, True) == [SetUp(TAP, True)]
    assert states.seen(TAP, True, True) == []


def test_a_tap_that_others_set_down_is_not_set_up_for_its_link() -> None:
    states = started()
    states.seen(LINK, True, False)
    states.carrier_refused(TAP)
    assert states.seen(TAP, False, True) == []
    states.seen(LINK, True, True)
    assert states.seen(TAP, True, True) == []
    assert states.seen(TAP, False, True) == [SetUp(LINK, False)]
    assert states.seen(LINK, False, False) == []
    assert states.seen(LINK, True, True) == [], "by hand"
    assert states.seen(TAP, True, True) == [SetUp(LINK, True)]


def test_reports_from_before_a_tap_was_set_down_have_no_effect() -> None:
    states = started()
    states.seen(LINK, True, False)
    assert states.carrier_refused(TAP) == [SetUp(TAP, False)]
    assert states.seen(TAP, True, True) == [], "it was not down yet"
    assert states.seen(TAP, False, True) == [], "now it is"
    assert states.seen(TAP, True, True) == [SetUp(LINK, True)], "by others"


def test_other_interfaces_are_left_alone() -> None:
    states = LinkStates(PORTS)
    assert not states.concerns(5)
    assert states.seen(5, False, False) == states.gone(5) == states.carrier_refused(5) == []
