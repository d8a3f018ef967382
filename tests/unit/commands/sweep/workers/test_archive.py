from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from commands.sweep.workers import archive
from commands.sweep.workers.archive import digest, pack, unpack
from railyard.errors import MachineError


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


def test_an_archive_that_changed_on_the_way_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    data = tar((member("log.txt"), b"said"))
    with pytest.raises(MachineError, match="from machine b did not arrive as they were sent"):
        unpack(data + b"x", digest(data), tmp_path / "got", "b")
    assert not (tmp_path / "got").exists()


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
def test_a_hostile_archive_is_refused_before_anything_is_written(
    tmp_path: Path, hostile: tarfile.TarInfo, why: str
) -> None:
    data = tar((member("log.txt"), b"said"), (hostile, b""))
    with pytest.raises(MachineError, match=f"machine b are not unpacked: .* is {why}"):
        unpack(data, digest(data), tmp_path / "got", "b")
    assert not (tmp_path / "got").exists()


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    data = tar(*((member(f"{number}"), bytes(400)) for number in range(3)))
    with pytest.raises(MachineError, match="one file too many, or too large"):
        unpack(data, digest(data), tmp_path / "got", "b")
    monkeypatch.setattr(archive, "MOST_BYTES", 10_000)
    monkeypatch.setattr(archive, "MOST_FILES", 2)
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
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    (tmp_path / "events.jsonl").write_bytes(bytes(1001))
    with pytest.raises(MachineError, match="more than 0 MiB or 20000 files, the most that is sent"):
        pack(tmp_path)
