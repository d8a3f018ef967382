"""What a run of Railyard over the machines of a test does there, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from cluster.machines import Machine, Machines


def remains(machine: Machine) -> list[str]:
    """What a run has left on a machine: processes, run folders, private folders, tunnels."""
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done"
        " | grep -E 'experiments|workloads|ovs|topos';"
        "ls /run/railyard 2>/dev/null; ls -d /tmp/railyard-* 2>/dev/null; ip -o link show type vxlan"
    )
    own = ["grep", "ls ", "sh -c"]
    said = machine.run(["sh", "-c", script]).stdout.splitlines()
    return [f"{machine.name}: {line}" for line in said if not any(word in line for word in own)]


def agents(machines: Machines) -> int:
    """The number of agents on all machines."""
    found = 0
    for machine in machines:
        for path in (machine.root / "proc").glob("[0-9]*/comm"):
            with suppress(OSError):  # it has ended meanwhile
                found += path.read_text().startswith("railyard-g")
    return found


def pids(machine: Machine, word: str) -> list[str]:
    """Ids, on the machine, of the processes whose command line has a word (a regular expression)."""
    return machine.run(["pgrep", "-f", word]).stdout.split()


def wait_until(holds: Callable[[], bool], longest_s: float) -> None:
    end = time.monotonic() + longest_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
