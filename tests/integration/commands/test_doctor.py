"""``railyard doctor`` on a real kernel: what it tries, that nothing is left of it, and that a run looks there too."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from topos.kernel import needs, queues

pytestmark = [pytest.mark.root, pytest.mark.beside]


def test_what_the_kernel_lacks_is_found_by_trying_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = socket.if_nameindex(), os.sched_getscheduler(0), len(os.listdir("/proc/self/fd"))
    assert {*needs.refused_rights(), *needs.refused_features()} <= {"netem"}, "all else is needed by the tests here"
    monkeypatch.setattr(queues, "token_bucket", lambda *_: queues.remove_delay(99, "nothing"))
    assert "tbf" in needs.refused_features() and "htb" not in needs.refused_features()
    assert (socket.if_nameindex(), os.sched_getscheduler(0), len(os.listdir("/proc/self/fd"))) == before


OLD = "#!/bin/sh\necho 'ovs-vswitchd (Open vSwitch) 2.17.9'\n"
RIGHTS = "setpriv", "--bounding-set", "-net_admin"
SMALL_BYTES = 192 << 20
FIXED = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$0" "$0" && mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp && exec "$@"',
)
HIDDEN = "unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$0" && exec "$@"'
MEMORY = "sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"'


def refused(folder: Path, *before: str, path: str = "") -> list[str]:
    """What a run of a small job says that is refused; it leaves no results."""
    typed = ["run", "rails", "--workload", "smoke", "--quick", "--out", str(folder / "out")]
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}" if path else os.environ["PATH"]}
    command = [*before, sys.executable, "-m", "commands.main", *typed]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, (folder / "out").exists()) == (3, "", False), done
    assert "fast path" not in done.stderr, "it was started"
    return [line.removeprefix("railyard: ") for line in done.stderr.splitlines() if line.startswith("railyard: ")]


def test_a_run_is_refused_by_what_the_doctor_names(tmp_path: Path) -> None:
    (old := tmp_path / "ovs-vswitchd").write_text(OLD)
    old.chmod(0o755)
    assert refused(tmp_path, path=str(tmp_path)) == [
        "Open vSwitch: 2.17.9 is older than 3.0, so its tables cannot be followed; use that of Debian 12, Ubuntu 24.04 "
        "or later"
    ]
    assert refused(tmp_path, *RIGHTS) == [
        "NET_ADMIN: this process lacks the capability, so no link can be made; in a container: --cap-add NET_ADMIN"
    ]
    assert refused(tmp_path, *FIXED, str(tmp_path)) == ["/tmp cannot be used: Read-only file system"]
    switch = shutil.which("ovs-vswitchd")
    assert switch is not None
    old.unlink()
    assert refused(tmp_path, *HIDDEN, switch) == ["ovs-vswitchd is missing; scripts/setup.sh installs it"]


def test_a_run_in_a_small_container_says_how_much_memory_it_needs(tmp_path: Path) -> None:
    first = Path("/sys/fs/cgroup/memory")  # of version 1
    group = (first if first.is_dir() else first.parent) / f"railyard-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(SMALL_BYTES))
    except OSError as error:
        pytest.skip(f"no cgroup with a limit of memory can be made: {error}")
    try:
        (said,) = refused(tmp_path, *MEMORY, str(group))
    finally:
        group.rmdir()
    assert said.startswith("a fabric of ") and " GB of memory, and 0." in said and said.endswith("a smaller workload")
