from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from experiments.propius.data.messages import RoundAttempt, SumId, UpdateId
from experiments.propius.data.server_process import Journal
from experiments.propius.data.servers import Added, Closed, Record, Sealed, Started
from railyard.errors import MachineError

FIRST, SECOND = SumId(3, 0, 0), SumId(3, 0, 1)


def added(client: int, payload: bytes = b"", job: int = 1) -> Added:
    return Added(UpdateId(job, RoundAttempt(2, 1), client), payload)


def write(folder: Path, *records: Record) -> None:
    journal = Journal(folder)
    journal.read()
    for record in records:
        journal.write(record)
    journal.close()


def read(folder: Path) -> list[Record]:
    journal = Journal(folder)
    try:
        return journal.read()
    finally:
        journal.close()


def test_records_come_back_in_order_over_incarnations(tmp_path: Path) -> None:
    records: list[Record] = [Started(0), added(5, b"1234"), added(6, b"5678", job=2), Sealed(FIRST, 1)]
    write(tmp_path / "leaf", *records)
    more: list[Record] = [Started(1), added(7, b"abcd")]
    write(tmp_path / "leaf", *more)
    found = read(tmp_path / "leaf")
    assert found == records + more
    assert [record.payload for record in found if isinstance(record, Added)] == [b"1234", b"5678", b"abcd"]


def test_numbers_are_deleted_when_their_sum_is_closed(tmp_path: Path) -> None:
    write(tmp_path, added(5, b"1234"), added(6, b"5678"), Sealed(FIRST, 1), added(7, b"abcd"))
    assert len(list(tmp_path.glob("*.update"))) == 3
    write(tmp_path, Closed(FIRST), Sealed(SECOND, 1))
    found = read(tmp_path)
    assert [record.payload for record in found if isinstance(record, Added)] == [b"", b"", b"abcd"]
    assert [file.read_bytes() for file in tmp_path.glob("*.update")] == [b"abcd"]


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: written(fd, data[:3]))
        write(tmp_path, Started(0), added(5))
    assert read(tmp_path) == [Started(0), added(5)]

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(MachineError, match=r"journal of a leaf server .* No space left on device; make room"):
            write(tmp_path, added(6))
    assert read(tmp_path) == [Started(0), added(5)]


@pytest.mark.parametrize("cut", [b"{", b'{"added":[1,2', b'{"started":1}'])
def test_a_record_that_was_cut_short_was_never_written(tmp_path: Path, cut: bytes) -> None:
    write(tmp_path, Started(0), added(5))
    with (tmp_path / "records.log").open("ab") as file:
        file.write(cut)
    (tmp_path / "1.update").write_bytes(b"without a record")
    assert read(tmp_path) == [Started(0), added(5)]
    assert not (tmp_path / "1.update").exists()
    write(tmp_path, Started(1))
    assert read(tmp_path) == [Started(0), added(5), Started(1)]


def test_a_first_record_that_was_cut_short_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "records.log").write_bytes(b'{"star')
    assert read(tmp_path) == []
    write(tmp_path, Started(0))
    assert read(tmp_path) == [Started(0)]


def test_only_the_owner_reads_the_records(tmp_path: Path) -> None:
    Journal(tmp_path / "journal")
    assert (tmp_path / "journal" / "records.log").stat().st_mode & 0o777 == 0o600
