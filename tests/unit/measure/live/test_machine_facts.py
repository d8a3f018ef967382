"""Facts about a machine, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.live.machine_facts import StealMeter, machine_facts


def test_facts_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n")
    (tmp_path / "loadavg").write_text("0.50 1.25 2.00 1/200 77\n")
    clock = tmp_path / "devices/system/clocksource/clocksource0"
    clock.mkdir(parents=True)
    (clock / "current_clocksource").write_text("kvm-clock\n")
    facts = machine_facts(tmp_path, tmp_path)
    assert facts == {"cpu": "A CPU @ 2 GHz", "clock_source": "kvm-clock", "load_before": [0.5, 1.25, 2.0]}
    missing = machine_facts(tmp_path / "none", tmp_path / "none")
    assert (missing["clock_source"], missing["load_before"]) == (None, None)


def test_the_share_that_other_guests_took(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 10 0 0 40 0 0\ncpu0 1\n")
    meter = StealMeter(tmp_path)
    assert meter.share() is None, "no time has passed"
    stat.write_text("cpu  150 0 50 840 10 0 0 50 7 0\ncpu0 1\n")
    assert meter.share() == pytest.approx(0.1)
    stat.write_text("cpu  1 2\n")
    assert meter.share() is None
