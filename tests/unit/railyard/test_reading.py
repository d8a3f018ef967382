from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from railyard.reading import files_below, lines_after, read_bytes


def test_a_named_pipe_without_a_writer_is_empty_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_bytes(tmp_path / "pipe", 100, "a trace") == b""


@pytest.mark.parametrize("pieces", [[b"all of it"], [b"all ", b"of it"]])
def test_a_pipe_is_read_until_its_writer_ends(pieces: list[bytes]) -> None:
    ours, theirs = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(theirs, piece)
        os.close(theirs)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_bytes(Path(f"/proc/self/fd/{ours}"), 100, "a trace") == b"all of it"
    writer.join()
    os.close(ours)


def test_files_are_found_while_their_folders_are_removed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "disks").mkdir(parents=True)
        (tmp_path / name / "disks" / "file").touch()
    (tmp_path / "first").touch()
    found = files_below(tmp_path)
    assert next(found) == tmp_path / "first"
    shutil.rmtree(tmp_path / "a")
    assert list(found) == [tmp_path / "b" / "disks" / "file"]
    assert not list(files_below(tmp_path / "missing"))


def test_a_file_that_grows_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert lines_after(path, 0) == ([], 0), "it is not there yet"
    path.write_bytes(b"one\n\xfftwo\nthr")
    assert lines_after(path, 0) == (["one\n", "\N{REPLACEMENT CHARACTER}two\n"], 9)
    assert lines_after(path, 9) == ([], 9), "the last line has no end yet"
    path.write_bytes(b"one\n\xfftwo\nthree\n")
    assert lines_after(path, 9) == (["three\n"], 15)
