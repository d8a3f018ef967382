"""How nccl-tests turn the bandwidth of an algorithm into the bandwidth of the links."""

from __future__ import annotations

from railyard.errors import ConfigError


def bus_factor(kind: str, members: int) -> float:
    """Ratio of busbw to algbw (NVIDIA nccl-tests, doc/PERFORMANCE.md): what a link carries per byte of it.

    ``ConfigError`` for a kind that has none.
    """
    if kind == "all_reduce":
        return 2 * (members - 1) / members
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (members - 1) / members
    if kind in ("reduce", "broadcast", "send_recv"):
        return 1.0
    raise ConfigError(f"{kind!r} is no operation that nccl-tests knows a bus bandwidth of", key="kind")
