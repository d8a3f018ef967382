"""In a chroot, whose root directory is no mount point, hosts cannot run programs: one sentence says so at once."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = [pytest.mark.root, pytest.mark.beside]

CHROOT = """
set -e
mount --make-rprivate /
for entry in /*; do
    here=$1$entry
    if [ -L "$entry" ]; then ln -s "$(readlink "$entry")" "$here"
    elif [ -d "$entry" ]; then mkdir "$here"; mount --rbind "$entry" "$here"; fi
done
cd /
exec chroot "$1" sh -c "$2"
"""
"""Every directory of the machine in a plain directory; the mounts go with the namespace."""

PROGRAM = """
from experiments.rails.cli import RailCLI
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

with Emulation(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical"), openflow=None) as net:
    RailCLI(net, script="/dev/stdin")
"""


def test_the_first_command_of_a_host_says_why_it_cannot_run(tmp_path: Path) -> None:
    inside = f"cd {shlex.quote(str(ROOT))} && exec {shlex.quote(sys.executable)} -c {shlex.quote(PROGRAM)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", CHROOT, "sh", str(tmp_path), inside],
        input="g0 echo one\ng1 echo two\nexit\n",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT)},
    )
    if done.returncode != 0 and done.stdout.startswith(("unshare:", "mount:")):
        pytest.skip(f"this machine gives no namespaces: {done.stdout.strip()}")
    assert (
        done.stdout.count("*** programs cannot be started on hosts, because the root directory here is a chroot") == 2
    )
    assert "Traceback" not in done.stdout and done.returncode == 0
