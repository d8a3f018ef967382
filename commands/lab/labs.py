"""The fabrics that are up on this machine, and the connection to each: a Unix socket in the folder of its run.

Only what starts in tens of milliseconds is imported, as ``railyard exec`` runs it for each command.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from railyard.checkout import REGISTRY
from railyard.errors import ConfigError, ControlError, MachineError, nearest
from railyard.process.connection import Connection

SOCKET, NAME = "lab.sock", "lab"
"""Files of a run that is a lab: the socket of its daemon, and its name."""


def labs(registry: Path = REGISTRY) -> dict[str, Path]:
    """The socket of each lab whose daemon is there, by name."""
    found = {}
    for path in sorted(registry.glob(f"*/{SOCKET}")):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            found[(path.parent / NAME).read_text(encoding="utf-8")] = path
    return found


def open_lab(name: str | None, registry: Path = REGISTRY) -> Connection:
    """A connection to the lab ``name``, or to the only one; ``ConfigError`` if there is none of that name."""
    if os.geteuid() != 0:
        raise MachineError("a lab belongs to root; run the command with sudo")
    up = labs(registry)
    if not up:
        raise ConfigError("no lab is up; railyard up rails makes one")
    if name is None and len(up) > 1:
        raise ConfigError(f"several labs are up ({', '.join(up)}); name one with --lab")
    if name is not None and name not in up:
        raise ConfigError(f"there is no lab {name}{nearest(name, up) or '; up is ' + ', '.join(up)}", key="--lab")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(up[name] if name is not None else next(iter(up.values()))))
    except OSError as error:
        sock.close()
        raise ControlError(f"the lab has gone ({error.strerror})") from None
    fd = sock.detach()
    return Connection(fd, fd, f"the lab {name or next(iter(up))}")
