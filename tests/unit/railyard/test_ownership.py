from __future__ import annotations

import os
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
    given: list[Path] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(ownership, "invoker", lambda: (1000, 1000))
    monkeypatch.setattr(os, "chown", lambda path, *_, follow_symlinks: given.append(path))
    ownership.make_folder(tmp_path / "a" / "b")
    assert given == [tmp_path / "a", tmp_path / "a" / "b"]
