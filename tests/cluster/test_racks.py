"""Racks over several machines: a chip dies on one of them, and its job goes on as on one machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster.machines import SSH_CONFIG, Machines
from cluster.runs import remains
from cluster.underlay import Underlay

from railyard.remote.ssh import CONFIG_VARIABLE

pytestmark = [pytest.mark.root, pytest.mark.beside]

RUN = [sys.executable, "-m", "commands.main", "run"]
ONCE = ["--quick", "--repeats", "1", "--attempts", "1"]
FAILOVER = [*RUN, "failover", *ONCE, "--alone", "--fabrics"]


def rows(machines: Machines, out: Path, command: list[str]) -> list[dict[str, Any]]:
    """The rows of a run over the machines, which leaves nothing on any."""
    done = machines.head.run([*command, "--cluster", "a,b", "--out", str(out)], timeout_s=150)
    assert done.returncode in (0, 8), done.stderr
    assert not [left for machine in machines for left in remains(machine)]
    found: list[dict[str, Any]] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.timed
def test_a_rack_over_two_machines_recovers_as_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spare is on another machine than the job, so the checkpoint is copied from one to the other."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(SSH_CONFIG))
    with Machines(2, Underlay(), shared=[tmp_path]) as machines:
        (row,) = rows(machines, tmp_path / "out", [*FAILOVER, "photonic"])
    assert row["state"] == "recovered" and row["checksum_ok"] and row["resumed"] == [[2, 1]]
    for step in ("step_time_before_s", "step_time_after_s"):
        assert row[step] == pytest.approx(row[f"predicted_{step}"], rel=0.05)


@pytest.mark.thorough
def test_a_job_without_spares_stops_and_its_checkpoint_comes_to_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spares, on another machine than the switch, die after the chip."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(SSH_CONFIG))
    kills = ["--steps", "4", "--kill", "0@2.5," + ",".join(f"{spare}@+0.1" for spare in range(16, 20))]
    with Machines(2, Underlay(), shared=[tmp_path]) as machines:
        found = rows(machines, tmp_path / "out", [*FAILOVER, "photonic", *kills])
    assert {row["state"] for row in found} == {"stranded"}
    (kept,) = (tmp_path / "out/checkpoints").iterdir()
    assert kept.name == "A-checkpoint-00000002" and kept.stat().st_size > 0


@pytest.mark.thorough
def test_iperf3_measures_between_hosts_on_two_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(SSH_CONFIG))
    study = ["--study", "iperf3", "--shapes", "1x2x1", "--iperf-seconds", "1"]
    with Machines(2, Underlay(), shared=[tmp_path]) as machines:
        found = rows(machines, tmp_path / "out", [*RUN, "server-fabric", *ONCE, *study])
    assert [row["measure"] for row in found] == ["iperf3"] * 2
    for row in found:
        assert row["value"] == pytest.approx(row["predicted"], rel=0.1)
