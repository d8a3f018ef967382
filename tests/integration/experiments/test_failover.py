"""Real kills under real jobs: the outcome of every kind of trouble, never a hang, and always the right sums."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import hanging_launcher

from experiments.point_run import PointRun
from experiments.progress import RunProgress
from experiments.racks.failover.experiment import Failover, FailoverSettings
from experiments.racks.setting import JobSection
from experiments.runner import Runner
from experiments.settings import validated
from measure.results.results import Results
from measure.results.row import Row
from workloads.agent.launcher import AgentTeam

pytestmark = pytest.mark.root

timed = pytest.mark.timed(late_ms=50)
"""For tests that bound times, or where a heartbeat that comes 0.2 s late counts as a death."""
PATIENT = {"heartbeat_ms": 2000}
"""Detection for tests that run beside others: only a heartbeat that comes 1.2 s late counts as a death."""
SMALL = JobSection(compute_s=0.3, gradient_bytes=4e8, state_bytes=4e8, checkpoint_every=2)
STEPS = 6


class Heard(RunProgress):
    """Keeps the lines that a person would read."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def say(self, text: str) -> None:
        self.heard.append(text)


def run(out: Path, **values: Any) -> tuple[list[Row], list[str]]:
    """Rows and what a person heard; a step takes about a tenth of a second."""
    small: dict[str, Any] = {"job": SMALL, "neighbour": None, "steps": STEPS, "kill": "1@3.5", "fabrics": "photonic"}
    small |= {"repeats": 1, "attempts": 1}
    scale = {"rate": 1 / 400, "time": 0.3}
    settings = validated(FailoverSettings, {**small, "scale": scale, "reconfiguration_delay_ms": 50, **values})
    failover, progress = Failover(settings), Heard()
    failover.check()
    with Runner(failover, out, progress) as runner:
        failover.run(runner)
    return Results.open(out).rows(), progress.heard


def check_went_on(row: Row) -> None:
    """The job lost a chip and came back with the right state."""
    assert row["state"] == "recovered", row["reason"]
    assert row["checksum_ok"] is True
    assert row["detect_s"] > 0 and row["outage_s"] > row["circuits_s"]
    first, again = row["resumed"][-1]
    assert first in row["acknowledged_checkpoints"]
    assert 0 <= again <= SMALL.checkpoint_every + 1


@timed
@pytest.mark.parametrize("signal", ["exit", "port"])
def test_an_ended_agent_or_a_dark_port_is_noticed_at_once_and_only_its_circuits_move(
    tmp_path: Path, signal: str
) -> None:
    (row,), _ = run(tmp_path, detection={"detect": [signal], "heartbeat_ms": 2000})
    check_went_on(row)
    assert row["replaced_by"] == 16 and row["detect_s"] < 0.3
    # the spare's four ports, two of each of the two neighbours, and those of the dead chip whose light is not yet told
    # to be out: their circuits are taken down
    assert 8 <= row["changed_ports"] <= 12
    assert row["rewire_s"] - 0.050 <= 0.020 / 0.3


@pytest.mark.beside
@pytest.mark.parametrize("fabric", ["e2", "migrate"])
def test_electrical_racks_go_on_too(tmp_path: Path, fabric: str) -> None:
    (row,), _ = run(tmp_path, fabrics=fabric, migration_delay_ms=500, detection=PATIENT)
    check_went_on(row)


@pytest.mark.beside
def test_an_inference_job_goes_on_with_the_request_that_was_interrupted(tmp_path: Path) -> None:
    serving = {"request_rate": 3, "patience_s": 60, "weight_bytes": 4e8}
    (row,), _ = run(tmp_path, inference=serving, steps=30, kill="1@15.5", detection=PATIENT)
    assert row["state"] == "recovered", row["reason"]
    assert row["dropped_requests"] == 0 and row["retried_requests"] == 1 == row["predicted_retried_requests"]
    assert row["latency_p99_during_s"] > row["circuits_s"] > row["latency_p50_before_s"]
    assert all(wait is not None for _, wait in row["requests"])
    ((first, again),) = row["resumed"]
    assert first <= 16 and again == 0 == row["lost_steps"]
    copied = [e for e in Results.open(tmp_path).events() if e.kind == "stage" and e["name"] == "checkpoint"]
    assert [e["rank"] for e in copied] == [16]  # of the first members each has its weights


