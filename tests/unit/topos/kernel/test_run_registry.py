from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from railyard.process.start import MARK, start_python
from topos.kernel.run_registry import RegisteredRun, clear_dead_runs
from topos.kernel.run_watcher import Process, ProcessEntry, family, recorded, started_by


@contextmanager
def sleeper(**options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps; it is killed at the end."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def abandon(run: RegisteredRun) -> None:
    """Make the run look as if its owner had been killed."""
    (run.path / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": 1}))


def test_run_is_private_and_gone_after_close(tmp_path: Path) -> None:
    with RegisteredRun.open(tmp_path) as run:
        assert run.path.stat().st_mode & 0o777 == 0o700
        assert run.owner() == Process.of(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_dead_run_is_cleared_with_its_children(tmp_path: Path) -> None:
    with sleeper() as child, RegisteredRun.open(tmp_path) as run:
        run.add_child(child.pid)
        abandon(run)
        with RegisteredRun.open(tmp_path) as other:
            assert [p.name for p in tmp_path.iterdir()] == [other.id]
            assert child.wait(5) != 0


def test_process_that_took_over_the_id_of_a_child_is_left_alone(tmp_path: Path) -> None:
    with sleeper() as stranger, RegisteredRun.open(tmp_path) as run:
        (run.path / "children").write_text(f"{stranger.pid} 1\n")
        abandon(run)
        assert clear_dead_runs(tmp_path) == [run.id]
        assert stranger.poll() is None


def test_living_and_unregistered_runs_are_left_alone(tmp_path: Path) -> None:
    with RegisteredRun.open(tmp_path) as one, RegisteredRun.open(tmp_path) as two:
        (tmp_path / ".new-x").mkdir()
        assert one.id != two.id
        assert clear_dead_runs(tmp_path) == []
        assert one.path.is_dir() and two.path.is_dir() and (tmp_path / ".new-x").is_dir()


def test_an_old_socket_is_removed_unless_somebody_listens(tmp_path: Path) -> None:
    for name in ("dead", "new", "alive"):
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(tmp_path / name))
            if name == "alive":
                bound.listen()
                os.utime(tmp_path / name, (0, 0))
                assert clear_dead_runs(tmp_path) == []
        os.utime(tmp_path / name, None if name == "new" else (0, 0))
        assert (tmp_path / name).exists()
    assert clear_dead_runs(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_zombie_does_not_live(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    me = Process.of(child.pid)
    while Process.of(child.pid) is not None:
        pass
    assert me is not None and not me.alive
    child.wait()


def test_a_cut_or_senseless_record_never_makes_a_later_run_fail(tmp_path: Path) -> None:
    with sleeper() as child, RegisteredRun.open(tmp_path) as run:
        run.add_child(child.pid)
        with (run.path / "children").open("ab") as file:
            file.write(b"\n12\nx y z\n\xff\xfe 3\n1 ")
        assert recorded(str(run.path)) == [Process.of(child.pid)]
        abandon(run)
        RegisteredRun.open(tmp_path).close()
        assert child.wait(5) != 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("record", [b"", b'{"pid": 1', b"[]", b'{"pid": "x"}', b"\xff", None])
def test_a_run_whose_owner_cannot_be_read_goes_with_the_process_of_its_name(
    tmp_path: Path, record: bytes | None
) -> None:
    for name in (f"{os.getpid()}-living", "4194304-dead", "other"):
        (tmp_path / name).mkdir()
        if record is not None:
            (tmp_path / name / "owner.json").write_bytes(record)
    (tmp_path / "a-file").touch()
    assert clear_dead_runs(tmp_path) == ["4194304-dead"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{os.getpid()}-living", "other", "a-file"])


def test_a_family_are_descendants_and_sessions_of_what_is_known() -> None:
    def entry(pid: int, parent: int, session: int) -> ProcessEntry:
        return ProcessEntry(Process(pid, 100 + pid), parent, session)

    table = [entry(1, 0, 1), entry(5, 1, 5), entry(6, 5, 5), entry(7, 1, 5), entry(8, 7, 8), entry(9, 1, 9)]
    assert {process.pid for process in family(table, [Process(5, 105)], [])} == {5, 6, 7, 8}
    assert {process.pid for process in family(table, [Process(5, 1)], [])} == set(), "a later process with that id"
    assert {process.pid for process in family(table, [], [Process(7, 107)])} == {7, 8}


def test_the_mark_of_a_run_is_on_no_command_line(tmp_path: Path) -> None:
    with RegisteredRun.open(tmp_path) as run:
        assert run._watcher is not None
        command = " ".join(map(str, run._watcher.args))  # type: ignore[arg-type]
    assert run.id in command and MARK not in command, "every user can read it"


def test_what_carries_the_mark_of_a_run_ends_with_it_and_nothing_else_does(tmp_path: Path) -> None:
    with (
        RegisteredRun.open(tmp_path) as run,
        RegisteredRun.open(tmp_path) as other,
        sleeper(env=run.environment, start_new_session=True) as mine,
        sleeper(env=other.environment, start_new_session=True) as others,
    ):
        run.close()
        assert mine.wait(5) == -signal.SIGTERM and others.poll() is None


def test_neither_this_process_nor_its_parents_are_ever_taken_for_children() -> None:
    parent = Process.of(os.getppid())
    assert parent is not None and os.getpid() not in {process.pid for process in started_by([parent], "")}


WAITS = "os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"  # in one piece: four processes write here
OWNER = f"""
import os, subprocess, sys
from pathlib import Path
from railyard.process.start import MARK, start_python
from topos.kernel.run_registry import RegisteredRun

def python(code, *more, **options):
    return subprocess.Popen([*more, sys.executable, "-c", "import os, signal, time; " + code + {WAITS!r}], **options)

run = RegisteredRun.open(Path(sys.argv[1]))
run.add_child(python("signal.signal(signal.SIGTERM, signal.SIG_IGN); ").pid)
run.add_child(python("", "sh", "-c", 'setsid "$@"; true', "sh").pid)
python("os.fork() and os._exit(0); os.setsid(); ", env={{**os.environ, **run.environment}})
start_python("a_stopped_child")
sys.stdin.read()
"""
STOPPED = "import os, signal; os.write(1, b'%d\\n' % os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)"


def test_the_watcher_ends_whatever_a_killed_run_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores SIGTERM, the child of a recorded shell, a daemon on a host, and a child that was stopped."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "an_owner.py").write_text(OWNER)
    (tmp_path / "a_stopped_child.py").write_text(STOPPED)
    registry = tmp_path / "runs"
    with (
        sleeper() as stranger,
        start_python("an_owner", str(registry), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner,
    ):
        assert owner.stdout is not None
        started = [Process.of(int(owner.stdout.readline())) for _ in range(4)]
        assert None not in started and len(list(registry.iterdir())) == 1
        owner.kill()
        owner.wait()
        began = time.monotonic()
        while list(registry.iterdir()):
            assert time.monotonic() - began < 5, "everything is gone within 5 s"
            time.sleep(0.01)
        assert [process for process in started if process is not None and process.alive] == []
        assert stranger.poll() is None
