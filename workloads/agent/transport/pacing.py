"""Mirror of the token bucket of a port, so that a transfer of S bytes takes S / rate.

A Linux TBF lets ``burst`` bytes pass at once after an idle time, which a wire does not. The sender therefore sends its
first bytes one burst after the moment at which it could begin. What this machine is late is part of that wait. Virtual
scheduling form of the bucket (GCRA, ITU-T I.371).
"""

from __future__ import annotations

from railyard.scale import MTU_BYTES, bucket_burst_bytes

FORGIVEN_S = 0.002
"""After an idle time up to this a message is not held back, if the moment is known at which it could begin."""

_TURN_S = 0.001
"""Shortest time between two looks at whether a connection has almost sent its bytes."""


class Bucket:
    """Mirror of the TBF of one port. ``now`` is monotonic seconds; sizes are bytes as the bucket counts them."""

    def __init__(self, rate_mbps: float, mtu: int = MTU_BYTES, forgiven_s: float = FORGIVEN_S) -> None:
        self.bytes_per_s = rate_mbps * 1e6 / 8
        self.burst_s = bucket_burst_bytes(rate_mbps, mtu) / self.bytes_per_s
        self._forgiven_s = forgiven_s
        self._empty_at = float("-inf")
        """Time at which the bucket held (or will hold) no token."""
        self._paid_until: float | None = None

    def wait_s(self, now: float, size: float, since: float | None = None) -> float:
        """Seconds to wait before the first of ``size`` bytes; a second call after that wait returns 0.

        ``since``: the time at which the emulated system would have begun (None: not known). The time from then to
        ``now`` is lateness of this machine and is deducted. Where it is not known, an idle time that the bucket can
        catch up is taken for lateness.
        """
        if self._paid_until is not None:
            return max(0.0, self._paid_until - now)
        begin = now if since is None else min(now, since)
        if begin - self._empty_at <= (self.burst_s if since is None else self._forgiven_s):
            return 0.0
        wait = max(0.0, min(self.burst_s, size / self.bytes_per_s) - (now - begin))
        if wait > 0:
            self._paid_until = now + wait
        return wait

    def sent(self, now: float, size: float, *, control: bool = False) -> None:
        """Account for ``size`` bytes handed to the port; a few bytes of ``control`` do not end an idle time."""
        if control:
            self._empty_at += size / self.bytes_per_s
            return
        self._empty_at = max(self._empty_at, now - self.burst_s) + size / self.bytes_per_s
        self._paid_until = None

    def turn_s(self, now: float, size: float) -> float:
        """Seconds until the port has almost sent the ``size`` bytes that a connection has handed over (0: it has)."""
        left_s = min(self.backlog_s(now), size / self.bytes_per_s) - self.burst_s
        return max(left_s, _TURN_S) if left_s > 0 else 0.0

    def backlog_s(self, now: float) -> float:
        """Seconds until all bytes handed over are on the wire; negative: the tokens accumulated since then."""
        return max(-self.burst_s, self._empty_at - now)
