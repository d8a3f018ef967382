"""What a rank may send in which slot, and what it reports."""

from __future__ import annotations

import pytest

from railyard.errors import ControlError
from railyard.protocol import Hop, SlotWindow
from workloads.rank.slot_sender import LATE_S, Lanes, Moved, SlotSender


def slot_sender(rank: int = 0) -> tuple[SlotSender[str], list[Moved]]:
    """A slot sender of group ep, and its reports."""
    said: list[Moved] = []
    return SlotSender(rank, "ep", 3, said.append), said


def moved(slot: int, *, idle: bool = False) -> Moved:
    return Moved("ep", 3, slot, idle)


def offer(sender: SlotSender[str], *items: str) -> list[str]:
    """Items named by their peer, as ``1a``, all at once; what goes."""
    gone = []
    for item in items:
        sender.offer(int(item[0]), item)
        gone += sender.free()
    sender.report()
    return gone


def come(sender: SlotSender[str], number: int, *paths: Hop, until: float | None = None) -> list[str]:
    """A slot comes; what goes."""
    sender.begin_slot(SlotWindow(number, 10.0 + number, until, 0.01), paths)
    gone = sender.free()
    sender.report()
    return gone


def test_a_circuit_between_the_same_lanes_is_for_both() -> None:
    paths = (Hop(0, 0, 1, 0), Hop(2, 1, 0, 1), Hop(1, 1, 2, 1))
    for rank, peers in ((0, {1: 0, 2: 1}), (1, {0: 0, 2: 1}), (2, {0: 1, 1: 1})):
        sender, _ = slot_sender(rank)
        come(sender, 0, *paths)
        assert sender.peers == set(peers)
        assert {peer: sender.lanes(peer) for peer in peers} == {p: Lanes(lane, lane) for p, lane in peers.items()}


def test_a_circuit_between_different_lanes_is_for_its_first_end() -> None:
    shift = tuple(Hop(rank, 1, (rank + 2) % 5, 0) for rank in range(5))
    for rank in range(5):
        sender, _ = slot_sender(rank)
        come(sender, 0, *shift)
        assert sender.peers == {(rank + 2) % 5} and sender.lanes((rank + 2) % 5) == Lanes(1, 0)


def test_before_the_first_slot_everything_waits() -> None:
    sender, said = slot_sender()
    assert offer(sender, "1a", "2a") == []
    assert (sender.end, sender.began, sender.peers, said) == (None, 0.0, frozenset(), [])


def test_what_waits_goes_in_its_order_when_its_slot_comes() -> None:
    sender, _ = slot_sender()
    offer(sender, "1a", "2a", "1b")
    assert come(sender, 0, Hop(0, 0, 2, 0)) == ["2a"]
    assert come(sender, 1, Hop(0, 0, 1, 0)) == ["1a", "1b"]
    assert come(sender, 2, Hop(0, 0, 2, 0)) == []


@pytest.mark.parametrize("idle", [False, True], ids=["more for another slot", "its last"])
def test_a_slot_is_done_with_when_all_of_it_is_acknowledged(idle: bool) -> None:
    sender, said = slot_sender()
    offer(sender, "1a", "1b", *([] if idle else ["2a"]))
    come(sender, 0, Hop(0, 0, 1, 0))
    sender.acknowledged()
    assert not said
    sender.acknowledged()
    assert said == [moved(0, idle=idle)]


def test_nothing_for_this_slot_is_said_at_once_and_only_once() -> None:
    sender, said = slot_sender()
    offer(sender, "2a")
    come(sender, 0, Hop(0, 0, 1, 0))
    sender.report()
    assert said == [moved(0)]
    come(sender, 1, Hop(0, 0, 3, 0))
    assert said == [moved(0), moved(1)]


def test_a_rank_that_is_left_out_has_nothing_for_the_slot() -> None:
    sender, said = slot_sender()
    offer(sender, "2a")
    assert come(sender, 0, Hop(1, 0, 2, 0)) == []
    assert said == [moved(0)]


def test_nothing_more_goes_in_a_slot_that_was_said_to_be_done_with() -> None:
    sender, said = slot_sender()
    come(sender, 0, Hop(0, 0, 1, 0))
    assert said == [moved(0, idle=True)]
    assert offer(sender, "1a") == [], "its circuit may go at any moment"
    assert said == [moved(0, idle=True), moved(0)], "but it is no longer idle"
    offer(sender, "1b")
    assert len(said) == 2
    assert come(sender, 4, Hop(0, 0, 1, 0)) == ["1a", "1b"]


def test_what_comes_before_the_first_word_goes_in_the_first_slot() -> None:
    sender, said = slot_sender()
    sender.begin_slot(SlotWindow(0, 10.0), (Hop(0, 0, 1, 0),))
    gone = list(sender.free())
    for item in ("2a", "1a"):
        sender.offer(int(item[0]), item)
        gone += sender.free()
    sender.report()
    assert gone == ["1a"] and not said
    sender.acknowledged()
    assert said == [moved(0)]


def test_a_slot_with_an_end_is_open_until_then_and_nothing_is_said() -> None:
    sender, said = slot_sender()
    assert come(sender, 0, Hop(0, 0, 1, 0), until=11.0) == []
    assert offer(sender, "1a") == ["1a"]
    sender.acknowledged()
    assert offer(sender, "1b") == ["1b"] and not said
    assert sender.began == 10.0
    assert sender.end == 11.0 - 0.01, "without the guard time"


def test_a_slot_in_which_nothing_can_be_sent_is_an_error_and_not_the_first_of_many() -> None:
    sender, _ = slot_sender()
    said = (
        "slot 4 of group ep leaves nothing beside its guard time of 10 ms and the 0.2 ms that this machine may be late"
    )
    with pytest.raises(ControlError, match=said):
        come(sender, 4, Hop(0, 0, 1, 0), until=14.0 + 0.01 + LATE_S - 1e-6)
    assert come(sender, 5, Hop(0, 0, 1, 0), until=15.0 + 0.02) == []
