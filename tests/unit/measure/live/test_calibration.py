from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.live.calibration import (
    MOST_MBPS,
    MOST_TIME,
    Calibration,
    TimerError,
    default_calibration,
    load_calibration,
    pick_scale,
    save_calibration,
)
from railyard.errors import ConfigError, MachineError
from railyard.scale import Floors, Scale

FLOORS = Floors()


def carrying(aggregate_mbps: float) -> Calibration:
    return dataclasses.replace(default_calibration(), aggregate_mbps=aggregate_mbps)


def test_an_uncalibrated_machine_runs_a_small_rail_job_in_real_time() -> None:
    # 16 GPUs with 2 ports of 12.5 Gb/s
    scale = pick_scale(32, 12.5, 100e6, FLOORS)
    assert scale.time == 1.0
    assert scale.emulated_mbps(12.5) * 32 <= default_calibration().carries_mbps


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
        scale = pick_scale(ports, gbps, transfer, FLOORS, calibration=ground)
    except ConfigError:
        # Then even the slowest run it may pick is under the floor.
        rate = min(ground.carries_mbps / ports, MOST_MBPS) / (gbps * 1000)
        with pytest.raises(ConfigError):
            FLOORS.check_transfer(int(transfer * min(rate, 1) * MOST_TIME / 1.1), "transfer", calibrated(rate))
        return
    assert scale.emulated_mbps(gbps) * ports <= ground.carries_mbps * (1 + 1e-9)
    assert 1.0 <= scale.time <= MOST_TIME
    FLOORS.check_transfer(scale.emulated_bytes(transfer), "transfer", scale)


def calibrated(rate: float) -> Scale:
    return Scale(rate=min(rate, 1.0))


@given(ports=st.integers(1, 512), gbps=st.floats(1, 1600))
def test_a_rate_is_one_over_a_number_of_two_digits(ports: int, gbps: float) -> None:
    inverse = 1 / pick_scale(ports, gbps, 0, FLOORS).rate
    assert inverse == pytest.approx(float(f"{inverse:.2g}"), rel=1e-9)


def test_a_smaller_transfer_slows_the_run_down_no_more_than_needed() -> None:
    quick = pick_scale(32, 12.5, 100e6, FLOORS)
    slow = pick_scale(32, 12.5, 27e6, FLOORS)
    assert quick.time == 1.0
    assert 1.0 < slow.time <= MOST_TIME
    with pytest.raises(ConfigError):
        FLOORS.check_transfer(int(27e6 * slow.rate * (slow.time * 0.9)), "transfer", slow)


def test_a_given_time_is_kept_or_refused() -> None:
    assert pick_scale(32, 12.5, 27e6, FLOORS, time=4.0).time == 4.0
    with pytest.raises(ConfigError, match=r"scale: .* scale\.time of at least"):
        pick_scale(32, 400, 1e5, FLOORS, time=1.0)


def test_a_refusal_names_what_works() -> None:
    with pytest.raises(ConfigError) as refused:
        pick_scale(64, 400, 1e5, FLOORS)
    sentence = str(refused.value)
    time = float(sentence.split("scale.time of at least ")[1].split(",")[0])
    transfer = float(sentence.split("transfers of at least ")[1].split(" ")[0])
    assert pick_scale(64, 400, 1e5, FLOORS, time=time).time == time
    assert pick_scale(64, 400, transfer, FLOORS).time <= MOST_TIME


@pytest.mark.parametrize(("ports", "gbps"), [(0, 400.0), (4, 0.0), (4, -1.0)])
def test_no_port_and_no_rate_are_refused(ports: int, gbps: float) -> None:
    with pytest.raises(ConfigError):
        pick_scale(ports, gbps, 1e9, FLOORS)


def test_a_slow_link_is_emulated_at_its_own_rate() -> None:
    assert pick_scale(1, 0.1, 1e9, FLOORS).rate == 1.0


def test_floors_follow_the_timers() -> None:
    coarse = dataclasses.replace(default_calibration(), timer_idle=TimerError(1e-3, 3e-3, 9e-3, 100))
    assert coarse.floors().delay_s == pytest.approx(0.03)
    assert default_calibration().floors().delay_s == FLOORS.delay_s


def test_what_is_saved_is_loaded_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.json"
    saved = carrying(4000)
    save_calibration(saved, path)
    assert load_calibration(path) == saved
    assert path.stat().st_mode & 0o444 == 0o444
    assert [file.name for file in path.parent.iterdir()] == ["calibration.json"]


def test_nothing_saved_is_no_calibration(tmp_path: Path) -> None:
    assert load_calibration(tmp_path / "none.json") is None


def test_a_calibration_of_another_machine_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(dataclasses.replace(default_calibration(), kernel="1.2.3-other"), path)
    assert load_calibration(path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        json.dumps({**dataclasses.asdict(default_calibration()), "format": 99}),
        json.dumps({**dataclasses.asdict(default_calibration()), "surplus": 1}),
        json.dumps({**dataclasses.asdict(default_calibration()), "aggregate_mbps": -1}),
        json.dumps({**dataclasses.asdict(default_calibration()), "timer_idle": 3}),
    ],
)
def test_a_broken_file_is_named_with_the_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(MachineError, match=r"calibration\.json .* sudo .*railyard calibrate"):
        load_calibration(path)
