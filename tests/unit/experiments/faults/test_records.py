"""Acknowledged records: rows and events that were on disk before a fault are there after it."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.faults.records import Records, checkpoints, reading


def line(rank: int, t: float, end: float | None = None) -> str:
    event = {"t": t, "source": "agent", "kind": "step", "rank": rank} | ({"end": end} if end else {})
    return json.dumps(event) + "\n"


def folder(out: Path) -> Path:
    (out / "running" / "point1").mkdir(parents=True)
    (out / "events.jsonl").write_text(line(0, 1.0))
    (out / "running" / "point1" / "g0.jsonl").write_text(line(0, 2.0, 2.5) + '{"cut')
    (out / "running" / "controller.jsonl").write_text('{"t":0,"source":"controller","kind":"ack"}\n')
    (out / "summary.json").write_text('[{"n": 1}]')
    return out


def test_events_that_are_merged_are_not_lost_and_deleted_ones_are(tmp_path: Path) -> None:
    out = folder(tmp_path)
    before = Records.of(out)
    assert before.rows == [{"n": 1}] and len(before.lines) == 2
    (out / "running" / "point1" / "g0.jsonl").unlink()
    assert before.lost_in(Records.of(out)) == 1
    (out / "events.jsonl").write_text(line(0, 1.0) + line(0, 2.0, 2.5))
    assert before.lost_in(Records.of(out)) == 0
    (out / "summary.json").write_text("[]")
    assert before.lost_in(Records.of(out)) == 1


def test_agents_whose_newest_events_are_missing_are_counted(tmp_path: Path) -> None:
    found = Records.of(folder(tmp_path))
    assert found.newest() == {0: 2.5}
    assert found.late(at=3.0) == 0
    assert found.late(at=5.0) == 1


def test_checkpoints_are_the_complete_ones(tmp_path: Path) -> None:
    disk = tmp_path / "running" / "jobs" / "disks" / "g0"
    disk.mkdir(parents=True)
    (disk / "checkpoint-00000001").touch()
    (disk / ".checkpoint-00000002.new").touch()
    assert checkpoints(tmp_path) == {"running/jobs/disks/g0/checkpoint-00000001"}


def test_a_folder_without_a_manifest_has_no_results(tmp_path: Path) -> None:
    assert reading(folder(tmp_path)) == {}
    (tmp_path / "manifest.json").write_text("{")
    assert reading(tmp_path)["unreadable"].startswith("ConfigError")
