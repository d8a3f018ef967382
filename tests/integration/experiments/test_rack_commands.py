"""The experiments on racks, run as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import ONCE

from measure.results.results import Results

pytestmark = pytest.mark.root

MAY_BE_UNFAITHFUL = (0, 8)
"""A test machine may be busy; the numbers of these runs are not looked at."""


RAILYARD = [sys.executable, "-m", "commands.main"]


def railyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RAILYARD, *arguments], capture_output=True, text=True, timeout=180, check=False, cwd=ROOT)


@pytest.mark.beside
def test_failover_writes_rows_from_which_plot_draws_figures_and_tables(tmp_path: Path) -> None:
    out = tmp_path / "results"
    experiment = tmp_path / "short.yaml"
    experiment.write_text(
        "fabrics: [photonic]\nkill: 1@2.5\nsteps: 5\n"
        "job: {compute_s: 0.3, gradient_bytes: 4.0e+8, state_bytes: 4.0e+8, checkpoint_every: 2}\n"
        "neighbour: {compute_s: 0.5, gradient_bytes: 2.0e+8, state_bytes: 2.0e+8}\n"
        "scale: {rate: 1/400, time: 0.3}\n"
        "detection: {heartbeat_ms: 2000}\n"  # on a busy machine late heartbeats would count as deaths
    )
    done = railyard("run", "failover", str(experiment), *ONCE, "--no-figures", "--out", str(out))
    assert done.returncode in MAY_BE_UNFAITHFUL, done.stderr
    assert "rank 1 is killed" in done.stderr and "circuits up" in done.stdout
    rows = json.loads((out / "summary.json").read_text())
    asked = "experiment system fabric tenant event detect_s decide_s rewire_s checkpoint_s restart_s first_step_s "
    asked += "outage_s step_time_before_s step_time_after_s lost_steps checksum_ok faithful"
    assert all(set(asked.split()) <= row.keys() for row in rows)
    assert [(row["fabric"], row["tenant"], row["checksum_ok"]) for row in rows] == [
        ("photonic", "A", True),
        ("photonic", "B", True),
    ]
    assert all(row["sent_bytes"] >= row["received_bytes"] > 0 and row["lost_packets"] >= 0 for row in rows)
    (circuits,) = (e for e in Results.open(out).events() if (e.source, e.kind) == ("controller", "circuits"))
    assert circuits["rail"] == "rack0" and circuits["circuits"], "those of both jobs, once"
    again = railyard("plot", str(out))
    assert again.returncode == done.returncode and "Step times before and after" in again.stdout
    figures = {"throughput.png", "recovery.png", "step-times.png"}
    assert figures <= {path.name for path in (out / "figures").iterdir()}


@pytest.mark.timed(late_ms=20)  # rates over a second, to 10 %
def test_server_fabric_measures_the_prototype(tmp_path: Path) -> None:
    out = tmp_path / "results"
    small = (*ONCE, "--study", "iperf3", "--shapes", "2x1x1", "--iperf-seconds", "1")
    done = railyard("run", "server-fabric", *small, "--out", str(out))
    assert done.returncode in MAY_BE_UNFAITHFUL, done.stderr
    rows = json.loads((out / "summary.json").read_text())
    value = {(row["measure"], row["fabric"]): row["value"] for row in rows}
    assert value["iperf3", "photonic"] / value["iperf3", "electrical"] == pytest.approx(2.0, rel=0.1)
    assert (out / "figures" / "server-fabric.png").exists()


@pytest.mark.timed(late_ms=20)  # a ratio of times, to 10 %
def test_a_slice_of_the_allocator_is_three_times_as_fast_with_steered_ports(tmp_path: Path) -> None:
    out = tmp_path / "results"
    small = (*ONCE, "--study", "slices", "--requests", "2x2x1", "--tensor-parallel", "1", "--time", "0.1")
    done = railyard("run", "server-fabric", *small, "--no-figures", "--out", str(out))
    assert done.returncode in MAY_BE_UNFAITHFUL, done.stderr
    electrical, photonic = json.loads((out / "summary.json").read_text())
    assert (electrical["fabric"], photonic["fabric"], photonic["ports"]) == ("electrical", "photonic", 6)
    assert electrical["value"] / photonic["value"] == pytest.approx(3.0, rel=0.1)


@pytest.mark.beside
def test_both_rings_of_a_dead_chip_are_spliced_to_the_spare(tmp_path: Path) -> None:
    out = tmp_path / "results"
    experiment = tmp_path / "rings.yaml"
    experiment.write_text(
        "fabrics: [photonic]\npolicy: morphlux\nkill: 1@2.5\nsteps: 4\nneighbour: null\n"
        "job: {compute_s: 0.3, gradient_bytes: 2.0e+8, state_bytes: 2.0e+8, checkpoint_every: 2, tensor_parallel: 2}\n"
        "scale: {rate: 1/400, time: 0.3}\ndetection: {heartbeat_ms: 2000}\n"
    )
    done = railyard("run", "failover", str(experiment), *ONCE, "--no-figures", "--out", str(out))
    assert done.returncode in MAY_BE_UNFAITHFUL, done.stderr
    (row,) = json.loads((out / "summary.json").read_text())
    assert (row["state"], row["replaced_by"]) == ("recovered", 16)
    assert row["changed_ports"] == 8  # both ends of four circuits, two for each ring
