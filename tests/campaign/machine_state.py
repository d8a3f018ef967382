"""The state of the machine that runs must leave as it was: interfaces, mounts, settings, sockets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DISK = "railyard-campaign-disk"
"""Name of the mount points of the small disks that campaigns make for results, and remove."""
SYSCTLS = (
    *("net/core/rmem_max", "net/core/wmem_max", "net/core/rmem_default", "net/core/wmem_default"),
    *("net/core/netdev_max_backlog", "net/core/somaxconn", "net/core/optmem_max"),
    *("net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_mem", "net/ipv4/ip_forward"),
    *("net/ipv4/tcp_congestion_control", "net/ipv4/tcp_slow_start_after_idle", "net/ipv4/ip_local_port_range"),
    *("net/ipv4/neigh/default/gc_thresh1", "net/ipv4/neigh/default/gc_thresh2", "net/ipv4/neigh/default/gc_thresh3"),
    *("net/ipv4/route/max_size", "net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"),
    *("kernel/pty/max", "kernel/pid_max", "kernel/threads-max", "kernel/sched_rt_runtime_us", "fs/file-max"),
    *("fs/pipe-max-size", "fs/inotify/max_user_instances", "vm/max_map_count", "vm/overcommit_memory"),
)
"""Settings of the machine that Mininet, Open vSwitch or Railyard have a reason to change."""


def _setting(name: str) -> str:
    """The value of a setting of the machine; empty if the kernel has none of this name."""
    try:
        return " ".join(Path("/proc/sys", name).read_text().split())
    except OSError:
        return ""


@dataclass(frozen=True)
class MachineState:
    """Names of the machine's network interfaces, mount points without the disks of campaigns, and settings."""

    interfaces: frozenset[str]
    mounts: frozenset[str]
    settings: tuple[str, ...]

    @staticmethod
    def now() -> MachineState:
        """The state of the machine now, as this process sees it."""
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
        mounts = {line.split()[4] for line in lines}
        return MachineState(
            frozenset(os.listdir("/sys/class/net")),
            frozenset(mount for mount in mounts if not mount.endswith(f"/{DISK}")),
            tuple(map(_setting, SYSCTLS)),
        )

    def changes(self, later: MachineState) -> list[str]:
        """What is different at a ``later`` time; interfaces and mounts that have gone do not count."""
        return [
            *(f"interface {name}" for name in sorted(later.interfaces - self.interfaces)),
            *(f"mount {mount}" for mount in sorted(later.mounts - self.mounts)),
            *(
                f"setting {name} was {before} and is {after}"
                for name, before, after in zip(SYSCTLS, self.settings, later.settings, strict=True)
                if before != after
            ),
        ]


def sockets_of(pids: Iterable[int]) -> dict[str, str]:
    """Names of the bound Unix sockets that processes hold, by inode; that of an abstract one begins with ``@``."""
    names: dict[str, str] = {}
    for pid in pids:
        held = set()
        with suppress(OSError):  # it has ended
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    held.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
        names |= {inode: name for inode, name in _bound_sockets(str(pid)).items() if inode in held}
    return names


def _bound_sockets(process: str = "self") -> dict[str, str]:
    """Names of all bound Unix sockets of the network namespace of a process, by inode."""
    try:
        lines = Path(f"/proc/{process}/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return {}
    columns = (line.split(maxsplit=7) for line in lines)
    return {words[6]: words[7] for words in columns if len(words) > 7}


def sockets_left(were: Mapping[str, str]) -> list[str]:
    """Those of the Unix sockets ``were`` that are still open in this namespace, or whose file is still there."""
    there = _bound_sockets()
    return [
        f"socket {name}"
        for inode, name in were.items()
        if there.get(inode) == name or (name.startswith("/") and Path(name).is_socket())
    ]
