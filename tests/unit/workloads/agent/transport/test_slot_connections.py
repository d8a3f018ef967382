"""By which connection something goes in a slot of a rotation, what pays for the dark, and who has how much light."""

from __future__ import annotations

from typing import Any, cast

from railyard.protocol import Hop, SlotWindow
from workloads.agent.exchange import MessagePart
from workloads.agent.transport.connection import PeerKey
from workloads.agent.transport.in_flight import InFlight, SlotMessage
from workloads.agent.transport.slot_connections import Post, SlotConnections
from workloads.agent.transport.up_window import UpWindow

PAIR, SHIFT = (Hop(0, 0, 1, 0), Hop(2, 0, 3, 0)), (Hop(0, 1, 1, 0), Hop(1, 1, 2, 0), Hop(2, 1, 0, 0))


class Offers:
    """What a carriage is to a rotation."""

    def __init__(self, slot_connections: SlotConnections) -> None:
        self.slot_sender = slot_connections.scheduler.of("ep")


class Lamp:
    """What a connection is to a rotation."""

    def __init__(self, key: PeerKey) -> None:
        self.key, self.lights, self.sent_bytes = key, list[UpWindow | None](), 0

    def allow_until(self, light: UpWindow | None) -> None:
        self.lights.append(light)


def rotating(rank: int = 0, notes: list[dict[str, Any]] | None = None) -> SlotConnections:
    """The slot_connections of a rank; what they note."""
    found = [] if notes is None else notes
    return SlotConnections(
        rank, lambda moved: None, lambda kind, t, end, **more: found.append({"t": t, "end": end, **more})
    )


def shone(slot_connections: SlotConnections, key: PeerKey) -> list[UpWindow | None]:
    """What a connection that is there now hears."""
    lamp = Lamp(key)
    slot_connections.allow_until(cast(Any, lamp))
    return lamp.lights


def offer(slot_connections: SlotConnections, peer: int, transfer: int = 0) -> None:
    part = MessagePart(transfer, peer, 0, 0, 0, 10, reduce=False)
    slot_connections.offer(SlotMessage(cast(InFlight, Offers(slot_connections)), part, memoryview(b"")))


def free(slot_connections: SlotConnections) -> list[tuple[PeerKey, int, bool, float]]:
    posts: list[Post] = list(slot_connections.free("ep"))
    return [(post.key, post.message.part.transfer, post.fresh, post.since) for post in posts]


def test_by_the_ports_of_the_slot() -> None:
    for rank, paths, key in ((0, PAIR, (0, 1, 0)), (1, PAIR, (0, 0, 0)), (1, SHIFT, (1, 2, 0))):
        slot_connections = rotating(rank)
        slot_connections.begin_slot("ep", 0, SlotWindow(0, 5.0), paths, 5.0)
        offer(slot_connections, key[1])
        assert free(slot_connections) == [(("scale-out", *key), 0, True, 5.0)]
        assert free(slot_connections) == []


def test_without_a_rotation_nothing_goes() -> None:
    assert free(rotating()) == []


def test_only_the_first_in_a_slot_without_an_end_pays_for_the_dark() -> None:
    slot_connections = rotating()
    for index in range(2):  # numbers of slots begin again with each request
        for number in range(2):
            slot_connections.begin_slot("ep", index, SlotWindow(number, 5.0 + number), PAIR, 5.0)
            for transfer in range(3):
                offer(slot_connections, 1, transfer)
            assert [(fresh, since) for *_, fresh, since in free(slot_connections)] == [
                (True, 5.0 + number), (False, 5.0 + number), (False, 5.0 + number)
            ]  # fmt: skip
            offer(slot_connections, 1)
            assert [fresh for _, _, fresh, _ in free(slot_connections)] == [False]
        slot_connections.end("ep")


def test_in_a_slot_with_an_end_the_light_is_the_limit() -> None:
    slot_connections = rotating()
    keys = slot_connections.begin_slot("ep", 0, SlotWindow(0, 5.0, 6.0, 0.1), PAIR, 5.0)
    offer(slot_connections, 1)
    assert keys == [("scale-out", 0, 1, 0)]
    assert free(slot_connections) == [(keys[0], 0, False, 5.0)]
    assert shone(slot_connections, keys[0]) == [UpWindow(5.0, 5.9)], "without the guard time"
    assert shone(slot_connections, keys[0]) == [], "said once"
    assert shone(slot_connections, ("scale-out", 0, 3, 0)) == []


def test_a_connection_that_the_peer_opens_late_hears_of_the_last_light() -> None:
    slot_connections = rotating(1)
    for number in range(2):
        (key,) = slot_connections.begin_slot("ep", 0, SlotWindow(number, 5.0 + number, 5.5 + number), PAIR, 5.0)
    assert shone(slot_connections, key) == [UpWindow(6.0, 6.5)]


def test_a_slot_without_an_end_has_no_limit_whatever_was_before() -> None:
    slot_connections = rotating()
    slot_connections.begin_slot("ep", 0, SlotWindow(0, 5.0, 6.0), PAIR, 5.0)
    (key,) = slot_connections.begin_slot("ep", 0, SlotWindow(1, 6.0), PAIR, 5.0)
    assert shone(slot_connections, key) == [None]


def test_after_the_rotation_nobody_hears_of_its_lights() -> None:
    slot_connections = rotating()
    (key,) = slot_connections.begin_slot("ep", 0, SlotWindow(0, 5.0, 6.0), PAIR, 5.0)
    slot_connections.end("ep")
    assert shone(slot_connections, key) == [] and slot_connections.scheduler.of("ep") is None


def test_each_turn_is_noted_when_it_is_over() -> None:
    notes: list[dict[str, Any]] = []
    slot_connections = rotating(notes=notes)
    (key,) = slot_connections.begin_slot("ep", 0, SlotWindow(0, 5.0, 6.0), PAIR, 5.25)
    lamp = Lamp(key)
    lamp.sent_bytes = 1000
    slot_connections.allow_until(cast(Any, lamp))
    lamp.sent_bytes = 1800
    assert notes == []
    slot_connections.begin_slot("ep", 0, SlotWindow(1, 7.0, 8.0), PAIR, 7.0)
    assert notes == [{"t": 5.0, "end": 5.25, "group": "ep", "slot": 0, "late_s": 0.25, "bytes": 800}]
    slot_connections.end("ep")
    assert notes[1:] == [{"t": 7.0, "end": 7.0, "group": "ep", "slot": 1, "late_s": 0.0, "bytes": 0}]
    slot_connections.end("ep")
    assert len(notes) == 2
