"""Facts about a machine, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.live.machine_facts import StealMeter, machine_facts
from measure.live.processor import Processor


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


def stat(proc: Path, *cores: str) -> None:
    """Write /proc/stat with a line for each core: user nice system idle iowait irq softirq steal."""
    ticks = [[int(tick) for tick in core.split()] for core in cores]
    whole = " ".join(str(sum(column)) for column in zip(*ticks, strict=True))
    lines = [f"cpu  {whole} 0 0", *(f"cpu{number} {core} 0 0" for number, core in enumerate(cores)), "intr 0"]
    (proc / "stat").write_text("\n".join(lines) + "\n")


def test_the_core_with_the_most_soft_interrupts_counts(tmp_path: Path) -> None:
    stat(tmp_path, "0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    processor = Processor(proc=tmp_path)
    stat(tmp_path, "10 0 0 90 0 0 0 0", "0 0 0 0 0 0 98 2")
    load = processor.read(1.0)
    assert load.softirq == pytest.approx(0.98)
    assert load.busy == pytest.approx(0.55) and load.cores == 2
    assert load.thread is None and load.processes is None


def test_a_reading_counts_from_the_one_before(tmp_path: Path) -> None:
    stat(tmp_path, "0 0 0 0 0 0 100 0")
    processor = Processor(proc=tmp_path)
    stat(tmp_path, "0 0 0 100 0 0 100 0")
    load = processor.read(1.0)
    assert (load.busy, load.softirq) == (0.0, 0.0)
    again = processor.read(1.0)
    assert (again.busy, again.softirq) == (0.0, 0.0)
