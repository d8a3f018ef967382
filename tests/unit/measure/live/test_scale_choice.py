from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live.calibration import UNCALIBRATED, Capacity, TransferCost
from measure.live.scale_choice import (
    MOST_MBPS,
    MOST_STRETCH,
    MOST_TIME,
    TARGET_ERROR,
    ScaleNeeds,
    check_carried,
    expected_error,
    pick_scale,
)
from railyard.errors import ConfigError
from railyard.scale import Floors, Scale

FLOORS = Floors()
OVS = UNCALIBRATED["ovs"]


def carrying(aggregate_mbps: float, *transfers: TransferCost) -> Capacity:
    return dataclasses.replace(OVS, aggregate_mbps=aggregate_mbps, transfers=transfers)


def needs(ports: int, gbps: float, smallest: float = 0.0, **pace: float) -> ScaleNeeds:
    of_ranks = {int(name.removeprefix("ranks")): often for name, often in pace.items()}
    return ScaleNeeds(ports, gbps, smallest, of_ranks or None, 9000)


def test_an_uncalibrated_machine_runs_a_small_rail_job_in_real_time() -> None:
    # 16 GPUs with 2 ports of 12.5 Gb/s
    scale = pick_scale(needs(32, 12.5, 100e6), FLOORS, OVS)
    assert scale.time == 1.0
    assert scale.emulated_mbps(12.5) * 32 <= OVS.carries_mbps


@given(
    ports=st.integers(1, 512),
    gbps=st.floats(1, 1600),
    transfer=st.floats(1e3, 1e10),
    aggregate=st.floats(100, 50_000),
)
def test_a_picked_scale_fits_the_machine_and_the_floor(
    ports: int, gbps: float, transfer: float, aggregate: float
) -> None:
    ground = carrying(aggregate)
    try:
        scale = pick_scale(needs(ports, gbps, transfer), FLOORS, ground)
    except ConfigError:
        # Then even the slowest run it may pick is under the floor.
        rate = min(ground.carries_mbps / ports, MOST_MBPS) / (gbps * 1000)
        with pytest.raises(ConfigError):
            FLOORS.check_transfer(transfer, "transfer", Scale(min(rate, 1.0), MOST_TIME / 1.1))
        return
    assert scale.emulated_mbps(gbps) * ports <= ground.carries_mbps * (1 + 1e-9)
    assert 1.0 <= scale.time <= MOST_TIME
    FLOORS.check_transfer(transfer, "transfer", scale)


@given(ports=st.integers(1, 512), gbps=st.floats(1, 1600))
def test_a_rate_is_one_over_a_number_of_two_digits(ports: int, gbps: float) -> None:
    inverse = 1 / pick_scale(needs(ports, gbps), FLOORS, OVS).rate
    assert inverse == pytest.approx(float(f"{inverse:.2g}"), rel=1e-9)


def test_a_smaller_transfer_slows_the_run_down_no_more_than_needed() -> None:
    quick = pick_scale(needs(32, 12.5, 100e6), FLOORS, OVS)
    slow = pick_scale(needs(32, 12.5, 27e6), FLOORS, OVS)
    assert quick.time == 1.0
    assert 1.0 < slow.time <= MOST_TIME
    with pytest.raises(ConfigError):
        FLOORS.check_transfer(27e6, "transfer", Scale(slow.rate, slow.time * 0.9))


def test_a_given_time_is_kept_or_refused() -> None:
    assert pick_scale(needs(32, 12.5, 27e6), FLOORS, OVS, time=4.0).time == 4.0
    costly = carrying(4000, TransferCost(2, 1600, 0.01))
    assert pick_scale(needs(32, 12.5, ranks2=50), FLOORS, costly, time=1.0).time == 1.0
    with pytest.raises(ConfigError, match=r"scale: .* scale\.time of at least 180 \(--time 180\), or transfers"):
        pick_scale(needs(32, 400, 1e7), FLOORS, OVS, time=1.0)


@pytest.mark.parametrize("time", [None, 9.1])
def test_what_is_not_scaled_is_never_too_small(time: float | None) -> None:
    tiny = needs(1, 1, 1000)
    scale = pick_scale(tiny, FLOORS, carrying(276), time)
    assert scale.rate * scale.time == pytest.approx(1)
    FLOORS.check_transfer(1000, "transfer", scale)


def test_a_refusal_names_what_works() -> None:
    with pytest.raises(ConfigError) as refused:
        pick_scale(needs(64, 400, 1e7), FLOORS, OVS)
    sentence = str(refused.value)
    time = float(sentence.split("--time ")[1].split(")")[0])
    transfer = float(sentence.split("transfers of at least ")[1].split(" ")[0].replace(",", ""))
    assert pick_scale(needs(64, 400, 1e7), FLOORS, OVS, time=time).time == time
    assert pick_scale(needs(64, 400, transfer), FLOORS, OVS).time <= MOST_TIME


