"""Which congestion control the TCP of a host uses: the default of its namespace, which its new sockets take."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from railyard.errors import ConfigError, nearest
from topos.kernel import namespaces

Transport = Literal["cubic", "reno", "bbr", "dctcp"]
PLAIN: tuple[Transport, ...] = ("cubic", "reno")
"""Those that do not probe for a rate, since the rate of a rail is known; the first that the kernel has is taken."""
_SYSCTL = "net.ipv4.tcp_congestion_control"
_AVAILABLE, _IN_USE = (
    Path("/proc/sys/net/ipv4") / name for name in ("tcp_available_congestion_control", "tcp_congestion_control")
)


def set_transport(netns_fd: int, name: str) -> None:
    """Let new sockets in a namespace use ``name``, for which the kernel may load a module.

    ``ConfigError`` listing what there is, if the kernel does not have it or our ports do not suit it.
    """
    if name == "dctcp":
        raise ConfigError(
            "dctcp needs ports that mark packets (ECN), which those of Railyard do not; take cubic, reno or bbr",
            key="transport",
        )
    with namespaces.inside(netns_fd):
        if name.isidentifier():
            with suppress(OSError):  # the kernel does not have it, or not for any namespace but its first
                namespaces.write_sysctls({_SYSCTL: name})
        if _IN_USE.read_text().strip() == name:
            return
        known = _AVAILABLE.read_text().split()
    there = nearest(name, known) or f"; it has {', '.join(known)}"
    raise ConfigError(f"this kernel has no congestion control {name[:20]} for hosts{there}", key="transport")


def usable_transport(asked: str | None) -> str:
    """``asked``, if hosts can have it, or else ``ConfigError``; for None the first plain one that they can have."""
    (netns_fd,) = namespaces.make(1)
    try:
        for name in PLAIN if asked is None else ():
            with suppress(ConfigError):
                set_transport(netns_fd, name)
                return name
        set_transport(netns_fd, asked or PLAIN[0])
    finally:
        os.close(netns_fd)
    return asked or PLAIN[0]
