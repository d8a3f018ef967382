from __future__ import annotations

from pathlib import Path

import pytest

from railyard.errors import MachineError
from railyard.timeline import read_events
from workloads.agent.event_log import EventLog


def test_events_are_due_after_a_second_and_rare_ones_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr("workloads.agent.event_log.time.monotonic", lambda: now)
    log = EventLog(str(tmp_path / "g3.jsonl"), 3)
    assert log.due == float("inf")
    log.note("compute", 9.0, 10.0, step=0)
    now = 10.5
    log.note("compute", 10.0, 10.5, step=0)
    assert log.due == 11.0, "the first one counts"
    log.note("checkpoint", 10.0, 10.5, step=0)
    assert log.due <= now
    assert not (tmp_path / "g3.jsonl").exists()
    log.flush()
    assert log.due == float("inf")
    found = read_events(tmp_path / "g3.jsonl")
    assert [event.kind for event in found] == ["compute", "compute", "checkpoint"] and found[0]["rank"] == 3
    log.close()


def test_a_full_disk_is_one_sentence_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "g0.jsonl"
    log = EventLog(str(file), 0)
    log.note("step", 1.0, step=0)
    log.flush()
    log._fd, own = 1 << 20, log._fd
    log.note("step", 2.0, step=1)
    with pytest.raises(MachineError, match=f"{file} cannot be used: Bad file descriptor"):
        log.flush()
    log._fd = own
    log.close()
