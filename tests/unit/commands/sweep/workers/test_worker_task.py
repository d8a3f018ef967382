"""A point on a worker's machine, and the archive of its results."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands.sweep.workers import worker_task
from commands.sweep.workers.worker_process import addresses
from commands.sweep.workers.worker_task import digest, pack, unpack
from railyard.errors import MachineError


def started(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small program stand for ``railyard sweep remote-point``."""
    monkeypatch.setattr(worker_task, "railyard", lambda *_, root: [sys.executable, "-c", f"import sys\n{code}"])


def test_a_calibration_is_stopped_by_the_end_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    started("line = sys.stdin.readline(); sys.stdin.read(); sys.exit(f'stopped {line}')", monkeypatch)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(worker_task.calibrate()))
    thread.start()
    while not worker_task._running:
        time.sleep(0.001)
    thread.join(0.3)
    assert thread.is_alive()
    worker_task.stop_tasks()
    thread.join(10.0)
    assert said == ["stopped calibrate"] and not worker_task._running


def test_a_calibration_that_fails_says_why_and_one_that_does_not_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started("sys.exit('railyard: no rights')", monkeypatch)
    assert worker_task.calibrate() == "no rights"
    started("sys.stdin.readline()", monkeypatch)
    assert worker_task.calibrate() == ""


def test_a_point_whose_process_ends_at_once_has_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    started("sys.exit('railyard: no rights')", monkeypatch)
    with pytest.raises(MachineError, match="a point has ended without results: no rights"):
        worker_task.run_task({"predict": False, "much": "x" * 1_000_000}, root=False)


@pytest.mark.parametrize(("status", "printed"), [(0, ""), (3, "too busy\n")])
def test_the_line_of_a_calibration_runs_the_command(
    status: int, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = os.pipe()
    os.write(ends[1], worker_task.CALIBRATE)
    ran: list[list[str]] = []

    def run(command: list[str], log: Path) -> int:
        ran.append(command)
        log.write_text("railyard: too busy\n")
        return status

    monkeypatch.setattr(worker_task, "run_command", run)
    with open(ends[0]) as source:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=source.fileno))
        monkeypatch.setattr(worker_task, "_stop_at_end", lambda source: None)
        assert worker_task.main() == status
    os.close(ends[1])
    assert ran == [["railyard", "calibrate", "--quick"]] and capsys.readouterr().err == printed


# ---- archives --------------------------------------------------------------------------------------------------------


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as out:
        for info, content in members:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return held.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_packed_is_unpacked_as_it_was(tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    (sent / "results" / "figures").mkdir(parents=True)
    (sent / "log.txt").write_text("said\n")
    (sent / "results" / "figures" / "a.png").write_bytes(os.urandom(3000))
    os.symlink("/etc/passwd", sent / "link")
    data = pack(sent)
    assert sorted(unpack(data, digest(data), got, "b")) == ["log.txt", "results/figures/a.png"]
    assert files_in(got) == {name: found for name, found in files_in(sent).items() if name != "link"}


def test_what_was_unpacked_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, written = tar((member("a"), bytes(9)), (member("b"), bytes(5000))), []
    monkeypatch.setattr(os, "fsync", lambda fd: written.append(os.fstat(fd).st_size))
    unpack(data, digest(data), tmp_path / "got", "b")
    assert written == [9, 5000]


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (member("/etc/cron.d/x"), "no plain relative path"),
        (member("../x"), "no plain relative path"),
        (member("a/../../x"), "no plain relative path"),
        (member("a//b"), "no plain relative path"),
        (member("a\nb"), "no plain relative path"),
        (member("/".join("a" * 17)), "too long a path"),
        (member("link", tarfile.SYMTYPE, "/etc"), "no regular file"),
        (member("link", tarfile.LNKTYPE, "log.txt"), "no regular file"),
        (member("device", tarfile.CHRTYPE), "no regular file"),
        (member("pipe", tarfile.FIFOTYPE), "no regular file"),
        (member("folder", tarfile.DIRTYPE), "no regular file"),
        (member("log.txt"), "there twice"),
        (member("log.txt/x"), "there twice"),
    ],
)
def test_a_hostile_or_changed_archive_is_refused_before_anything_is_written(
    tmp_path: Path, hostile: tarfile.TarInfo, why: str
) -> None:
    data = tar((member("log.txt"), b"said"), (hostile, b""))
    with pytest.raises(MachineError, match="from machine b did not arrive as they were sent"):
        unpack(data + b"x", digest(data), tmp_path / "got", "b")
    with pytest.raises(MachineError, match=f"machine b are not unpacked: .* is {why}"):
        unpack(data, digest(data), tmp_path / "got", "b")
    assert not (tmp_path / "got").exists()


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_task, "MOST_BYTES", 1000)
    data = tar(*((member(f"{number}"), bytes(400)) for number in range(3)))
    with pytest.raises(MachineError, match="one file too many, or too large"):
        unpack(data, digest(data), tmp_path / "got", "b")
    monkeypatch.setattr(worker_task, "MOST_BYTES", 10_000)
    monkeypatch.setattr(worker_task, "MOST_FILES", 2)
    with pytest.raises(MachineError, match="one file too many, or too large"):
        unpack(data, digest(data), tmp_path / "got", "b")
    assert not (tmp_path / "got").exists()


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", gzip.compress(b"no archive"), tar((member("a"), bytes(9)))[:40]],
    ids=["empty", "text", "compressed text", "cut short"],
)
def test_what_is_no_archive_is_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(MachineError, match="from machine b are no archive"):
        unpack(data, digest(data), tmp_path / "got", "b")


def test_files_are_not_written_through_a_link_that_is_in_the_way(tmp_path: Path) -> None:
    got, secret = tmp_path / "got", tmp_path / "secret"
    got.mkdir()
    secret.mkdir()
    os.symlink(secret, got / "results")
    data = tar((member("results/summary.json"), b"[]"))
    with pytest.raises(OSError, match="Not a directory"):
        unpack(data, digest(data), got, "b")
    assert list(secret.iterdir()) == []


def test_too_large_results_are_refused_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_task, "MOST_BYTES", 1000)
    (tmp_path / "events.jsonl").write_bytes(bytes(1001))
    with pytest.raises(MachineError, match="more than 0 MiB or 20000 files, the most that is sent"):
        pack(tmp_path)


# ---- the worker's addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "here", "there"),
    [
        ("", "127.0.0.1", "127.0.0.1"),
        ("10.0.0.1 52110 10.0.0.2 22", "10.0.0.2", "10.0.0.1"),
        ("fd00::1 52110 fd00::2 22", "[fd00::2]", "[fd00::1]"),
    ],
)
def test_a_worker_listens_where_ssh_came_in_and_joins_where_it_came_from(
    connection: str, here: str, there: str
) -> None:
    assert addresses(connection) == (here, there)
