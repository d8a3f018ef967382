"""Scaling to emulated units and back, and the floors under it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from railyard.errors import ConfigError
from railyard.scale import MOST_TIME_SCALE, Floors, Scale, goodput_share


@given(st.floats(1e-5, 1), st.floats(0.1, 100), st.floats(1e-3, 1e3))
def test_ratios_survive_the_scale(rate: float, time: float, delay_s: float) -> None:
    """A transfer and a delay that last equally long in the real system do so in the emulator."""
    scale, real_gbps = Scale(rate, time), 400.0
    real_bytes = delay_s * real_gbps * 1e9 / 8
    transfer_s = scale.emulated_bytes(real_bytes) * 8 / (scale.emulated_mbps(real_gbps) * 1e6)
    assert transfer_s == pytest.approx(scale.emulated_s(delay_s), rel=1e-2, abs=1e-4)
    assert scale.real_s(scale.emulated_s(delay_s)) == pytest.approx(delay_s)


def test_a_transfer_under_the_floor_names_a_scale_that_would_work() -> None:
    scale = Scale(1 / 4000)
    with pytest.raises(ConfigError, match="scale"):
        Floors().check_transfer(27e6, "an all-gather", scale)
    need = Floors().packets_per_transfer * (9000 - 52)
    Floors().check_transfer(need * 4000, "an all-gather", scale)


def test_the_scale_that_is_advised_for_a_transfer_of_a_byte_carries_it() -> None:
    with pytest.raises(ConfigError) as refused:
        Floors().check_transfer(1e6, "a transfer", Scale(1e-7))
    advised = re.search(r"rate x time of at least ([0-9.]+) would", str(refused.value))
    assert advised is not None
    Floors().check_transfer(1e6, "a transfer", Scale(float(advised[1])))


def test_a_delay_under_the_floor_is_refused_and_zero_is_not() -> None:
    floors, scale = Floors(delay_s=0.002), Scale(1 / 250)
    floors.check_delay(0.0, "delay", scale)
    floors.check_delay(0.002, "delay", scale)
    with pytest.raises(ConfigError, match=r"scale\.time of at least 200 \(--time 200\) would carry it, or ask"):
        floors.check_delay(10e-6, "delay", scale)


@given(real_s=st.floats(1e-9, 1e-3))
@example(real_s=0.0009999999999999998)  # two are advised, and it takes a little more
def test_a_time_scale_that_is_advised_is_one_that_may_be_given_and_is_not_refused(real_s: float) -> None:
    """Above the largest time scale only the model is left."""
    floors, scale = Floors(delay_s=0.002), Scale(1 / 250)
    with pytest.raises(ConfigError) as refused:
        floors.check_delay(real_s, "delay", scale)
    advised = re.search(r"--time ([0-9.]+)", str(refused.value))
    assert (advised is None) == (real_s * MOST_TIME_SCALE < floors.delay_s) or 950 < floors.delay_s / real_s <= 1000
    if advised is not None:
        assert float(advised[1]) <= MOST_TIME_SCALE
        floors.check_delay(real_s, "delay", Scale(1 / 250, float(advised[1])))


@pytest.mark.parametrize(("rate", "time"), [(0, 1), (2, 1), (0.5, 0)])
def test_impossible_scales(rate: float, time: float) -> None:
    with pytest.raises(ConfigError):
        Scale(rate, time)


def test_goodput_share_of_jumbo_frames() -> None:
    assert goodput_share(9000) == pytest.approx(8948 / 9014)
    assert goodput_share(9000, 24) == pytest.approx(8948 / 9038)
