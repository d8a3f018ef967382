"""By which connection something goes in a slot of a rotation, what pays for the dark, and who has how much light."""

from __future__ import annotations

from typing import Any, cast

from controllers.rotation import Turn
from workloads.carriage import Carriage, Waiting
from workloads.connection import PeerKey
from workloads.exchange import Part
from workloads.light import Light
from workloads.rotations import Post, Rotations

PAIR, SHIFT = ((0, 0, 1, 0), (2, 0, 3, 0)), ((0, 1, 1, 0), (1, 1, 2, 0), (2, 1, 0, 0))


class Offers:
    """What a carriage is to a rotation."""

    def __init__(self, rotations: Rotations) -> None:
        self.turnstile = rotations.turns.of("ep")


class Lamp:
    """What a connection is to a rotation."""

    def __init__(self, key: PeerKey) -> None:
        self.key, self.lights = key, list[Light | None]()

    def shine(self, light: Light | None) -> None:
        self.lights.append(light)


def shone(rotations: Rotations, key: PeerKey) -> list[Light | None]:
    """What a connection that is there now hears."""
    lamp = Lamp(key)
    rotations.shine(cast(Any, lamp))
    return lamp.lights


def offer(rotations: Rotations, peer: int, transfer: int = 0) -> None:
    part = Part(transfer, peer, 0, 0, 0, 10, reduce=False)
    rotations.offer(Waiting(cast(Carriage, Offers(rotations)), part, memoryview(b"")))


def free(rotations: Rotations) -> list[tuple[PeerKey, int, bool, float]]:
    posts: list[Post] = list(rotations.free("ep"))
    return [(post.key, post.waiting.part.transfer, post.fresh, post.since) for post in posts]


def test_by_the_ports_of_the_slot() -> None:
    for rank, paths, key in ((0, PAIR, (0, 1, 0)), (1, PAIR, (0, 0, 0)), (1, SHIFT, (1, 2, 0))):
        rotations = Rotations(rank, lambda moved: None)
        rotations.stands("ep", 0, Turn(0, 5.0), paths)
        offer(rotations, key[1])
        assert free(rotations) == [(("scale-out", *key), 0, True, 5.0)]
        assert free(rotations) == []


def test_without_a_rotation_nothing_goes() -> None:
    assert free(Rotations(0, lambda moved: None)) == []


def test_only_the_first_in_a_slot_without_an_end_pays_for_the_dark() -> None:
    rotations = Rotations(0, lambda moved: None)
    for index in range(2):  # numbers of slots begin again with each request
        for number in range(2):
            rotations.stands("ep", index, Turn(number, 5.0 + number), PAIR)
            for transfer in range(3):
                offer(rotations, 1, transfer)
            assert [(fresh, since) for *_, fresh, since in free(rotations)] == [
                (True, 5.0 + number), (False, 5.0 + number), (False, 5.0 + number)
            ]  # fmt: skip
            offer(rotations, 1)
            assert [fresh for _, _, fresh, _ in free(rotations)] == [False]
        rotations.end("ep")


def test_in_a_slot_with_an_end_the_light_is_the_limit() -> None:
    rotations = Rotations(0, lambda moved: None)
    keys = rotations.stands("ep", 0, Turn(0, 5.0, 6.0, 0.1), PAIR)
    offer(rotations, 1)
    assert keys == [("scale-out", 0, 1, 0)]
    assert free(rotations) == [(keys[0], 0, False, 5.0)]
    assert shone(rotations, keys[0]) == [Light(5.0, 5.9)], "without the guard time"
    assert shone(rotations, keys[0]) == [], "said once"
    assert shone(rotations, ("scale-out", 0, 3, 0)) == []


def test_a_connection_that_the_peer_opens_late_hears_of_the_last_light() -> None:
    rotations = Rotations(1, lambda moved: None)
    for number in range(2):
        (key,) = rotations.stands("ep", 0, Turn(number, 5.0 + number, 5.5 + number), PAIR)
    assert shone(rotations, key) == [Light(6.0, 6.5)]


def test_a_slot_without_an_end_has_no_limit_whatever_was_before() -> None:
    rotations = Rotations(0, lambda moved: None)
    rotations.stands("ep", 0, Turn(0, 5.0, 6.0), PAIR)
    (key,) = rotations.stands("ep", 0, Turn(1, 6.0), PAIR)
    assert shone(rotations, key) == [None]


def test_after_the_rotation_nobody_hears_of_its_lights() -> None:
    rotations = Rotations(0, lambda moved: None)
    (key,) = rotations.stands("ep", 0, Turn(0, 5.0, 6.0), PAIR)
    rotations.end("ep")
    assert shone(rotations, key) == [] and rotations.turns.of("ep") is None
