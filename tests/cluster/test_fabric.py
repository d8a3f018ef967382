"""One fabric over several machines: a job runs on it as on one, and nothing is left of it whatever happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.machines import SSH_CONFIG, Machines
from cluster.runs import agents, pids, remains, wait_until
from cluster.underlay import Underlay

from railyard.errors import MachineError
from railyard.remote.ssh import CONFIG_VARIABLE

pytestmark = [pytest.mark.root, pytest.mark.beside]

RUN = [sys.executable, "-m", "commands.main", "run", "rails", "--workload", "smoke", "--seed", "1"]
ONCE = ["--repeats", "1", "--attempts", "1", "--rate", "1/250", "--time", "1"]
LONG = [*RUN, *ONCE, "--modes", "on-demand", "--delays", "20", "--steps", "200", "--agents-per-process", "1"]
Start = Callable[[Machines, Path], "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CONFIG_VARIABLE, str(SSH_CONFIG))
    return tmp_path


def run(machines: Machines, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    over = () if "--cluster" in more else ("--cluster", ",".join(machines.names))
    return machines.head.run([*RUN, *ONCE, *over, "--out", str(folder / "out"), *more], timeout_s=120)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "out/summary.json").read_text())
    return found


@pytest.mark.timed  # a run is refused where round trips between the machines take more than 5 ms
@pytest.mark.parametrize(("count", "delay_ms"), [(2, 0.5), pytest.param(3, 0.0, marks=pytest.mark.thorough)])
def test_a_job_runs_over_machines(folder: Path, count: int, delay_ms: float) -> None:
    with Machines(count, Underlay(delay_ms=delay_ms), shared=[folder]) as machines:
        done = run(machines, folder, "--modes", "on-demand", "--delays", "50", "--verify")
        clean_within(machines, 0.0)
    assert done.returncode in (0, 8), done.stderr
    (row,) = rows(folder)
    assert row["misdelivered"] == row["packets_lost"] == 0
    checks = {check["name"]: check for check in row["checks"]}
    for name in ("logs", "agent events", "sampler events", "counters", "underlay loss"):
        assert checks[name]["ok"], checks[name]["says"]
    assert checks["clock uncertainty"]["ok"], checks["clock uncertainty"]["says"]
    assert row["reconfigurations_per_step"] == 2
    manifest = json.loads((folder / "out/manifest.json").read_text())
    assert set(manifest["machines"]) == set(machines.names)
    assert manifest["cut_links"] > 0


def clean_within(machines: Machines, seconds: float, but: str = "") -> None:
    """Nothing of a run is left on any machine, at the latest after ``seconds``."""
    end = time.monotonic() + seconds
    while (left := [found for m in machines if m.name != but for found in remains(m)]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


@pytest.fixture
def started(folder: Path) -> Iterator[tuple[Machines, subprocess.Popen[str]]]:
    """A long run over two machines whose steps have begun."""
    with Machines(2, Underlay(), shared=[folder]) as machines:
        names = ",".join(machines.names)
        process = machines.head.start([*LONG, "--cluster", names, "--out", str(folder / "out")])
        wait_until(lambda: (folder / "out/points/000").is_dir(), 60)
        wait_until(lambda: agents(machines) == 8, 60)
        time.sleep(1.0)  # some steps
        yield machines, process


def test_everything_is_gone_on_all_machines_when_the_head_is_killed(
    started: tuple[Machines, subprocess.Popen[str]],
) -> None:
    machines, process = started
    machines.head.kill(process, signal.SIGKILL)
    clean_within(machines, 5.0)


def test_a_machine_that_dies_ends_the_run_with_its_name(
    started: tuple[Machines, subprocess.Popen[str]], folder: Path
) -> None:
    machines, process = started
    machines["b"].die()
    _, said = process.communicate(timeout=60)
    assert process.returncode == MachineError.exit_status, said
    assert "machine b" in said
    clean_within(machines, 5.0, but="b")
    assert json.loads((folder / "out/manifest.json").read_text())["ended"].startswith("stopped")


@pytest.mark.thorough
def test_a_machine_that_is_cut_off_ends_its_part_by_itself(
    started: tuple[Machines, subprocess.Popen[str]],
) -> None:
    machines, process = started
    machines["b"].unplug()
    _, said = process.communicate(timeout=60)
    assert process.returncode == MachineError.exit_status, said
    assert "machine b" in said
    clean_within(machines, 10.0)


@pytest.mark.thorough
def test_everything_is_gone_on_the_other_machines_when_the_power_of_the_head_fails(
    started: tuple[Machines, subprocess.Popen[str]],
) -> None:
    machines, _ = started
    machines.head.die()
    clean_within(machines, 20.0, but="head")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("machine", "process_of", "name"),
    [("b", "measure.live.sampler", "the sampler of link counters"), ("a", "fastpath.process", "the fast path")],
)
def test_a_process_of_a_part_that_dies_ends_the_run_at_once_with_its_name(
    started: tuple[Machines, subprocess.Popen[str]], machine: str, process_of: str, name: str
) -> None:
    """Nothing else of the run would miss a sampler before the end of the point."""
    machines, process = started
    wait_until(lambda: bool(pids(machines[machine], process_of)), 20)
    machines[machine].run(["kill", "-9", *pids(machines[machine], process_of)])
    _, said = process.communicate(timeout=15)
    assert process.returncode == MachineError.exit_status, said
    assert f"on machine {machine}: {name}" in said
    clean_within(machines, 5.0)


def test_machines_and_networks_that_cannot_be_used_are_named(folder: Path) -> None:
    with Machines(2, Underlay(mtu=1500), shared=[folder]) as machines:
        small = run(machines, folder, "--modes", "electrical")
        clean_within(machines, 0.0)
        unknown = run(machines, folder, "--cluster", "a,nowhere")
        clean_within(machines, 0.0)
    assert small.returncode == unknown.returncode == MachineError.exit_status
    assert "the network between a and b passes packets of at most 1500 bytes" in small.stderr
    assert "nowhere" in unknown.stderr
    assert not (folder / "out").exists()
