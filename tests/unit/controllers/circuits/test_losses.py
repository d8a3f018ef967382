"""Counting what was lost in the dark."""

from __future__ import annotations

from controllers.circuits.losses import Losses


def test_what_came_between_two_readings_is_lost() -> None:
    losses = Losses()
    losses.begin(7, {1, 2}, xid=10)
    losses.read(10, [(1, 100, 1000), (2, 50, 500), (3, 1, 1)])
    losses.again(7, 11)
    losses.read(11, [(1, 104, 1400), (3, 99, 99)])
    losses.read(11, [(2, 50, 500)])
    assert losses.counts(7)
    assert losses.end(7) == (4, 400)
    assert not losses.counts(7) and losses.end(7) == (0, 0)


def test_a_port_read_once_counts_as_nothing() -> None:
    losses = Losses()
    losses.begin(7, {1}, xid=10)
    losses.read(10, [(1, 100, 1000)])
    assert losses.end(7) == (0, 0)


def test_readings_of_others_are_ignored() -> None:
    losses = Losses()
    losses.read(99, [(1, 5, 5)])
    losses.begin(7, {1}, xid=10)
    losses.begin(8, {1}, xid=11)
    losses.read(11, [(1, 5, 5)])
    losses.again(8, 12)
    losses.read(12, [(1, 6, 9)])
    assert losses.end(7) == (0, 0)
    assert losses.end(8) == (1, 4)
