"""Sweeps that are killed and resumed give the rows of one left alone; no point is run twice; a failure is told."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.command_process import last_line, run_command
from commands.sweep import execute
from commands.sweep.execute import run_all, run_point
from commands.sweep.folder import PointCounts, SweepFolder
from commands.sweep.model import ModelProcess, Predicted, predicted
from commands.sweep.report import Merged
from commands.sweep.spec import read_spec
from experiments.registry import find

TEXT = """experiment: rails
base: {workload: smoke, modes: [on-demand]}
random: {count: 6, over: {delays_ms: [[0.0], [1.0], [50.0]], link_recovery_ms: {low: 0.1, high: 100, log: true}}}
repeats: 2
predict: true
"""


class InProcess(ModelProcess):
    """The model in this process, which is quicker to start; the name of each point is appended to ``log``."""

    def __init__(self, log: Path | None = None) -> None:
        super().__init__()
        self._log = log

    def predict(self, experiment: str, values: Mapping[str, Any]) -> Predicted:
        """The rows of a point, or its error."""
        if self._log is not None:
            with open(self._log, "a") as file:
                file.write(json.dumps(values) + "\n")
        return predicted(experiment, values)


def swept(tmp_path: Path, text: str = TEXT, name: str = "folder") -> SweepFolder:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return SweepFolder.create(tmp_path / name, read_spec(path))


def forked(sweep: SweepFolder, model: ModelProcess) -> int:
    """A child process that runs the pending points; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            run_all(SweepFolder.open(sweep.path), model=model)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid


def rows_of(sweep: SweepFolder) -> tuple[bytes, bytes]:
    Merged(sweep, find("rails")).write(figures=False)
    return (sweep.path / "rows.json").read_bytes(), (sweep.path / "table.csv").read_bytes()


def test_a_sweep_killed_at_ten_moments_gives_the_rows_of_one_left_alone(tmp_path: Path) -> None:
    alone, killed = swept(tmp_path, name="alone"), swept(tmp_path, name="killed")
    began = time.monotonic()
    run_all(alone, model=InProcess())
    took_s = time.monotonic() - began
    moments = random.Random(7)
    for _ in range(10):
        pid = forked(killed, InProcess())
        time.sleep(moments.uniform(0.0, took_s / 6))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    before = killed.states()
    run_all(SweepFolder.open(killed.path), model=InProcess())
    assert before.claimed == before.failed == 0
    assert killed.states() == alone.states() == PointCounts(0, 0, 12, 0, 0)
    assert rows_of(killed) == rows_of(alone)


def test_two_processes_on_one_folder_run_no_point_twice(tmp_path: Path) -> None:
    sweep = swept(tmp_path, TEXT.replace("count: 6", "count: 20"))
    log = tmp_path / "log"
    children = [forked(sweep, InProcess(log)) for _ in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert sweep.states().done == len(sweep.points) == 40
    assert sorted(log.read_text().splitlines()) == sorted(json.dumps(point.values) for point in sweep.points)


def test_a_point_that_the_model_refuses_fails_and_the_others_are_done(tmp_path: Path) -> None:
    sweep = swept(tmp_path, "experiment: rails\nbase: {workload: smoke}\ngrid: {steps: [1, 2]}\npredict: true\n")
    bad, good = sweep.points
    bad = replace(bad, values={**bad.values, "trace": {"size": 4}})
    said = [run_point(sweep, point, InProcess()) for point in (bad, good)]
    assert [outcome.status for outcome in said] == [2, 0]
    assert "applies only to files of other tools" in said[0].said
    assert [ended.said for _, ended in sweep.failed()] == [said[0].said]
    assert said[0].said in (sweep.place(bad) / "attempt-1" / "log.txt").read_text()


def test_a_model_process_that_is_killed_fails_one_point_alone(tmp_path: Path) -> None:
    values = {"workload": "smoke", "modes": ["on-demand"], "delays_ms": [1.0]}
    with ModelProcess() as model:
        assert model.predict("rails", values).status == 0
        assert model._child is not None
        os.kill(model._child.pid, signal.SIGKILL)
        killed = model.predict("rails", values)
        assert killed.status == 3 and "was killed" in killed.said
        assert model.predict("rails", values) == predicted("rails", values)


@pytest.mark.parametrize(
    ("statuses", "counts", "attempts"),
    [
        ((8, 0), (0, 0, 1, 0, 0), 2),
        ((8, 8, 8), (0, 0, 1, 0, 1), 3),
        ((8, 9), (0, 0, 0, 1, 0), 2),
    ],
)
def test_what_becomes_of_points_by_their_exit_status(
    statuses: tuple[int, ...], counts: tuple[int, ...], attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(statuses)

    def run(command: list[str], log: Path) -> int:
        out = Path(command[command.index("--out") + 1])
        out.mkdir()
        (out / "summary.json").write_text("[]")
        log.write_text("a line\nrailyard: points are missing\n\n")
        return left.pop(0)

    monkeypatch.setattr(execute, "run_command", run)
    sweep = swept(tmp_path, "experiment: rails\nbase: {workload: smoke}\n")
    point = sweep.points[0]
    assert sweep.claim(point)
    outcome = run_point(sweep, point)
    assert (outcome.status, outcome.attempts, left) == (statuses[-1], attempts, [])
    assert sweep.states() == PointCounts(*counts)
    assert [ended.status for ended in sweep.attempts(point)] == list(statuses)
    assert [ended.said for _, ended in sweep.failed()] == ["points are missing"] * counts[3]


def test_the_status_and_the_output_of_a_command(tmp_path: Path) -> None:
    assert run_command(["railyard", "predict", "nosuch"], tmp_path / "log") == 2
    assert last_line(tmp_path / "log").startswith("experiment: 'nosuch' is not an experiment")
    assert last_line(tmp_path / "none") == "it left no log"
