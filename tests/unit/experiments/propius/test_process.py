from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from railyard.process.child import Child
from railyard.process.start import ENTRY, child_environment
from railyard.timeline import read_events

ACTOR = """
from experiments.propius.run import EventFile, run_actor
from railyard.errors import AgentError
from railyard.process.parent import Parent

parent = Parent()
settings = parent.settings

async def work(orders):
    events = EventFile(settings["events"])
    orders.ready()
    await orders.go.wait()
    events.note("gone", client=3, why="told to go")
    if settings["fails"]:
        raise AgentError("the actor cannot go on")
    try:
        await orders.stop.wait()
    finally:
        events.note("finished", 5.0, 6.0, job=1)

def main():
    run_actor(parent, work)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "an_actor_of_the_tests.py").write_text(ACTOR)
    return tmp_path / "an_actor_of_the_tests.py"


def test_an_actor_goes_when_told_and_writes_each_event_at_once(module: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with Child(module.stem, {"events": str(events), "fails": False}, (), "the actor", patience_s=5) as actor:
        assert events.read_text() == ""
        actor.tell("go")
        while not events.read_text():
            assert not actor.has_ended
        assert read_events(events)[0].fields == {"client": 3, "why": "told to go", "n": 0}
    assert [(e.source, e.kind) for e in read_events(events)] == [("edge", "finished"), ("edge", "gone")]


def test_an_actor_that_fails_says_why_in_one_sentence(
    module: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"events": str(tmp_path / "events.jsonl"), "fails": True}
    with Child(module.stem, settings, (), "the actor", patience_s=5) as actor:
        actor.tell("go")
        ended = os.waitid(os.P_PID, actor.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == 6
    assert capfd.readouterr().err == "the actor cannot go on\n"


def test_an_actor_ends_with_its_parent(module: Path, tmp_path: Path) -> None:
    fields = {"events": str(tmp_path / "events.jsonl"), "fails": False}
    settings = json.dumps({"op": "settings", "fields": fields}) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", ENTRY, module.stem], input=settings, text=True, env=child_environment(), timeout=20
    )
    assert done.returncode == 0


def test_an_error_that_the_end_of_the_others_causes_is_not_reported(
    module: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Child(module.stem, {"events": str(tmp_path / "e"), "fails": True}, (), "the actor", patience_s=5) as actor:
        actor.tell("go")
        actor.tell("stop")
        ended = os.waitid(os.P_PID, actor.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == 0
    assert capfd.readouterr().err == ""