def test_a_refusal_names_no_time_that_may_not_be_given() -> None:
    with pytest.raises(ConfigError, match="what would work: transfers of at least") as refused:
        pick_scale(needs(64, 400, 1e5), FLOORS, OVS)
    assert "--time" not in str(refused.value)


@pytest.mark.parametrize(("ports", "gbps"), [(0, 400.0), (4, 0.0), (4, -1.0)])
def test_no_port_and_no_rate_are_refused(ports: int, gbps: float) -> None:
    with pytest.raises(ConfigError):
        pick_scale(needs(ports, gbps, 1e9), FLOORS, OVS)


def test_a_slow_link_is_emulated_at_its_own_rate() -> None:
    assert pick_scale(needs(1, 0.1, 1e9), FLOORS, OVS).rate == 1.0


def test_the_expected_error_is_the_share_of_a_step_that_transfers_take_beyond_line_rate() -> None:
    capacity = carrying(10_000, TransferCost(2, 4000, 2e-3), TransferCost(16, 4000, 1e-3))
    ten_of_two = needs(32, 12.5, ranks2=10, ranks16=4)
    at = Scale(1 / 250)
    assert expected_error(ten_of_two, capacity, at) == pytest.approx(10 * 2e-3 + 4 * 1e-3)
    assert expected_error(ten_of_two, capacity, Scale(1 / 250, 2.0)) == pytest.approx((10 * 2e-3 + 4 * 1e-3) / 2)
    assert expected_error(needs(32, 12.5), capacity, at) is None


def test_a_run_is_in_real_time_at_the_highest_rate_within_the_target() -> None:
    for at_4000_s, at_1000_s, least, most in ((1e-3, 0.5e-3, 3600, 4400), (8e-3, 1e-3, 0, 1000)):
        capacity = carrying(10_000, TransferCost(2, 4000, at_4000_s), TransferCost(2, 1000, at_1000_s))
        scale = pick_scale(needs(32, 12.5, ranks2=10), FLOORS, capacity)
        assert scale.time == 1.0, "a lower rate is preferred to a longer run"
        assert least < scale.emulated_mbps(12.5) * 32 <= most


def test_a_run_is_slowed_down_to_the_target_and_no_further() -> None:
    capacity, job = carrying(10_000, TransferCost(2, 4000, 2.3e-3)), needs(32, 12.5, ranks2=10)
    scale = pick_scale(job, FLOORS, capacity)
    assert 1.0 < scale.time <= MOST_STRETCH
    error = expected_error(job, capacity, scale)
    assert error is not None and TARGET_ERROR * 0.9 <= error <= TARGET_ERROR


def test_where_no_scale_reaches_the_target_the_run_is_bounded_and_its_error_known() -> None:
    capacity, job = (
        carrying(10_000, TransferCost(2, 4000, 30e-3), TransferCost(2, 1000, 10e-3)),
        needs(32, 12.5, ranks2=10),
    )
    scale = pick_scale(job, FLOORS, capacity)
    assert scale.time == MOST_STRETCH
    assert expected_error(job, capacity, scale) == pytest.approx(10 * 10e-3 / MOST_STRETCH)


def test_the_cost_of_the_next_higher_load_and_the_nearest_number_of_ranks_counts() -> None:
    known = [TransferCost(2, 1000, 1e-3), TransferCost(16, 1000, 2e-3), TransferCost(2, 4000, 3e-3)]
    capacity = carrying(10_000, *known)
    assert capacity.transfer_s(2, 500) == 1e-3
    assert capacity.transfer_s(8, 1000) == 2e-3
    assert capacity.transfer_s(2, 1001) == 3e-3
    assert capacity.transfer_s(64, 9000) == 3e-3
    assert carrying(10_000).transfer_s(2, 500) == OVS.alpha_s


@pytest.mark.parametrize(
    ("guessed", "carries"),
    [(False, "this machine carries"), (True, "a machine that was not calibrated is taken to carry")],
)
def test_a_rate_at_which_all_links_are_more_than_is_carried_is_refused_with_one_that_works(
    guessed: bool, carries: str
) -> None:
    capacity = carrying(4000)
    check_carried(needs(512, 12.5), capacity, Scale(1 / 1600), guessed=guessed)
    with pytest.raises(ConfigError) as refused:
        check_carried(needs(512, 12.5), capacity, Scale(1 / 250), guessed=guessed)
    assert str(refused.value) == (
        f"scale.rate: 512 links of 50 Mb/s are 25.6 Gb/s, and {carries} 4 Gb/s (railyard calibrate); use --rate 1/4000 "
        "or leave it away"
    )
    assert pick_scale(needs(512, 12.5), FLOORS, capacity).rate == 1 / 4000, "the one that would be chosen"
