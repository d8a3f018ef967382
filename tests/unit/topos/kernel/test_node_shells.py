"""The shell of a host starts with its first command, or the command says why it cannot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from railyard.errors import MachineError
from railyard.process.start import ProgramResult
from topos.kernel import namespaces, nodes
from topos.kernel.nodes import RailHost

BASH = ["env", "PS1=" + chr(127), "bash", "--norc", "--noediting", "-is"]


class Host(RailHost):
    """A host whose shell is any command, in the namespaces of the test."""

    command: list[str] = BASH

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, start_new_session=True, **params)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(nodes, "_START_S", 0.5)
    monkeypatch.setattr(nodes, "_SHELL_S", 0.2)
    monkeypatch.setattr(namespaces, "check_root_directory", lambda: None)
    made = Host("g0")
    made.ready(-1)
    yield made
    made.terminate()


def test_the_first_command_starts_the_shell_beside_more_descriptors_than_select_takes_too(
    host: Host, monkeypatch: pytest.MonkeyPatch, many_open_files: None
) -> None:
    monkeypatch.setattr(nodes, "_START_S", 10.0)
    assert not host.started
    assert host.cmd("echo one; echo two").split() == ["one", "two"]
    assert host.started


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo 'unshare: cannot change root'; exit 1", r"g0 ended with status 1 \(unshare: cannot change root\)"),
        ("exit 3", r"g0 ended with status 3 \(it said nothing\)"),
        ("exec sleep 60", "g0 showed no prompt within 0.5 s"),
        ("while :; do echo hm; done", r"g0 showed no prompt within 0.5 s \(h?m?\)"),
    ],
)
def test_a_shell_that_does_not_start_is_one_sentence_each_time(host: Host, command: str, why: str) -> None:
    host.command = ["sh", "-c", command]
    for _ in range(2):
        with pytest.raises(MachineError, match=why):
            host.cmd("true")
        assert not host.started
    host.command = BASH


@pytest.mark.parametrize(("seen", "refused"), [("1:2\n", True), ("", False), (None, False)])
def test_a_chroot_is_told_by_what_mnexec_sees(monkeypatch: pytest.MonkeyPatch, seen: str | None, refused: bool) -> None:
    """``seen``: device and inode of the root directory beyond ``mnexec -a`` (None: ours, empty: it said nothing)."""
    own = os.stat("/")
    out = f"{own.st_dev}:{own.st_ino}\n" if seen is None else seen
    monkeypatch.setattr(namespaces, "run_program", lambda *_: ProgramResult(0, out, ""))
    namespaces.check_root_directory.cache_clear()
    try:
        if refused:
            with pytest.raises(MachineError, match=r"chroot.*pivot_root"):
                namespaces.check_root_directory()
        else:
            namespaces.check_root_directory()
    finally:
        namespaces.check_root_directory.cache_clear()
