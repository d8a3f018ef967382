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

from tests.campaign.fault import LIVES
from tests.campaign.machine_state import sockets_left, sockets_of
from tests.campaign.processes import MARK, Family, path_of, role_of
from topos.kernel.run_watcher import Process


@pytest.mark.parametrize(
    ("comm", "arguments", "role"),
    [
        ("ovs-vswitchd", ["ovs-vswitchd", "unix:db.sock"], "ovs-vswitchd"),
        ("setpriv", ["setpriv", "--pdeathsig", "KILL", "ovs-vswitchd"], ""),
        ("python3", ["/bin/python3", "-P", "-m", "controllers.main", "--plan"], "controller"),
        ("python3", ["/bin/python3", "-I", "/x/topos/kernel/run_watcher.py"], "watcher"),
        ("python3", ["python3", "-m", "workloads.agent.launcher_server", "5"], "agent launcher"),
        ("railyard-g3", ["python3", "-m", "workloads.agent.launcher_server", "5"], "agent"),
        ("bash", ["bash", "controllers.main.txt"], ""),
    ],
)
def test_roles(comm: str, arguments: list[str], role: str) -> None:
    assert role_of(comm, arguments) == role
    assert role == "" or role in LIVES


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


def test_an_agent_is_one_as_soon_as_it_has_its_name_though_it_was_seen_before() -> None:
    code = "import ctypes; input(); ctypes.CDLL(None).prctl(15, b'railyard-g3'); print(1, flush=True); input()"
    command = [sys.executable, "-c", code, "workloads.agent.launcher_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        process, me = Process.of(agent.pid), Process.of(os.getpid())
        assert process is not None and me is not None
        family = Family(me, "no mark")
        end = time.monotonic() + 10.0
        while not family.alive("agent launcher") and time.monotonic() < end:  # its program may not have started yet
            family.look()
        assert family.alive("agent launcher") == [process]
        agent.stdin.write(b"\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == b"1\n"
        family.look()
        assert family.alive("agent") == [process] and not family.alive("agent launcher")
        agent.kill()


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


def test_a_process_that_has_ended_has_no_path_and_one_without_the_variable_an_empty_one() -> None:
    given = {"PATH": "/usr/bin:/bin"}
    for environment, path in ((given, Path()), ({**given, "PYTHONPATH": "/a:/b"}, Path("/a"))):
        with subprocess.Popen(["sleep", "60"], env=environment) as sleeper:
            end = time.monotonic() + 10.0
            while path_of(sleeper.pid) != path and time.monotonic() < end:  # its program may not have started yet
                time.sleep(0.001)
            assert path_of(sleeper.pid) == path
            sleeper.kill()
        assert path_of(sleeper.pid) is None
