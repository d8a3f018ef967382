from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from topos.kernel.run_registry import Process, RegisteredRun, clear_dead_runs


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def abandon(run: RegisteredRun) -> None:
    """Make the run look as if its owner had been killed."""
    (run.path / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": 1}))


def test_run_is_private_and_gone_after_close(tmp_path: Path) -> None:
    with RegisteredRun.open(tmp_path) as run:
        assert run.path.stat().st_mode & 0o777 == 0o700
        assert run.owner() == Process.of(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_dead_run_is_cleared_with_its_children(tmp_path: Path) -> None:
    run = RegisteredRun.open(tmp_path)
    child = sleeper()
    try:
        run.add_child(child.pid)
        abandon(run)
        with RegisteredRun.open(tmp_path) as other:
            assert [p.name for p in tmp_path.iterdir()] == [other.id]
            assert child.wait(5) != 0
    finally:
        child.kill()
        child.wait()


def test_process_that_took_over_the_id_of_a_child_is_left_alone(tmp_path: Path) -> None:
    run = RegisteredRun.open(tmp_path)
    stranger = sleeper()
    try:
        (run.path / "children").write_text(f"{stranger.pid} 1\n")
        abandon(run)
        assert clear_dead_runs(tmp_path) == [run.id]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_living_and_unregistered_runs_are_left_alone(tmp_path: Path) -> None:
    with RegisteredRun.open(tmp_path) as one, RegisteredRun.open(tmp_path) as two:
        (tmp_path / ".new-x").mkdir()
        assert one.id != two.id
        assert clear_dead_runs(tmp_path) == []
        assert one.path.is_dir() and two.path.is_dir() and (tmp_path / ".new-x").is_dir()


def test_zombie_does_not_live(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    me = Process.of(child.pid)
    while Process.of(child.pid) is not None:
        pass
    assert me is not None and not me.alive
    child.wait()
