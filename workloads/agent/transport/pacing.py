"""Mirror of the token bucket of a port, so that a transfer of S bytes takes S / rate.

A Linux TBF lets ``burst`` bytes pass at once after an idle time, which a wire does not. The sender therefore sends its
first bytes one burst after the moment at which it could begin. What this machine is late is part of that wait. Virtual
scheduling form of the bucket (GCRA, ITU-T I.371).

``SendAllowance`` limits what is sent over a circuit that goes dark at a known time, so that no data is on its way at
that moment. Data given to the kernel cannot be taken back, and data still in its queue when the circuit changes would
reach another rank. So the port is first given what it can surely carry, and the rest when it is known how much has
left: links are now and then slower than their rate by one per cent, which matters in a long slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from railyard.scale import MTU_BYTES, bucket_burst_bytes
from workloads.rank.slot_sender import LATE_S

FORGIVEN_S = 0.002
"""After an idle time up to this a message is not held back, if the moment is known at which it could begin."""

_TURN_S = 0.001
"""Shortest time between two looks at whether a connection has almost sent its bytes."""


class Bucket:
    """Mirror of the TBF of one port, which holds at least ``least_bytes``.

    ``now`` is monotonic seconds; sizes are bytes as the bucket counts them.
    """

    def __init__(self, rate_mbps: float, mtu: int = MTU_BYTES, least_bytes: int = 0) -> None:
        self.bytes_per_s = rate_mbps * 1e6 / 8
        self.burst_s = bucket_burst_bytes(rate_mbps, mtu, least_bytes) / self.bytes_per_s
        self.slack_s = bucket_burst_bytes(rate_mbps, mtu) / self.bytes_per_s
        """Idle time that is taken for lateness where it is not known, and what almost all of a message leaves out."""
        self._empty_at = float("-inf")
        """Time at which the bucket held (or will hold) no token."""
        self._paid_until: float | None = None

    def wait_s(self, now: float, size: float, since: float | None = None) -> float:
        """Seconds to wait before the first of ``size`` bytes; a second call after that wait returns 0.

        ``since``: the time at which the emulated system would have begun (None: not known). The time from then to
        ``now`` is lateness of this machine and is deducted. Where it is not known, an idle time up to
        ``slack_s`` is taken for lateness.
        """
        if self._paid_until is not None:
            return max(0.0, self._paid_until - now)
        begin = now if since is None else min(now, since)
        if begin - self._empty_at <= (self.slack_s if since is None else FORGIVEN_S):
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
        left_s = min(self.backlog_s(now), size / self.bytes_per_s) - self.slack_s
        return max(left_s, _TURN_S) if left_s > 0 else 0.0

    def backlog_s(self, now: float) -> float:
        """Seconds until all bytes handed over are on the wire; negative: the tokens accumulated since then."""
        return max(-self.burst_s, self._empty_at - now)


HELD_BACK_S = 0.015
"""Minimum part of an up window that is not handed over before it is known how much has left."""
HELD_BACK_SHARE = 0.02
LAST_LOOK_S = 0.010
"""With less time than this left, everything that still fits is handed over. Nor is the port looked at in a window that
is no longer, for which a look takes a third of the time of a slot's beginning."""
RECOVERY_S = 0.005
"""Time that a connection loses when it has to retransmit."""
AHEAD_S = 0.005
"""More data is handed over while the port still has this much to send."""


@dataclass(frozen=True)
class UpWindow:
    """A time window in which a circuit is up since ``began``; all data sent over it must have arrived at ``until``."""

    began: float
    until: float


class SendAllowance:
    """Limit of the bytes that one port may send in one up window.

    Sizes are bytes of payload, times monotonic seconds. ``bucket`` mirrors the port, which carries ``share`` bytes of
    payload for each byte it counts. ``left_port`` returns the number of bytes that have left the port since an
    arbitrary time (None: the mirror alone is used). ``again`` bytes were lost in an earlier window and are
    retransmitted first, while TCP returns to full speed.
    """

    def __init__(
        self,
        window: UpWindow,
        bucket: Bucket,
        share: float,
        left_port: Callable[[], int] | None = None,
        again: int = 0,
    ) -> None:
        self._window = window
        self._bucket = bucket
        self._share = share
        self._rate = bucket.bytes_per_s * share
        self._left_port = left_port if window.until - window.began > LAST_LOOK_S else None
        self._base = self._left_port() if self._left_port is not None else 0
        self._handed = again
        self._untouched = not again
        self.again = again
        self.planned = (window.until - window.began - LATE_S) * self._rate
        self._budget = self.planned - (RECOVERY_S * self._rate if again else 0.0)

    def room(self, now: float) -> float:
        return self._fits(now, self._held_back_s(now))

    def handed(self, size: int) -> None:
        self._handed += size
        self._untouched = False

    def look_again(self, now: float, least: float) -> float:
        """Time at which there may be room for ``least`` bytes again; infinity if not in this window."""
        if self._held_back_s(now) == 0 or self._fits(now, 0.0) < least:
            return float("inf")
        return now + max(AHEAD_S / 10, self._backlog_s(now) - AHEAD_S)

    def _fits(self, now: float, held_back_s: float) -> float:
        if now > self._window.until - LATE_S:  # what the bucket lets pass would find other circuits
            return 0.0
        seconds = self._window.until - now - self._backlog_s(now) - held_back_s
        return max(0.0, min(self._budget - self._handed, seconds * self._rate))

    def _held_back_s(self, now: float) -> float:
        left_s = self._window.until - now
        if self._left_port is None or left_s <= LAST_LOOK_S:
            return 0.0
        return min(left_s / 3, HELD_BACK_S + HELD_BACK_SHARE * left_s)

    def _backlog_s(self, now: float) -> float:
        """Seconds until all bytes handed over have left; negative: the tokens accumulated before."""
        mirrored = self._bucket.backlog_s(now)
        if self._left_port is None or self._untouched:
            return mirrored
        waiting = self._handed / self._share - (self._left_port() - self._base)
        return max(mirrored, waiting / self._bucket.bytes_per_s)
