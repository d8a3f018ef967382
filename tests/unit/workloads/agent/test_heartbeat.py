"""Signs of life that do not wait for anybody."""

from __future__ import annotations

import threading
import time

import pytest

from railyard.errors import ControlError
from workloads.agent.heartbeat import Heartbeat

pytestmark = pytest.mark.live

EVERY_S = 0.02


def test_it_beats_at_once_and_on_until_it_is_stopped() -> None:
    beats: list[float] = []
    third = threading.Event()

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 3:
            third.set()

    begin = time.monotonic()
    heartbeat = Heartbeat(beat, EVERY_S)
    assert third.wait(5), "nobody calls it"
    heartbeat.stop()
    assert beats[2] - begin >= 2 * EVERY_S
    time.sleep(EVERY_S)
    heard = len(beats)
    time.sleep(3 * EVERY_S)
    assert len(beats) == heard


def test_beats_that_were_missed_are_not_made_up_for() -> None:
    beats: list[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 1:
            time.sleep(5.5 * EVERY_S)

    heartbeat = Heartbeat(beat, EVERY_S)
    time.sleep(8 * EVERY_S)
    heartbeat.stop()
    assert 2 <= len(beats) <= 4
    assert beats[1] - beats[0] >= 5.5 * EVERY_S


def test_it_ends_with_the_controller() -> None:
    beats: list[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        raise ControlError("the controller is gone")

    Heartbeat(beat, EVERY_S)
    time.sleep(4 * EVERY_S)
    assert len(beats) == 1
