from __future__ import annotations

import pytest
from edge.jobs import client, edge_job
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.data.clients import (
    Accept,
    AskForJobs,
    Binding,
    Device,
    DeviceTimers,
    Get,
    Offer,
    Pause,
    Push,
    Rest,
    Train,
    check_run,
    drawn,
    stratified,
)
from experiments.propius.data.jobs import (
    BASIC,
    FIVE_JOBS,
    HIGH,
    HIGHEST,
    MIDDLE,
    TEN_JOBS,
    Attributes,
    EdgeJob,
    scaled_jobs,
)
from railyard.errors import ConfigError
from topos.client_rates import client_rates

SHARES = {BASIC: 0.75, MIDDLE: 0.5, HIGH: 0.395, HIGHEST: 0.25}


@given(st.integers(8, 200), st.integers(1, 8), st.integers(0, 10**6))
def test_stratified_clients_meet_the_published_shares_in_the_whole_and_in_each_region(
    count: int, regions: int, seed: int
) -> None:
    clients = stratified(count, regions, seed)
    assert [each.number for each in clients] == list(range(count))
    assert tuple(each.rate_mbps for each in clients) == client_rates(count, regions)
    for bounds, share in SHARES.items():
        eligible = [each for each in clients if each.attributes.meets(bounds)]
        assert abs(len(eligible) / count - share) <= 1 / count
        for region in range(regions):
            mine = sum(each.region == region for each in eligible)
            assert abs(mine - len(eligible) / regions) <= 2


@given(st.integers(0, 10**6))
def test_no_seed_starves_a_job_of_the_default_run(seed: int) -> None:
    clients = stratified(48, 4, seed)
    jobs = scaled_jobs(FIVE_JOBS, 1 / 32)
    check_run(jobs, clients)
    for job in jobs:
        able = sum(each.attributes.meets(job.bounds) and each.private_size >= job.private_bound for each in clients)
        assert able >= job.selected


def test_drawn_clients_have_the_published_quantiles() -> None:
    clients = drawn(20_000, 3)
    for bounds, share in SHARES.items():
        assert sum(each.attributes.meets(bounds) for each in clients) / 20_000 == pytest.approx(share, abs=0.015)
    speeds, rates = sorted(each.speed_ms for each in clients), sorted(each.rate_mbps for each in clients)
    assert [speeds[5_000], speeds[10_000], speeds[15_000]] == pytest.approx([29, 63, 109], rel=0.06)
    assert [rates[5_000], rates[10_000], rates[15_000]] == pytest.approx([2.9, 6.1, 14.2], rel=0.06)
    assert drawn(50, 3) == clients[:50] != drawn(50, 4)


def test_bounds_are_met_when_each_attribute_is_at_least_them() -> None:
    assert HIGHEST.meets(HIGH) and HIGH.meets(MIDDLE) and MIDDLE.meets(BASIC)
    assert BASIC.meets(BASIC._replace(speed_ms=99.0)), "no job bounds the speed"
    assert not any(BASIC.meets(BASIC._replace(**{name: 1e6})) for name in Attributes._fields[:4])


def test_the_authors_jobs() -> None:
    assert [job.demand for job in FIVE_JOBS] == [50, 100, 100, 200, 400]
    assert [job.selected for job in TEN_JOBS] == [260, 260, 65, 130, 65, 260, 130, 65, 520, 130]
    assert [job.demand for job in scaled_jobs(FIVE_JOBS, 1 / 32, rounds=10)] == [2, 3, 3, 6, 12]
    assert EdgeJob("a", 10, BASIC, 0, 1, over_selection=1.1).selected == 11


BAD_RUNS = [
    ([edge_job("big", 5)], r"^big.demand: a round needs 5 clients, but there are 4"),
    (
        [edge_job("far", 1, Attributes(30, 1, 1, 1))],
        r"far.bounds: no client meets all bounds: cpu_f >= 30 by 0.0%, ram",
    ),
    ([edge_job("few", 3, HIGHEST)], r"few.demand: .* 2 of 4 may serve it \(50.0% meet the bounds"),
    ([edge_job("own", 2, private_bound=150.0)], r"own.demand: .*, 25.0% have private data of at least 150"),
]


