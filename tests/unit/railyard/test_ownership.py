from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from railyard import ownership


def test_nobody_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ownership.invoker({}) is None
    assert ownership.invoker({"SUDO_UID": "x", "SUDO_GID": "1"}) is None
    assert ownership.invoker({"SUDO_UID": "0", "SUDO_GID": "0"}) is None


def test_only_root_can_give_files_away(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"SUDO_UID": "1000", "SUDO_GID": "1001"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ownership.invoker(environ) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ownership.invoker(environ) == (1000, 1001)


def test_every_new_folder_is_handed_over_and_no_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(ownership, "invoker", lambda: (1000, 1000))
    monkeypatch.setattr(os, "fchown", lambda fd, *_: given.append(os.readlink(f"/proc/self/fd/{fd}")))
    ownership.make_folder(tmp_path / "a" / "b")
    assert given == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]


@pytest.mark.parametrize("put", ["file", "link"])
def test_what_was_put_in_the_place_of_a_folder_is_not_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(ownership, "invoker", lambda: (1000, 1000))
    monkeypatch.setattr(os, "fchown", lambda fd, *_: pytest.fail("given away"))
    with pytest.raises(NotADirectoryError):
        ownership.hand_over(tmp_path / put)


def test_a_file_that_was_there_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(ownership, "invoker", lambda: (1000, 1000))
    monkeypatch.setattr(os, "fchown", lambda fd, *_: given.append(fd))
    for _ in range(2):
        with ownership.open_text(tmp_path / "new", "a") as file:
            file.write("x")
    assert len(given) == 1 and (tmp_path / "new").read_text() == "xx"


def test_a_link_is_not_followed_unless_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="Too many levels"):
        ownership.open_binary(tmp_path / "link", "wb")
    assert not (tmp_path / "target").exists()
    with ownership.open_binary(tmp_path / "link", "wb", links=True) as file:
        file.write(b"x")
    assert (tmp_path / "target").read_bytes() == b"x"


def test_a_folder_that_was_exchanged_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to("elsewhere")
    for write in (
        lambda: ownership.open_text(tmp_path / "out" / "new", "a"),
        lambda: ownership.open_binary(tmp_path / "out" / "new", "wb"),
        lambda: ownership.make_folder(tmp_path / "out" / "a" / "b"),
    ):
        with pytest.raises(NotADirectoryError) as caught:
            write()
        assert caught.value.filename == str(tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    ownership.open_binary(tmp_path / "out" / "new", "wb", links=True).close()
    assert (tmp_path / "elsewhere" / "new").exists()


def test_a_file_is_replaced_by_a_new_one_of_the_caller_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(ownership, "invoker", lambda: (1000, 1000))
    monkeypatch.setattr(os, "fchown", lambda fd, *_: given.append(os.readlink(f"/proc/self/fd/{fd}")))
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").mkdir()
    (path := tmp_path / "real" / "new").symlink_to("elsewhere")
    (tmp_path / "real" / (draft := f".new.{os.getpid()}")).touch()
    before = os.umask(0o077)
    try:
        ownership.replace_file(tmp_path / "link" / "new", "text", links=True, permissions=0o644)
    finally:
        os.umask(before)
    assert given == [str(tmp_path / "real" / draft)]
    assert path.read_text() == "text" and path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "real") == ["new"]
    with pytest.raises(NotADirectoryError):
        ownership.replace_file(tmp_path / "link" / "new", "text")


def test_a_file_that_cannot_be_replaced_is_the_old_one_and_leaves_no_draft(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    ownership.replace_file(tmp_path / "below" / "file", b"old")
    with pytest.raises(OSError, match="No space") as caught:
        ownership.replace_file(tmp_path / "below" / "file", pieces())
    assert caught.value.filename == str(tmp_path / "below" / "file")
    assert (tmp_path / "below" / "file").read_text() == "old" and os.listdir(tmp_path / "below") == ["file"]


def test_an_error_names_the_whole_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ownership.open_text(tmp_path / "none" / "new", "a")
    assert caught.value.filename == str(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as other:
        ownership.open_text(tmp_path / "folder", "a")
    assert other.value.filename == str(tmp_path / "folder")


def test_an_error_about_a_name_in_a_folder_names_the_whole_path(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with pytest.raises(FileNotFoundError) as caught, ownership.naming(path), ownership.reached(tmp_path) as folder:
        os.unlink(".summary.json.415", dir_fd=folder)
    assert caught.value.filename == str(path)


def test_a_temporary_folder_below_a_link_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    with ownership.temporary_folder() as folder, ownership.open_binary(folder / "events.jsonl", "ab"):
        assert list((tmp_path / "real").glob("railyard-*/events.jsonl"))
    assert not list((tmp_path / "real").iterdir())


def test_a_file_is_not_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(NotADirectoryError):
        ownership.remove_file(tmp_path / "link" / "file")
    ownership.remove_file(tmp_path / "real" / "other")
    ownership.remove_file(tmp_path / "real" / "file")
    assert not (tmp_path / "real" / "file").exists()
