from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from measure.live import calibration as calibration_module
from measure.live.calibration import (
    DATAPATHS,
    LEAST,
    UNCALIBRATED,
    UNTIMED,
    Calibration,
    Datapath,
    HopCost,
    TimerError,
    default_calibration,
    load_calibration,
    save_calibration,
    this_machine,
)
from railyard import ownership
from railyard.errors import MachineError

GOOD_TIMER = TimerError(50e-6, 100e-6, 1e-3, 1000)


BUSY_TIMER = TimerError(0.001, 0.01, 0.1, 100)
"""With every processor busy, which decides no floor."""


def measured(
    timer: TimerError = GOOD_TIMER, shortest_dark_s: float = 0.0005, names: tuple[Any, ...] = DATAPATHS
) -> Calibration:
    """A calibration of this machine with these timers and dark times on all of ``names``."""
    capacity = {
        name: dataclasses.replace(
            UNCALIBRATED[name],
            aggregate_mbps=1234.0,
            control=dataclasses.replace(UNCALIBRATED[name].control, shortest_dark_s=shortest_dark_s),
        )
        for name in names
    }
    return dataclasses.replace(default_calibration(), timer_idle=timer, timer_loaded=BUSY_TIMER, datapaths=capacity)


def test_auto_takes_the_first_datapath_that_was_measured() -> None:
    assert measured().takes("auto") == "bpf"
    assert measured(names=("ovs",)).takes() == "ovs"
    assert default_calibration().takes() == "ovs"
    assert measured().takes("ovs") == "ovs"


def test_a_prediction_without_root_is_that_of_a_kernel_with_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_module, "load_calibration", lambda: None)
    monkeypatch.setattr(calibration_module, "_available", calibration_module._available.__wrapped__)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert this_machine().takes() == "bpf"


def test_what_was_not_measured_is_conservative() -> None:
    only = measured(names=("ovs",))
    assert only.of("ovs").aggregate_mbps == 1234.0
    assert only.of("bpf") == UNCALIBRATED["bpf"]
    assert only.floors("bpf") == UNTIMED["bpf"]


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_what_others_keep_busy_is_left_to_them_on_every_datapath(datapath: Datapath) -> None:
    machine = measured(names=("ovs",))
    assert machine.beside(0.25).of(datapath).aggregate_mbps == 0.75 * machine.of(datapath).aggregate_mbps
    assert machine.beside(0.25).takes() == "ovs"


def test_reconfigurations_of_half_a_millisecond_and_slots_of_two_are_accepted_where_the_machine_supports_it() -> None:
    floors = measured().floors("bpf")
    assert floors.delay_s <= 0.0005
    assert floors.slot_s <= 0.002 and floors.guard_s <= 0.0005
    assert default_calibration().floors("bpf").delay_s == 0.001


@pytest.mark.parametrize("timer", [GOOD_TIMER, TimerError(1e-6, 1e-6, 1e-6, 9)])
def test_through_open_vswitch_the_floor_stays_at_two_milliseconds(timer: TimerError) -> None:
    assert measured(timer).floors("ovs") == LEAST["ovs"]
    assert LEAST["ovs"].delay_s == 0.002


def test_floors_follow_timers_and_dark_times() -> None:
    coarse = TimerError(1e-3, 3e-3, 9e-3, 100)
    assert measured(coarse).floors("ovs").guard_s == pytest.approx(0.006)
    assert measured(coarse).floors("bpf").slot_s == pytest.approx(0.024)
    assert (
        measured(shortest_dark_s=0.003).floors("bpf").delay_s
        == measured(shortest_dark_s=0.003).floors("ovs").delay_s
        == 0.003
    )
    assert measured(dataclasses.replace(GOOD_TIMER, count=0)).floors("bpf") == UNTIMED["bpf"]


def test_what_is_saved_is_loaded_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.json"
    saved = measured()
    save_calibration(saved, path)
    assert load_calibration(path) == saved
    assert path.stat().st_mode & 0o444 == 0o444
    assert [file.name for file in path.parent.iterdir()] == ["calibration.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_the_calibration_of_the_machine_stays_root_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "invoker", lambda: (12345, 12346))
    monkeypatch.setattr(calibration_module, "CALIBRATION_FILE", tmp_path / "machine" / "calibration.json")
    for name, owner in (("machine", 0), ("own", 12345)):
        save_calibration(measured(), path := tmp_path / name / "calibration.json")
        assert (path.stat().st_uid, path.parent.stat().st_uid) == (owner, owner)


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
        json.dumps({**dataclasses.asdict(default_calibration()), "surplus": 1}),
        json.dumps(dataclasses.asdict(measured()) | {"datapaths": {"ovs": {"aggregate_mbps": -1}}}),
        json.dumps(dataclasses.asdict(measured()) | {"datapaths": {"carrier pigeon": {}}}),
        json.dumps({**dataclasses.asdict(default_calibration()), "timer_idle": 3}),
    ],
)
def test_a_broken_file_is_named_with_the_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(MachineError, match=r"calibration\.json .* (sudo )?/.*railyard calibrate"):
        load_calibration(path)


@pytest.mark.parametrize("number", [1, 99])
def test_a_file_of_another_version_is_to_be_measured_again(tmp_path: Path, number: int) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(dataclasses.asdict(measured()) | {"format": number}))
    with pytest.raises(MachineError, match=r"another version; measure again with: (sudo )?/.*railyard calibrate"):
        load_calibration(path)


def test_a_machine_without_calibration_takes_the_datapath_that_it_has() -> None:
    machine = default_calibration(("bpf", "ovs"))
    assert machine.takes() == "bpf"
    assert machine.of() == UNCALIBRATED["bpf"]
    assert machine.floors() == UNTIMED["bpf"]


def test_the_cost_of_a_hop_is_that_of_the_nearest_number_of_hosts_or_a_small_message() -> None:
    capacity = dataclasses.replace(UNCALIBRATED["bpf"], hops=(HopCost(4, 1e-4), HopCost(16, 2e-4)))
    assert [capacity.hop_s(hosts) for hosts in (1, 4, 7, 9, 16, 64)] == [1e-4, 1e-4, 1e-4, 2e-4, 2e-4, 2e-4]
    assert UNCALIBRATED["bpf"].hop_s(16) == UNCALIBRATED["bpf"].alpha_s


def test_a_file_without_hops_goes_on_to_work(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(measured(), path)
    saved = json.loads(path.read_text())
    for capacity in saved["datapaths"].values():
        del capacity["hops"]
    path.write_text(json.dumps(saved))
    loaded = load_calibration(path)
    assert loaded is not None and loaded.of("bpf").hops == ()
