"""Files of a machine's part that the head of a run reads."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from experiments.spread import part as parts
from experiments.spread.part import FabricPart


def test_a_file_on_a_disk_is_read_in_pieces_and_a_link_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CHUNK_BYTES", 4)
    (tmp_path / "disks/g3").mkdir(parents=True)
    (tmp_path / "disks/g3/checkpoint").write_bytes(b"state.")
    (tmp_path / "disks/g3/link").symlink_to("checkpoint")
    there = FabricPart(tmp_path)
    read = [b64decode(there.read_disk("/head/point0/disks/g3", "checkpoint", offset)) for offset in (0, 4, 6)]
    assert read == [b"stat", b"e.", b""]
    with pytest.raises(OSError, match="link"):
        there.read_disk("/head/point0/disks/g3", "link", 0)
    there.down()
    assert not (tmp_path / "disks").exists(), "what a rank had is gone with its fabric"


def test_events_are_given_once_by_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CHUNK_BYTES", 2)
    (tmp_path / "g0.jsonl").write_text("first\nsecond\n")
    there = FabricPart(tmp_path)
    assert [there.events() for _ in range(3)] == [("g0.jsonl", "first\n"), ("g0.jsonl", "second\n"), None]
    assert there.events() is None and not list(tmp_path.iterdir())
