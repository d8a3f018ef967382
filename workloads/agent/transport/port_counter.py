"""How many bytes have left a port of this host, after its queue: the kernel's own count."""

from __future__ import annotations

from pathlib import Path

_PATH = Path("/proc/thread-self/net/dev")
"""Of the network namespace that the caller is in."""
_SENT_BYTES = 8
"""Field after the name and the colon (proc_net_dev(5))."""


def left_port(interface: str) -> int:
    """Bytes sent by ``interface`` since it exists; ``OSError`` if there is none."""
    for line in _PATH.read_text(encoding="ascii").splitlines():
        name, colon, fields = line.partition(":")
        if colon and name.strip() == interface:
            return int(fields.split()[_SENT_BYTES])
    raise OSError(f"there is no interface {interface}")
