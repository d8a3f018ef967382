"""A run changes nothing of the machine, also if it is killed: settings, links, mounts and files are as before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import SMOKE, finish, runs_of, start, wait_for_agents

from topos.kernel.emulation import Emulation
from topos.kernel.run_registry import REGISTRY
from topos.rails import RailTopo

pytestmark = pytest.mark.root
_COUNTERS = ("-nr", "-state", "ns_last_pid", "/random", "/nr", "_count", "/quota", "/epoll", "/binfmt_misc", "/cache")
_NOT_COMPARED = {".git", ".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "user"}


def settings() -> dict[str, str]:
    """The settings of the kernel (sysctl) that can be read and are no counters."""
    found = {}
    for folder, _, names in os.walk("/proc/sys"):
        for path in (f"{folder}/{name}" for name in names):
            if not any(word in path for word in _COUNTERS):
                try:
                    found[path] = Path(path).read_text()
                except (OSError, UnicodeDecodeError):
                    continue
    return found


def files(root: str) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of all files below ``root``."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_COMPARED and f"{folder}/{name}" != str(REGISTRY)]
        for path in (f"{folder}/{name}" for name in (*names, *folders)):
            try:
                about = os.lstat(path)
            except FileNotFoundError:
                continue
            found[path] = about.st_mode, about.st_uid, about.st_gid
    return found


def machine() -> dict[str, object]:
    """All that a run might change of the machine and must not."""
    return {
        "settings": settings(),
        "links": socket.if_nameindex(),
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "modules": sorted(os.listdir("/sys/module")),
        "files": {root: files(root) for root in (str(ROOT), "/etc", "/run")},
    }


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What is not as it was, in words."""
    found = []
    for key, old in before.items():
        new = after[key]
        if isinstance(old, dict) and isinstance(new, dict):
            both = dict.fromkeys([*old, *new])
            found += [f"{key} {part}" for part in differences({**both, **old}, {**both, **new})]
        elif old != new:
            found.append(f"{key}: {old} -> {new}")
    return found


def test_a_run_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    with Emulation(RailTopo(servers=2, gpus=1), openflow=None):
        pass  # a first run makes the registry, and the kernel loads the modules that it needs
    options = (*SMOKE, "--modes", "on-demand", "--delays", "50", "--steps", "1", "--no-figures")
    before = machine()
    status, _, errors = finish(start("rail_reconfiguration.py", *options, "--out", str(tmp_path / "one")))
    assert status in (0, 8, 9), errors
    assert differences(before, machine()) == []

    process = start("rail_reconfiguration.py", *options, "--out", str(tmp_path / "two"))
    wait_for_agents(process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 5
    while (different := differences(before, machine())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert different == [] and not runs_of(process.pid)


@pytest.mark.beside
def test_mininet_does_not_raise_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be that high already, and then no comparison shows that it would."""
    raised: list[str] = []
    monkeypatch.setattr("mininet.net.fixLimits", lambda: raised.append("all"))
    monkeypatch.setattr("mininet.net.Mininet.inited", False)
    Emulation(RailTopo(servers=2, gpus=1), openflow=None).stop()
    assert raised == []


@pytest.mark.beside
def test_a_fabric_for_which_too_few_files_may_be_open_is_refused_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "rail_reconfiguration.py"), "--workload", "smoke"]
    limited = ["prlimit", "--nofile=100:140", *command, "--out", str(tmp_path / "none")]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "a fabric of 8 hosts needs " in done.stderr and "and the limit is 140; see ulimit -Hn" in done.stderr
