"""The machines that the tests of this folder run on are what they claim to be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from checkout import ROOT
from cluster.machine_process import BED
from cluster.machines import SSH, Machines
from cluster.underlay import Underlay

pytestmark = [pytest.mark.root, pytest.mark.beside]

LOOP = "while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Machines(3, shared=[tmp_path_factory.getbasetemp()]) as made:
        yield made


def soon(found: Callable[[], bool], longest_s: float = 1.0) -> bool:
    """Whether something holds within ``longest_s``."""
    end = time.monotonic() + longest_s
    while not found() and time.monotonic() < end:
        time.sleep(0.01)
    return found()


def gone(pids: list[int]) -> bool:
    """Whether all have ended, be it that nobody has waited for them yet."""
    for pid in pids:
        with suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
                return False
    return True


def left_behind() -> list[set[str]]:
    """The named namespaces, interfaces and mounts of this machine, which others may not share while a test runs."""
    names = {entry.name for entry in Path("/run/netns").glob("*")}
    mounts = {line.split(" ", 1)[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return [names, set(os.listdir("/sys/class/net")), mounts]


@pytest.mark.thorough
def test_nobody_else_is_let_in(machines: Machines) -> None:
    known = ["-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={BED}/known_hosts"]
    refused = machines.head.run(["ssh", *known, "-o", "IdentityFile=/dev/null", machines["a"].ip, "true"])
    assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr, refused.stderr


def test_a_machine_that_dies_is_gone_at_once_and_leaves_nothing() -> None:
    before = left_behind()
    with Machines(2) as machines:
        b = machines["b"]
        pids = [b.pid, b.pid_of(b.start(["setsid", "sh", "-c", LOOP]))]
        session = machines.head.start([*SSH, "b", f"setsid sh -c '{LOOP}' & {LOOP}"])
        assert soon(lambda: b.run(["pgrep", "-c", "sh"]).stdout.strip() >= "3")
        start = time.monotonic()
        b.die()
        assert gone(pids) and time.monotonic() - start < 1.0
        assert session.poll() is None, "its head should not be told that it is gone"
        assert machines.head.run([*SSH, "a", "hostname"]).stdout == "a\n"
        told = machines.head.start([*SSH, "a", LOOP])
        assert soon(lambda: machines["a"].run(["pgrep", "-c", "sh"]).stdout.strip() >= "1")
        machines["a"].die(told=True)
        assert told.wait(2) == 255
        pids += [machine.pid for machine in (machines.head, machines["a"])]
    assert gone(pids)
    assert left_behind() == before


@pytest.mark.thorough
def test_all_machines_end_with_the_test_that_holds_them() -> None:
    code = "import time; from cluster.machines import Machines\nwith Machines(2) as machines:\n"
    code += "    machines['b'].start(['sleep', '60'])\n    print(*[m.pid for m in machines], flush=True)\n"
    code += "    time.sleep(60)"
    path = f"{ROOT}:{ROOT}/tests/support"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout
        pids = [int(word) for word in test.stdout.readline().split()]
        assert len(pids) == 3 and not gone(pids)
        test.kill()
    assert soon(lambda: gone(pids))


@pytest.mark.thorough
def test_the_underlay_delays_loses_and_limits() -> None:
    with Machines(2, Underlay(mtu=9100, delay_ms=5.0, loss_percent=10.0, rate_mbps=50.0)) as machines:
        pinged = machines["a"].run(["ping", "-q", "-i", "0.005", "-c", "300", "-M", "do", "-s", "9072", "b"]).stdout
        lost = float(pinged.split("% packet loss")[0].split()[-1])
        assert 100 * (1 - 0.9**2) - 9 < lost < 100 * (1 - 0.9**2) + 9, pinged
        assert 10.0 <= float(pinged.rsplit("=", 1)[1].split("/")[0]) < 13.0, pinged
        assert machines["a"].run(["ping", "-c1", "-M", "do", "-s", "9073", "b"]).returncode != 0
        shown = machines["b"].run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
        assert "tbf" in shown and "rate 50Mbit" in shown, shown
