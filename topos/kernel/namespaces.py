"""Anonymous network namespaces, held by a file descriptor, so that no name can collide or be left behind.

A namespace exists as long as a descriptor, a process or a socket refers to it. Entering one affects only the calling
thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from railyard.errors import MachineError
from railyard.process.start import run_program
from railyard.tools import how_to_install

_CLONE_NEWNET = 0x40000000
_SYSCTL = Path("/proc/sys")
_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17  # include/uapi/linux/sockios.h and ethtool.h
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class HostEnd:
    """One end of a flow at a host: the descriptor of the host's namespace, the interface and its address."""

    netns_fd: int
    interface: str
    ip: str


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        hint = "; run it as root" if os.geteuid() != 0 else ""
        raise MachineError(f"{what} failed ({os.strerror(number)}){hint}")


def enter(netns_fd: int) -> None:
    """Move the calling thread into a namespace permanently, for use in a new child process."""
    _check(_libc.setns(netns_fd, _CLONE_NEWNET), "entering a network namespace")


@contextmanager
def _returning() -> Iterator[None]:
    """Run a block that moves the calling thread to other namespaces, and return to the original one."""
    home = _own_namespace()
    try:
        yield
    finally:
        _check(_libc.setns(home, _CLONE_NEWNET), "returning to the original network namespace")
        os.close(home)


@contextmanager
def inside(netns_fd: int) -> Iterator[None]:
    """Run a block with the calling thread in the namespace; child processes started there stay in it."""
    with _returning():
        enter(netns_fd)
        yield


def connect(source: HostEnd, target: HostEnd, longest_s: float = 10.0) -> tuple[socket.socket, socket.socket]:
    """The sending and the receiving end of a TCP connection from one host to another.

    Raises ``MachineError`` if they cannot connect within ``longest_s`` seconds.
    """
    with ExitStack() as stack:
        with inside(target.netns_fd):
            listener = stack.enter_context(socket.create_server((target.ip, 0)))
        with inside(source.netns_fd):
            sender = stack.enter_context(socket.socket())
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, source.interface.encode())
        sender.settimeout(longest_s)
        listener.settimeout(longest_s)
        try:
            sender.connect(listener.getsockname())
            receiver = listener.accept()[0]
        except OSError as error:
            raise MachineError(f"{source.ip} cannot connect to {target.ip}: {error}") from error
        stack.pop_all()
    listener.close()
    sender.settimeout(None)
    return sender, receiver


def make(count: int) -> list[int]:
    """Make ``count`` empty namespaces; each exists while the returned descriptor (close-on-exec) is open."""
    made: list[int] = []
    with ExitStack() as undo, _returning():
        for _ in range(count):
            _check(_libc.unshare(_CLONE_NEWNET), "making a network namespace")
            made.append(_own_namespace())
            undo.callback(os.close, made[-1])
        undo.pop_all()
    return made


def write_sysctls(values: Mapping[str, str]) -> None:
    """Set sysctls (``net.ipv4.tcp_rmem``: ``4096 65536 1000000``) in the namespace of the calling thread.

    Keys that this kernel does not have are skipped.
    """
    for key, value in values.items():
        with suppress(FileNotFoundError):
            fd = os.open(_SYSCTL / key.replace(".", "/"), os.O_WRONLY)
            try:
                os.write(fd, value.encode())
            finally:
                os.close(fd)


def finish_checksums(interfaces: Iterable[str]) -> None:
    """Let the kernel fill in the checksums of all that ``interfaces`` of this namespace send: ``ethtool -K NAME tx
    off``. Without that, veth and tap pass them on unfinished; and with it, they pass on no segments above the MTU.

    ``MachineError`` naming an interface for which the kernel refuses it.
    """
    off = array("I", [_ETHTOOL_STXCSUM, 0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        for name in interfaces:
            try:
                fcntl.ioctl(kernel, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), off.buffer_info()[0]))
            except OSError as error:
                raise MachineError(f"the checksum offload of {name} cannot be turned off: {error.strerror}") from None


@cache
def check_root_directory() -> None:
    """``MachineError`` where the root directory is a chroot.

    Mininet's ``mnexec`` starts what a host runs in the mount namespace of the host's shell, and a process that
    enters a mount namespace gets its root directory: outside of the chroot, without Railyard's files. And if the root
    directory is no mount point, the shell cannot have mounts of its own at all.
    """
    command = ["mnexec", "-a", str(os.getpid()), "stat", "-c", "%d:%i", "/"]
    done = run_program(command, 10)
    if done.status < 0:
        raise MachineError(f"mnexec does not run ({done.err}); {how_to_install('mininet')}")
    root, seen = os.stat("/"), done.out.strip()
    if seen and seen != f"{root.st_dev}:{root.st_ino}":
        raise MachineError(
            "programs cannot be started on hosts, because the root directory here is a chroot and Mininet's mnexec "
            "leaves it; enter the directory with systemd-nspawn or pivot_root in place of chroot, or use a VM"
        )
