"""When an agent hears that bytes have left, or are acknowledged."""

from __future__ import annotations

from typing import Any, cast

from fake_clock import play

from workloads.agent.transport.comm_engine import DeliveryTimers
from workloads.agent.transport.connection import PeerConnection


class Wire:
    """A connection that says how much has left and is acknowledged, and when to look again."""

    def __init__(self, again_s: float = 0.1) -> None:
        self.left = self.acknowledged = 0
        self.again_s = again_s
        self.looks = 0

    def left_s(self, mark: int, *, acknowledged: bool) -> float:
        self.looks += 1
        return 0.0 if mark <= (self.acknowledged if acknowledged else self.left) else self.again_s


def watch(timers: DeliveryTimers, wire: Wire, mark: int, acknowledged: bool, said: list[Any], what: object) -> None:
    timers.watch(cast(PeerConnection, wire), mark, acknowledged, lambda: said.append(what))


def test_what_is_there_already_is_said_at_once() -> None:
    timers, wire, said = DeliveryTimers(), Wire(), list[str]()
    wire.left, wire.acknowledged = 10, 5
    watch(timers, wire, 10, False, said, "left")
    watch(timers, wire, 5, True, said, "acknowledged")
    assert said == ["left", "acknowledged"] and timers.next_time == float("inf")


def test_without_a_word_it_is_looked_at_again() -> None:
    timers, wire, said = DeliveryTimers(), Wire(), list[str]()
    watch(timers, wire, 10, True, said, "all")
    play(timers, 0.25)
    assert said == [] and wire.looks == 3
    wire.acknowledged = 10
    play(timers, 0.35)
    assert said == ["all"]


def test_a_word_brings_forward_what_it_is_about_and_nothing_else() -> None:
    timers, wire, other, said = DeliveryTimers(), Wire(), Wire(), list[str]()
    watch(timers, wire, 5, True, said, "half")
    watch(timers, wire, 10, True, said, "all")
    watch(timers, wire, 5, False, said, "left")
    watch(timers, other, 5, True, said, "other")
    wire.acknowledged = other.acknowledged = 7
    timers.acknowledged(cast(PeerConnection, wire))
    assert said == ["half"]
    timers.acknowledged(cast(PeerConnection, other))
    assert said == ["half", "other"]
    wire.acknowledged = wire.left = 10
    timers.acknowledged(cast(PeerConnection, wire))
    play(timers, 1.0)
    assert said == ["half", "other", "all", "left"], "each once"


def test_who_is_told_may_watch_again() -> None:
    timers, wire, said = DeliveryTimers(), Wire(), list[str]()

    def then() -> None:
        said.append("first")
        watch(timers, wire, 20, True, said, "second")

    timers.watch(cast(PeerConnection, wire), 10, True, then)
    wire.acknowledged = 20
    timers.acknowledged(cast(PeerConnection, wire))
    assert said == ["first", "second"]