@timed
def test_ranks_that_hang_are_replaced_and_not_those_that_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging_launcher.install(monkeypatch)
    signals = [hanging_launcher.HANG, signal.SIGSTOP]

    def hang(run: PointRun, ranks: Sequence[int], job: str, team: AgentTeam | None) -> None:
        assert team is not None
        (rank,) = ranks
        run.note("fault", job=job, rank=rank, what="hangs")
        os.kill(team.pids[rank], signals.pop(0))

    monkeypatch.setattr(PointRun, "kill", hang)
    rows, _ = run(tmp_path, kill="1@2.5,2@4.5")
    failed = [event for event in Results.open(tmp_path).events() if event.kind == "failed"]
    assert [event["rank"] for event in failed] == [1, 2]
    assert "its loop has stood still" in failed[0]["cause"] and "missed 3 heartbeats" in failed[1]["cause"]
    for row, event in zip(rows, failed, strict=True):
        check_went_on(row)
        named_s = event.t - event["heard"]
        print(f"\nrank {row['rank']}: named {named_s:.2f} s after its last sign of life, heartbeats every 0.075 s")
        assert named_s < 3 * 0.075 + 1.0


@pytest.mark.beside
def test_the_spare_dies_during_the_recovery(tmp_path: Path) -> None:
    rows, heard = run(tmp_path, kill="1@3.5,16@+1.2", detection=PATIENT)
    check_went_on(rows[-1])
    assert any("rank 17 replaces" in text for text in heard)


@pytest.mark.beside
def test_nobody_is_left_to_stand_in(tmp_path: Path) -> None:
    rows, heard = run(tmp_path, kill="16@1.2,17@+0,18@+0,19@+0,1@3.5", detection=PATIENT)
    assert rows[-1]["state"] == "stranded" and "cannot be replaced" in rows[-1]["reason"]
    assert rows[-1]["outage_s"] is None
    newest = max(rows[-1]["acknowledged_checkpoints"])
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == [f"A-checkpoint-{newest:08d}"]
    assert any("is kept in" in text for text in heard)


@pytest.mark.beside
def test_the_controller_dies_in_mid_recovery(tmp_path: Path) -> None:
    rows, heard = run(tmp_path, controller_dies_after_ms=400, detection=PATIENT)
    check_went_on(rows[-1])
    assert any("the controller was restarted" in text for text in heard)


@pytest.mark.beside
def test_a_whole_server_dies_and_one_recovery_brings_its_job_back(tmp_path: Path) -> None:
    (row,), heard = run(tmp_path, kill="server0@3.5", slice="2x2@1,0", detection=PATIENT)
    check_went_on(row)
    assert (row["event"], row["rank"], row["incarnation"]) == ("kill 0+1+2+3", 1, 1)
    assert any("rank 16, 17 replaces" in text for text in heard)


@pytest.mark.beside
def test_a_chip_dies_in_stragglar_before_the_late_one_comes(tmp_path: Path) -> None:
    job = SMALL.model_copy(update={"algorithm": "stragglar", "late": "2:2"})
    (row,), _ = run(tmp_path, job=job, kill="1@3.6", detection=PATIENT)
    check_went_on(row)
    assert row["replaced_by"] == 16 and row["rounds_done"] == 2  # phase 1 is over, and waits
    assert row["step_time_before_s"] == pytest.approx(row["predicted_step_time_before_s"], rel=0.1)
