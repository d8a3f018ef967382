from __future__ import annotations

import pytest
from edge.jobs import client

from experiments.propius.data.clients import (
    Accept,
    AskForJobs,
    Binding,
    Device,
    DeviceTimers,
    Get,
    Nack,
    Offer,
    Pause,
    Push,
    Train,
)


def device(private_size: float = 100.0) -> Device:
    return Device(client(private_size=private_size), DeviceTimers(), 1)


def test_a_client_takes_the_first_offer_whose_private_bound_it_meets() -> None:
    assert device().offered([Offer(4, 120.0), Offer(2, 100.0), Offer(1, 0.0)], 0.0) == (Accept(2),)


def test_a_client_declines_offers_that_all_ask_for_more_data() -> None:
    assert device().offered([Offer(4, 120.0), Offer(2, 101.0)], 0.0) == (Nack((4, 2)), Pause(2.0))


def test_without_an_offer_it_asks_five_times_more_and_then_pauses() -> None:
    tested = device()
    waits = []
    for _ in range(7):
        (wait,) = tested.offered([], 0.0)
        assert tested.woke(0.0) == (AskForJobs(),)
        waits.append(wait)
    assert waits == [Pause(2.0)] * 5 + [Pause(20.0), Pause(2.0)]


def test_a_refusal_counts_as_no_offer() -> None:
    tested = device()
    assert [tested.refused(0.0) for _ in range(6)] == [(Pause(2.0),)] * 5 + [(Pause(20.0),)]


def test_a_round_is_download_training_upload_and_then_the_next_check_in() -> None:
    tested = Device(client(speed_ms=50.0), DeviceTimers(), 1)
    assert tested.accepted(Binding(7, 3, 5), 0.0) == (Get(3, 5),)
    assert tested.got(1.0) == (Train(pytest.approx(60.0)),)  # type: ignore[arg-type]
    assert tested.trained(61.0) == (Push(3, 5),)
    assert tested.binding == Binding(7, 3, 5)
    assert tested.pushed("acknowledged", 62.0) == (AskForJobs(),)
    assert tested.binding is None


def test_work_starts_the_count_of_questions_anew() -> None:
    tested = device()
    for _ in range(5):
        tested.offered([], 0.0)
    tested.accepted(Binding(7, 3, 5), 0.0)
    tested.pushed("late", 1.0)
    assert tested.offered([], 0.0) == (Pause(2.0),)


def test_a_model_that_is_not_there_yet_is_asked_for_every_3_s_and_given_up_after_50_times() -> None:
    tested = device()
    tested.accepted(Binding(7, 3, 5), 0.0)
    for _ in range(50):
        assert tested.absent(0.0) == (Pause(3.0),)
        assert tested.woke(3.0) == (Get(3, 5),)
    assert tested.absent(0.0) == (Pause(20.0),)
    assert tested.woke(20.0) == (AskForJobs(),)


def test_a_failure_ends_the_work_with_a_pause() -> None:
    tested = device()
    tested.accepted(Binding(7, 3, 5), 0.0)
    assert tested.failed(1.0) == (Pause(20.0),)
    assert tested.binding is None
    assert tested.woke(21.0) == (AskForJobs(),)


def test_clients_start_at_moments_of_their_own_that_the_seed_repeats() -> None:
    starts = [Device(client(number), DeviceTimers(), 9).start(0.0)[0] for number in range(20)]
    assert len(set(starts)) == 20
    assert all(isinstance(start, Pause) and 0 <= start.seconds <= 2 for start in starts)
    assert starts == [Device(client(number), DeviceTimers(), 9).start(0.0)[0] for number in range(20)]


def test_scaled_timers_keep_their_counts() -> None:
    assert DeviceTimers().scaled(0.1) == DeviceTimers(0.2, 5, 2.0, 0.2, pytest.approx(0.3), 50)  # type: ignore[arg-type]
