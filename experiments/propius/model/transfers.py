"""What edge transfers cost by formula: seconds of one GET or PUSH, and bytes on the link of the root server.

A connection is open before a transfer begins, so one round trip is counted: the request there and the first byte of
the answer back (GET), or the last byte there and the acknowledgement back (PUSH). The payload moves at the goodput of
the slowest link (``railyard.scale.goodput_share``). TCP's slow start is left out, which costs short transfers over
long delays some round trips more.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.propius.data.data_requests import Mode
from railyard.scale import MTU_BYTES, goodput_share


def transfer_s(size_bytes: float, rate_mbps: float, round_trip_s: float, mtu_bytes: int = MTU_BYTES) -> float:
    """Seconds of a GET or PUSH of ``size_bytes`` whose slowest link has ``rate_mbps``."""
    return size_bytes * 8 / (rate_mbps * 1e6 * goodput_share(mtu_bytes)) + round_trip_s


def root_bytes(clients_per_region: Sequence[int], size_bytes: float, topology: str, mode: Mode) -> tuple[float, float]:
    """Least and most payload bytes that leave the root to hand out one model; both are equal where the law is exact.

    In a star each client fetches the model from the root. In a tree of mode ``fixed`` each leaf with a client fetches
    it once. In mode ``authors`` each request that finds the leaf without the model fetches it: once a leaf if the
    clients come one after the other, once a client if they come together. What the updates bring to the root is the
    same number of bytes in a star, and one sum for each flush in a tree.
    """
    together = sum(clients_per_region) * size_bytes
    apart = sum(1 for clients in clients_per_region if clients) * size_bytes
    if topology == "star":
        return together, together
    return (apart, apart) if mode == "fixed" else (apart, together)
