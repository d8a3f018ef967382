from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from agents.loopback import loopback_plan, run_agent, use_loopback

from railyard.errors import MachineError
from railyard.scale import Scale
from railyard.timeline import read_events
from workloads.agent.agent import EventLog
from workloads.agent.agent_loop import LauncherChannel
from workloads.agent.config import AgentConfig
from workloads.program import Compute, Program


def test_events_are_due_after_a_second_and_rare_ones_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr("workloads.agent.agent.time.monotonic", lambda: now)
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


@pytest.mark.parametrize(("rank", "pause"), [(0, 0.01), (1, 0.012), (31, 0.072), (32, 0.01)])
def test_the_events_of_a_step_are_written_after_its_end_by_one_rank_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, pause: float
) -> None:
    now = 10.0
    monkeypatch.setattr("workloads.agent.agent.time.monotonic", lambda: now)
    file = tmp_path / "events.jsonl"
    log = EventLog(str(file), rank)
    assert log.empty
    log.note("step", 9.0, 10.0, step=0)
    log.end_step()
    assert not log.empty and not file.exists() and log.due == pytest.approx(10.0 + pause)
    now = 10.001
    due = log.due
    log.end_step()
    assert log.due == due, "the first step counts"
    log.flush()
    assert log.empty and len(read_events(file)) == 1
    log.close()


def test_the_end_of_a_step_delays_no_event_that_is_due_earlier(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"), 0)
    log.note("checkpoint", 1.0)
    log.end_step()
    assert log.due == 0.0
    log.close()


def test_an_agent_is_done_when_its_log_is_written_some_time_after_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_loopback(monkeypatch)
    ours, theirs = socket.socketpair()
    written, told = list[float](), list[tuple[str, float, int]]()
    file = tmp_path / "events.jsonl"
    flush = EventLog.flush

    def flush_and_note(log: EventLog) -> None:
        if not log.empty:
            written.append(time.monotonic())
        flush(log)

    def report(channel: LauncherChannel, rank: int, **fields: Any) -> None:
        told.append((next(iter(fields)), time.monotonic(), file.stat().st_size if file.exists() else 0))
        if "ready" in fields:
            ours.sendall(json.dumps({"go": time.monotonic()}).encode() + b"\n")
        if "done" in fields:
            ours.sendall(b'{"stop":true}\n')

    monkeypatch.setattr(EventLog, "flush", flush_and_note)
    monkeypatch.setattr(LauncherChannel, "report", report)
    made = Program("p", ((Compute(0, "work", 0.001),), ()), {})
    config = AgentConfig(0, "job", "native", made, Scale(1.0), loopback_plan(2), str(file), None, steps=1, seed=1)
    with ours, theirs:
        run_agent(config, theirs)
    times = {what: (at, size) for what, at, size in told}
    (at, size), (end, all_of_it) = times["step"], times["done"]
    assert size == 0 and at + 0.01 <= min(written) and max(written) <= end
    assert all_of_it == file.stat().st_size and {"step", "sockets"} <= {event.kind for event in read_events(file)}
