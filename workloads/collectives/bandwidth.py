"""Bus bandwidth of collectives, as nccl-tests computes it from the bandwidth of an algorithm."""

from __future__ import annotations

from railyard.errors import ConfigError


def bus_factor(kind: str, members: int) -> float:
    """Ratio of busbw to algbw (NVIDIA nccl-tests, doc/PERFORMANCE.md): bytes on a link per byte of the collective.

    Raises ``ConfigError`` for a kind without such a ratio.
    """
    if kind == "all_reduce":
        return 2 * (members - 1) / members
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (members - 1) / members
    if kind in ("reduce", "broadcast", "send_recv"):
        return 1.0
    raise ConfigError(f"{kind!r} has no bus bandwidth in nccl-tests", key="kind")
