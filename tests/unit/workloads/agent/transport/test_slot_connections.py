"""What pays for the dark at the begin of a slot, how long each circuit is up, and what is noted of a slot."""

from __future__ import annotations

from typing import Any, cast

from railyard.protocol import Hop, SlotWindow
from workloads.agent.transport.comm_engine import SlotConnections
from workloads.agent.transport.pacing import UpWindow
from workloads.rank.paths import PeerKey, keys_at

PAIR = (Hop(0, 0, 1, 0), Hop(2, 0, 3, 0))


class Lamp:
    """What a connection is to a rotation."""

    def __init__(self, key: PeerKey) -> None:
        self.key, self.lights, self.sent_bytes = key, list[UpWindow | None](), 0

    def allow_until(self, light: UpWindow | None) -> None:
        self.lights.append(light)


def rotating(notes: list[dict[str, Any]] | None = None) -> SlotConnections:
    """The slot connections of a rank; what they note."""
    found = [] if notes is None else notes
    return SlotConnections(lambda kind, t, end, **more: found.append({"t": t, "end": end, **more}))


def begin(slot_connections: SlotConnections, window: SlotWindow, now: float = 5.0, rank: int = 0) -> PeerKey:
    """A slot comes; the path of the rank in it."""
    (key,) = keys_at(rank, PAIR)
    slot_connections.begin_slot("ep", window, [key], now)
    return key


def shone(slot_connections: SlotConnections, key: PeerKey) -> list[UpWindow | None]:
    """What a connection that is there now hears."""
    lamp = Lamp(key)
    slot_connections.allow_until(cast(Any, lamp))
    return lamp.lights


def test_only_the_first_in_a_slot_without_an_end_pays_for_the_dark() -> None:
    slot_connections = rotating()
    for _ in range(2):  # numbers of slots begin again with each request
        for number in range(2):
            key = begin(slot_connections, SlotWindow(number, 5.0 + number))
            assert [slot_connections.is_first(key) for _ in range(4)] == [True, False, False, False]
        slot_connections.end("ep")


def test_in_a_slot_with_an_end_the_light_is_the_limit() -> None:
    slot_connections = rotating()
    key = begin(slot_connections, SlotWindow(0, 5.0, 6.0, 0.1))
    assert key == ("scale-out", 0, 1, 0)
    assert not slot_connections.is_first(key)
    assert shone(slot_connections, key) == [UpWindow(5.0, 5.9)], "without the guard time"
    assert shone(slot_connections, key) == [], "said once"
    assert shone(slot_connections, ("scale-out", 0, 3, 0)) == []


def test_a_connection_that_the_peer_opens_late_hears_of_the_last_light() -> None:
    slot_connections = rotating()
    for number in range(2):
        key = begin(slot_connections, SlotWindow(number, 5.0 + number, 5.5 + number), rank=1)
    assert shone(slot_connections, key) == [UpWindow(6.0, 6.5)]


def test_a_slot_without_an_end_has_no_limit_whatever_was_before() -> None:
    slot_connections = rotating()
    begin(slot_connections, SlotWindow(0, 5.0, 6.0))
    key = begin(slot_connections, SlotWindow(1, 6.0))
    assert shone(slot_connections, key) == [None]


def test_after_the_rotation_nobody_hears_of_its_lights() -> None:
    slot_connections = rotating()
    key = begin(slot_connections, SlotWindow(0, 5.0, 6.0))
    slot_connections.end("ep")
    assert shone(slot_connections, key) == []


def test_each_turn_is_noted_when_it_is_over() -> None:
    notes: list[dict[str, Any]] = []
    slot_connections = rotating(notes)
    key = begin(slot_connections, SlotWindow(0, 5.0, 6.0), 5.25)
    lamp = Lamp(key)
    lamp.sent_bytes = 1000
    slot_connections.allow_until(cast(Any, lamp))
    lamp.sent_bytes = 1800
    assert notes == []
    begin(slot_connections, SlotWindow(1, 7.0, 8.0), 7.0)
    assert notes == [{"t": 5.0, "end": 5.25, "group": "ep", "slot": 0, "late_s": 0.25, "bytes": 800}]
    slot_connections.end("ep")
    assert notes[1:] == [{"t": 7.0, "end": 7.0, "group": "ep", "slot": 1, "late_s": 0.0, "bytes": 0}]
    slot_connections.end("ep")
    assert len(notes) == 2
