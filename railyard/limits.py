"""What a machine must have left for a run: open files, of which each host and port takes some, memory, and disk."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from railyard.errors import MachineError

_EACH_PROCESS = 128
_EACH_HOST, _EACH_PORT = 3, 2
LEAST_ROOM_BYTES = 1 << 20
"""Below it not even the first files of a run fit: its manifest, and the database of its Open vSwitch."""
_BASE_BYTES, _HOST_BYTES = 150_000_000, 500_000
"""Of memory: runs on 8 and 16 hosts had 170 and 151 MB beside the process that starts them (PSS), 512 agents 380 MB."""
_CGROUPS = (
    (r"^0::/(.*)$", "", "memory.max", "memory.current", "(?:in)?active_file"),
    (r"^\d+:memory:/(.*)$", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file"),
)
"""Of cgroups 2 and 1: line in /proc/self/cgroup, folder, files of limit and use, keys of what can be freed."""


def files_of(hosts: int, ports: int) -> int:
    """The open files that any one process of a fabric needs at most.

    A launcher has a namespace, a socket and a process descriptor for each agent. Open vSwitch had 196 for 8 switches
    with 128 ports and 44 for one with 4.
    """
    return _EACH_PROCESS + _EACH_HOST * hosts + _EACH_PORT * ports


def allow_open_files(number: int, what: str) -> None:
    """Let this process and its children open ``number`` files; ``MachineError`` naming ``what`` if it may not.

    The limit is raised no further, since Mininet's mnexec closes all that it permits, one by one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < number:
        raise MachineError(f"{what} needs {number} open files in one process, and the limit is {hard}; see ulimit -Hn")
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def allow_all_open_files() -> None:
    """Let this process open as many files as it may; for those that start no mnexec."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def memory_of(hosts: int) -> int:
    """Bytes of memory that a run on so many hosts takes, all of its processes together."""
    return _BASE_BYTES + _HOST_BYTES * hosts


def need_memory(least: int, what: str) -> None:
    """Raise ``MachineError`` naming ``what`` if less than ``least`` bytes of memory are free here."""
    free = free_memory_bytes()
    if free < least:
        raise MachineError(
            f"{what} needs {least / 1e9:.2g} GB of memory, and {free / 1e9:.2g} GB are free; end other programs, or "
            "take a smaller workload"
        )


def free_memory_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that this process may still take: those of the machine, or fewer where its cgroup has a limit."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
    return min([int(available[1]) << 10 if available else sys.maxsize, *_left_in_groups(proc, groups)])


def _left_in_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Bytes that the limits of the cgroups of this process leave; a container is in one that it sees as ``/``."""
    with suppress(OSError):
        own = (proc / "self" / "cgroup").read_text()
        for line, folder, most, used, freed in _CGROUPS:
            for name in re.findall(line, own, re.MULTILINE):
                place = groups / folder / name
                for group in (place, *place.parents):
                    with suppress(OSError, ValueError):
                        left = int((group / most).read_text()) - int((group / used).read_text())
                        more = re.findall(rf"^{freed} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
                        yield max(0, left + sum(map(int, more)))


def check_room(folder: Path) -> None:
    """Raise ``OSError`` if the file system of ``folder``, which need not be there yet, is read-only or full."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    system = os.statvfs(place)
    if system.f_flag & os.ST_RDONLY:
        code = errno.EROFS
    elif system.f_blocks and system.f_bfree * system.f_frsize < LEAST_ROOM_BYTES:
        code = errno.ENOSPC
    else:
        return
    raise OSError(code, os.strerror(code), str(folder))
