"""Phases of a run, from what is seen of it from outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from experiments.faults.fault import PHASES
from experiments.faults.processes import Family
from experiments.faults.stage import Observer, Stage
from topos.kernel.run_watcher import Process


@pytest.mark.parametrize(
    ("stage", "phases"),
    [
        (Stage(), set()),
        (Stage(registered=True), {"bring-up"}),
        (Stage(registered=True, channel=True), {"bring-up", "register"}),
        (Stage(registered=True, channel=True, agents=3), {"check-in"}),
        (Stage(registered=True, channel=True, agents=3, moved=True), {"check-in", "step"}),
        (Stage(registered=True, channel=True, agents=3, rewired=True), {"check-in", "dark"}),
        (Stage(registered=True, channel=True, agents=1, moved=True, lost=True), {"check-in", "step", "splice"}),
        (Stage(registered=True, channel=True, agents=3, rows=1), set()),
        (Stage(registered=True, channel=True, rows=1, last=True), {"bring-up", "register", "tear-down"}),
    ],
)
def test_phases_of_the_first_point(stage: Stage, phases: set[str]) -> None:
    assert {phase for phase in PHASES if stage.reached(phase, 0)} == phases


def test_a_later_point_begins_when_the_rows_before_are_measured() -> None:
    assert Stage(registered=True, agents=2, rows=1).reached("check-in", 1)
    assert not Stage(registered=True, agents=2, rows=0).reached("check-in", 1)


def test_an_observer_reads_the_folders_of_a_run(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    registry, out = tmp_path / "registry", tmp_path / "results"
    observer = Observer(Family(me, "none"), registry, out, points=1)
    assert observer.stage() == Stage()
    (registry / f"{me.pid}-abc").mkdir(parents=True)
    (registry / f"{me.pid}-abc" / "job.sock").touch()
    (out / "running" / "point0").mkdir(parents=True)
    (out / "running" / "point0" / "g0.jsonl").write_text("{}\n")
    (out / "summary.json").write_text(json.dumps([{}, {}]))
    assert observer.run_folder == registry / f"{me.pid}-abc"
    assert observer.stage() == Stage(registered=True, channel=True, rows=2, moved=True)
