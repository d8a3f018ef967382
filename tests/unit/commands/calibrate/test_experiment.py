from __future__ import annotations

from dataclasses import asdict

from commands.calibrate.experiment import Calibrate
from measure.live.calibration import Datapath, default_calibration

SETTINGS = {"ports": 32, "gbps": 400.0}


def shown(*datapaths: Datapath) -> list[str]:
    row = {"calibration": asdict(default_calibration(datapaths))}
    return [str(line) for line in Calibrate.report().findings([row], SETTINGS)]


def test_every_datapath_is_shown_with_its_floors_and_the_one_that_auto_takes_is_named() -> None:
    lines = shown("bpf", "ovs")
    assert [line for line in lines if line.startswith("Datapath")] == [
        "Datapath bpf, which auto takes",
        "Datapath ovs",
    ]
    floors = [line.split()[-6:] for line in lines if "shortest delay" in line]
    assert floors == [["1", "/", "2", "/", "1", "ms"], ["2", "/", "2", "/", "2", "ms"]]
    assert [line.split()[-5] for line in lines if "scale for 32 ports" in line] == ["1/5,400", "1/8,000"]


def test_a_machine_without_measured_datapaths_shows_its_timers_alone() -> None:
    assert [line for line in shown() if "timer late at rest" in line]
    assert not [line for line in shown() if "Datapath" in line]
