"""Which congestion control the TCP of a host uses. Its routes say so, and every connection over them follows.

The default of a network namespace (``net.ipv4.tcp_congestion_control``) would not do: outside of the first namespace
the kernel takes only those names for it that the whole machine allows, often without cubic.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal

from railyard.errors import ConfigError, nearest, shortened

Transport = Literal["cubic", "reno", "bbr", "dctcp"]
_PLAIN = "cubic", "reno"
"""Those that do not probe for a rate, since the rate of a rail is known."""
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_LONGEST = 15


def usable_transport(asked: str | None) -> str:
    """``asked``, for which the kernel may load a module; for None cubic, or reno where the kernel has no cubic.

    ``ConfigError`` listing what there is, if the kernel does not have it or our ports do not suit it. Needs root.
    """
    if asked == "dctcp":
        raise ConfigError(
            "dctcp needs ports that mark packets (ECN), which those of Railyard do not; take cubic, reno or bbr",
            key="transport",
        )
    with socket.socket() as probe:
        for name in _PLAIN if asked is None else (asked,):
            try:
                probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                continue
            if len(name) <= _LONGEST and name.isidentifier():  # the kernel looks at no more of it
                return name
    known = _AVAILABLE.read_text().split()
    there = nearest(str(asked), known) or f"; it has {', '.join(known)}"
    raise ConfigError(f"this kernel has no congestion control {shortened(str(asked))}{there}", key="transport")
