"""Facts about a machine, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure.live.processor import Processor, machine_facts


def test_facts_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n")
    (tmp_path / "clock").write_text("kvm-clock\n")
    facts = machine_facts(tmp_path / "cpuinfo", tmp_path / "clock")
    assert (facts["cpu"], facts["clock_source"], len(facts["load_before"])) == ("A CPU @ 2 GHz", "kvm-clock", 3)
    assert machine_facts(tmp_path / "none", tmp_path / "none")["clock_source"] is None


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
    assert load.busy == pytest.approx(0.55) and load.cores == 2 and load.steal == pytest.approx(0.01)
    assert load.thread is None and load.processes is None


def test_a_reading_counts_from_the_one_before(tmp_path: Path) -> None:
    stat(tmp_path, "0 0 0 0 0 0 100 0")
    processor = Processor(proc=tmp_path)
    stat(tmp_path, "0 0 0 100 0 0 100 0")
    load = processor.read(1.0)
    assert (load.busy, load.softirq) == (0.0, 0.0)
    again = processor.read(1.0)
    assert (again.busy, again.softirq) == (0.0, 0.0)
