"""Claims of points: files that one process makes and others see, and that count for nothing once their maker is dead.

A claim names host, machine, boot, process id and start time, with the namespace that the id is of. One of this host
whose process is dead, or of an earlier boot, is removed by the next who wants the point; one of another host, machine
or namespace, such as a container, stays until that one or a person removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import get_native_id

from railyard.errors import ConfigError
from railyard.ownership import make_folder, naming, open_new, reached
from railyard.reading import read_bytes
from railyard.validation import Name, Whole, from_plain
from topos.kernel.run_watcher import Process

CLAIMED = "claimed"
_MOST_BYTES = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE = Path("/etc/machine-id")


@cache
def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


@cache
def boot_id() -> str:
    """The id that the kernel drew when this machine was started."""
    return _BOOT.read_text().strip()


@cache
def machine_id() -> str:
    """A hash of the id that this machine was installed with, which is not to be told; empty if it has none."""
    try:
        found = _MACHINE.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(b"railyard " + found).hexdigest()[:16] if found else ""


@cache
def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


@dataclass(frozen=True)
class Claim:
    """Who has a point: a process of a host, by its start time (clock ticks since boot) and boot; ``who`` for people.

    ``namespace`` is the number of the namespace that its process id is of, ``machine`` tells machines with one host
    name apart (``machine_id``).
    """

    host: Name
    pid: Whole
    started: Whole
    boot: Name
    namespace: Whole
    who: Name
    machine: str = ""

    @staticmethod
    def mine(who: str = "") -> Claim:
        """The claim of this process."""
        me = Process.of(os.getpid())
        assert me is not None
        name = who or f"process {me.pid}"
        return Claim(host_name(), me.pid, me.started, boot_id(), _namespace(), name, machine_id())

    @property
    def holds(self) -> bool:
        """Whether its process may still run: one that cannot be seen from here does."""
        if self.host != host_name():
            return True
        if self.boot != boot_id():  # of this machine before it was started again, or of another one
            return "" != self.machine != machine_id() != ""
        return self.namespace != _namespace() or Process(self.pid, self.started).alive


def claim_in(folder: Path) -> Claim | None:
    """The claim in the folder of a point; None without one. ``ConfigError`` for a file that is none."""
    path = folder / CLAIMED
    if not os.path.lexists(path):
        return None
    try:
        return from_plain(Claim, read_bytes(path, _MOST_BYTES, "a claim"), "a claim", str(path))
    except ConfigError:
        if os.path.lexists(path):
            raise
        return None  # removed meanwhile


def take(folder: Path, who: str, guard: Path) -> bool:
    """Claim the point of ``folder`` for this process; False if another one has it.

    The file appears with its whole content, and for one process only. Claims of the dead are removed under the lock of
    the folder ``guard``, so that no claim of the living is.
    """
    make_folder(folder)
    mine = json.dumps(asdict(Claim.mine(who))).encode()
    draft = f".{CLAIMED}.{os.getpid()}.{get_native_id()}"
    with naming(folder / CLAIMED), reached(folder.absolute()) as place:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=place)
        with open(open_new(draft, place), "wb") as file:
            file.write(mine)
            file.flush()
            os.fsync(file.fileno())
        try:
            return _linked(draft, place) or (_freed(folder, place, guard) and _linked(draft, place))
        finally:
            os.unlink(draft, dir_fd=place)


def _linked(draft: str, place: int) -> bool:
    try:
        os.link(draft, CLAIMED, src_dir_fd=place, dst_dir_fd=place)
    except FileExistsError:
        return False
    return True


def _freed(folder: Path, place: int, guard: Path) -> bool:
    """Remove the claim of a dead process; False if it is of a living one."""
    with _locked(guard):
        found = claim_in(folder)
        if found is not None and found.holds:
            return False
        with suppress(FileNotFoundError):
            os.unlink(CLAIMED, dir_fd=place)
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_folder(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
