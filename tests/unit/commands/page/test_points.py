from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.page.points import LiveFiles, PointBlocks, Tail, logs_below, open_below

LINES = [f'{{"t":{n}.5,"source":"run","kind":"point","point":{n},"end":{n}.9}}\n'.encode() for n in range(3)]


def tail_of(path: Path) -> Tail:
    return Tail(os.open(path, os.O_RDONLY))


def test_every_cut_of_a_file_gives_its_whole_lines_once(tmp_path: Path) -> None:
    data = b'{"a":1}\n\n\xff\xfe{"b":2}\n' + "{'ü'}\n".encode()
    path = tmp_path / "events"
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        tail = tail_of(path)
        found = tail.lines()
        assert b"".join(found) == data[: data.rfind(b"\n", 0, cut) + 1]
        with path.open("ab") as out:
            out.write(data[cut:])
        found += tail.lines()
        assert found == [b'{"a":1}\n', b"\n", b'\xff\xfe{"b":2}\n', "{'ü'}\n".encode()]
        assert tail.lines() == [] and tail.ended
        tail.close()


def test_byte_by_byte(tmp_path: Path) -> None:
    path, found = tmp_path / "events", []
    path.touch()
    tail = tail_of(path)
    with path.open("ab", buffering=0) as out:
        for byte in b"".join(LINES):
            out.write(bytes([byte]))
            found += tail.lines()
    assert found == LINES
    tail.close()


def test_a_last_line_without_its_end_counts_when_nobody_writes_any_more(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo")
    tail = tail_of(path)
    assert tail.lines() == [b"one\n"] and tail.lines() == [] and tail.lines(last=True) == [b"two"]
    tail.close()


def test_a_file_that_shrinks_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"one\ntwo\n")
    tail = tail_of(path)
    assert len(tail.lines()) == 2
    os.truncate(path, 4)
    assert tail.lines() == []
    with path.open("ab") as out:
        out.write(b"three\n")
    assert tail.lines() == [b"three\n"]
    tail.close()


def test_files_that_come_later_are_read(tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    path, root = tmp_path / "running" / "a.jsonl", os.open(tmp_path, os.O_RDONLY)
    files, name = LiveFiles(root), "running/a.jsonl"
    assert list(files.lines([name])) == []
    path.write_bytes(b"one\n")
    assert list(files.lines([name])) == [b"one\n"] and list(files.lines([name])) == []
    files.close()
    os.close(root)


def test_links_are_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "results", tmp_path / "secret"
    (inside / "running").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.jsonl").write_text("secret\n")
    (inside / "link.jsonl").symlink_to(outside / "x.jsonl")
    (inside / "running" / "point0").symlink_to(outside)
    (inside / "running" / "real.jsonl").write_text("x\n")
    root = os.open(inside, os.O_RDONLY)
    for name in ("link.jsonl", "running/point0/x.jsonl", "no"):
        assert open_below(root, name) is None, name
    assert logs_below(root, "running") == ["running/real.jsonl"] and logs_below(root, "no") == []
    os.close(root)


def scanned(path: Path, blocks: PointBlocks) -> PointBlocks:
    fd = os.open(path, os.O_RDONLY)
    while blocks.scan(fd, 1 << 30):
        pass
    os.close(fd)
    return blocks


@given(st.integers(0, 400))
def test_every_cut_of_a_file_gives_the_points_before_it(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    other = b'{"t":1.0,"source":"agent","kind":"step"}\n'
    data = b"".join(line + other for line in LINES)
    path, cut = tmp_path_factory.mktemp("cut") / "events.jsonl", min(cut, len(data))
    path.write_bytes(data[:cut])
    blocks = scanned(path, PointBlocks("point"))
    assert list(blocks.found) == [n for n in range(3) if data.find(LINES[n]) + len(LINES[n]) <= cut]
    with path.open("ab") as out:
        out.write(data[cut:])
    scanned(path, blocks)
    assert [data[b.start : b.stop] for b in blocks.found.values()] == [line + other for line in LINES]
    assert [b.head["point"] for b in blocks.found.values()] == [0, 1, 2]


def test_points_that_are_no_longer_there_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(LINES))
    blocks = scanned(path, PointBlocks("point"))
    os.truncate(path, len(LINES[0]) + 5)
    assert list(scanned(path, blocks).found) == [0]
    path.write_bytes(LINES[0] + LINES[2])
    assert list(scanned(path, blocks).found) == [0, 2]
