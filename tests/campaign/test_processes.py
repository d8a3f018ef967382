"""Processes of a run are known by their role, and found also when they descend from it no longer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.machine_state import sockets_left, sockets_of
from tests.campaign.processes import MARK, Family
from topos.kernel.run_watcher import Process


@pytest.fixture
def orphan() -> Iterator[tuple[Process, str]]:
    """A process that descends from none of this test, with the mark of a run in its environment."""
    mark = f"test-{os.getpid()}"
    sleeper = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=-3).pid)"
    started = subprocess.run(
        [sys.executable, "-c", sleeper], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, check=True
    )
    process = Process.of(int(started.stdout))
    assert process is not None
    yield process, mark
    os.kill(process.pid, 9)


def test_an_orphan_is_found_by_its_mark(orphan: tuple[Process, str]) -> None:
    process, mark = orphan
    me = Process.of(os.getpid())
    assert me is not None
    family = Family(me, mark)
    family.look()
    assert process not in family.seen
    end = time.monotonic() + 10.0
    while process not in family.seen and time.monotonic() < end:  # its program may not have started yet
        family.look_everywhere()
    assert process in family.alive() and me in family.alive("main")
    assert me not in family.alive("agent")


def test_sockets_that_outlive_their_process_are_found_by_path_and_by_abstract_name(tmp_path: Path) -> None:
    place, name = tmp_path / "left.sock", f"\0railyard-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as bound, socket.socket(socket.AF_UNIX) as abstract:
        bound.bind(str(place))
        abstract.bind(name)
        ours = (str(place), f"@{name[1:]}")
        were = {inode: name for inode, name in sockets_of([os.getpid()]).items() if name in ours}
        both = [f"socket {each}" for each in ours]
        assert sorted(sockets_left(were)) == sorted(both)
    assert sockets_left(were) == [f"socket {place}"], "its file is still there"
    place.unlink()
    assert sockets_left(were) == []
