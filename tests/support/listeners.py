"""The sockets on which processes listen, as the kernel lists them in /proc (proc(5))."""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"
_ACCEPTS_CONNECTIONS = 1 << 16


def listeners(pid: int | str = "self") -> dict[int, str]:
    """Every listening TCP or Unix socket in the network namespace of a process, by inode.

    ``tcp 127.0.0.1:6653`` or ``unix PATH MODE``; bound UDP, UDP-Lite and raw sockets are listed too.
    """
    found: dict[int, str] = {}
    folder = Path(f"/proc/{pid}/net")
    for name in ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6"):
        for fields in _lines(folder / name):
            if fields[3] == _LISTEN or not name.startswith("tcp"):
                found[int(fields[9])] = f"{name} {_address(fields[1])}"
    for fields in _lines(folder / "unix"):
        if int(fields[3], 16) & _ACCEPTS_CONNECTIONS:
            path = fields[7] if len(fields) > 7 else ""
            found[int(fields[6])] = f"unix {path} {_mode(path)}".rstrip()
    return found


def listeners_of(pid: int) -> list[str]:
    """The listening sockets that process ``pid`` itself holds, made in its network namespace or in that of this one."""
    held = _sockets(pid)
    return sorted(text for inode, text in (listeners() | listeners(pid)).items() if inode in held)


def _sockets(pid: int) -> set[int]:
    """Inodes of the sockets that a process has open."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
            if match:
                inodes.add(int(match[1]))
    return inodes


def _lines(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()[1:]]
    except OSError:
        return []


def _address(text: str) -> str:
    """``0100007F:19FD`` as ``127.0.0.1:6653``."""
    host, _, port = text.partition(":")
    words = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, words)}:{int(port, 16)}"


def _mode(path: str) -> str:
    with suppress(OSError):
        return f"{stat.S_IMODE(os.stat(path).st_mode):04o}"
    return ""
