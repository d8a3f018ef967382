from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from railyard.reading import Tail, files_below, read_bytes


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


LINES = [f'{{"t":{n}.5,"source":"run","kind":"point","point":{n},"end":{n}.9}}\n'.encode() for n in range(3)]


def test_every_cut_of_a_file_gives_its_whole_lines_once(tmp_path: Path) -> None:
    data = b'{"a":1}\n\n\xff\xfe{"b":2}\n' + "{'ü'}\n".encode()
    path = tmp_path / "events"
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        tail = Tail.of(path)
        found = tail.lines()
        assert b"".join(found) == data[: data.rfind(b"\n", 0, cut) + 1]
        with path.open("ab") as out:
            out.write(data[cut:])
        found += tail.lines()
        assert found == [b'{"a":1}\n', b"\n", b'\xff\xfe{"b":2}\n', "{'ü'}\n".encode()]
        assert tail.lines() == []
        tail.close()


def test_byte_by_byte(tmp_path: Path) -> None:
    path, found = tmp_path / "events", []
    path.touch()
    tail = Tail.of(path)
    with path.open("ab", buffering=0) as out:
        for byte in b"".join(LINES):
            out.write(bytes([byte]))
            found += tail.lines()
    assert found == LINES
    tail.close()


def test_a_last_line_without_its_end_counts_when_nobody_writes_any_more(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo")
    tail = Tail.of(path)
    assert tail.lines() == [b"one\n"] and tail.lines() == [] and tail.lines(last=True) == [b"two"]
    tail.close()


def test_a_file_that_shrinks_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail.of(path)
    assert len(tail.lines()) == 2
    os.truncate(path, 4)
    assert tail.lines() == []
    with path.open("ab") as out:
        out.write(b"three\n")
    assert tail.lines() == [b"three\n"]
    tail.close()