@pytest.mark.parametrize(("jobs", "sentence"), BAD_RUNS)
def test_jobs_that_could_never_end_are_refused_in_a_sentence(jobs: list[EdgeJob], sentence: str) -> None:
    clients = [client(0), client(1, HIGHEST, 100.0), client(2, BASIC, 100.0), client(3, BASIC, 100.0)]
    with pytest.raises(ConfigError, match=sentence):
        check_run(jobs, clients)


def device(private_size: float = 100.0) -> Device:
    return Device(client(private_size=private_size), DeviceTimers(), 1)


def test_a_client_takes_the_first_offer_whose_private_bound_it_meets() -> None:
    assert device().offered([Offer(4, 120.0), Offer(2, 100.0), Offer(1, 0.0)]) == (Accept(2),)


def test_a_client_declines_offers_that_all_ask_for_more_data() -> None:
    assert device().offered([Offer(4, 120.0), Offer(2, 101.0)]) == (Pause(2.0),)


def test_without_an_offer_it_asks_five_times_more_and_then_pauses() -> None:
    tested = device()
    waits = []
    for _ in range(7):
        (wait,) = tested.offered([])
        assert tested.woke() == (AskForJobs(),)
        waits.append(wait)
    assert waits == [Pause(2.0)] * 5 + [Pause(20.0), Pause(2.0)]


def test_a_refusal_counts_as_no_offer() -> None:
    tested = device()
    assert [tested.refused() for _ in range(6)] == [(Pause(2.0),)] * 5 + [(Pause(20.0),)]


def test_a_round_is_download_training_upload_and_then_the_next_check_in() -> None:
    tested = Device(client(speed_ms=50.0), DeviceTimers(), 1)
    assert tested.accepted(Binding(7, 3, 5)) == (Get(3, 5),)
    assert tested.got() == (Train(pytest.approx(60.0)),)  # type: ignore[arg-type]
    assert tested.trained() == (Push(3, 5),)
    assert tested.binding == Binding(7, 3, 5)
    assert tested.pushed("acknowledged") == (AskForJobs(),)
    assert tested.binding is None


def test_a_client_that_rests_does_so_after_each_step_of_its_work_but_not_after_a_failure() -> None:
    tested = Device(client(speed_ms=50.0), DeviceTimers(rest_s=9.0).scaled(0.1), 1)
    assert tested.accepted(Binding(7, 3, 5)) == (Get(3, 5),)
    rest, train = tested.got()
    assert rest == Rest(pytest.approx(0.9)) and isinstance(train, Train)  # type: ignore[arg-type]
    assert tested.trained() == (rest, Push(3, 5))
    assert tested.pushed("acknowledged") == (rest, AskForJobs())
    assert tested.failed() == (Pause(2.0),)


def test_work_starts_the_count_of_questions_anew() -> None:
    tested = device()
    for _ in range(5):
        tested.offered([])
    tested.accepted(Binding(7, 3, 5))
    tested.pushed("late")
    assert tested.offered([]) == (Pause(2.0),)


def test_a_model_that_is_not_there_yet_is_asked_for_every_3_s_and_given_up_after_50_times() -> None:
    tested = device()
    tested.accepted(Binding(7, 3, 5))
    for _ in range(50):
        assert tested.absent() == (Pause(3.0),)
        assert tested.woke() == (Get(3, 5),)
    assert tested.absent() == (Pause(20.0),)
    assert tested.woke() == (AskForJobs(),)


def test_clients_start_at_moments_of_their_own_that_the_seed_repeats() -> None:
    starts = [Device(client(number), DeviceTimers(), 9).start()[0] for number in range(20)]
    assert len(set(starts)) == 20
    assert all(isinstance(start, Pause) and 0 <= start.seconds <= 2 for start in starts)
    assert starts == [Device(client(number), DeviceTimers(), 9).start()[0] for number in range(20)]
