"""Limits what is sent over a circuit that goes dark at a known time, so that no data is on its way at that moment.

Data given to the kernel cannot be taken back, and data still in its queue when the circuit changes would reach another
rank. So the port is first given what it can surely carry, and the rest when it is known how much has left: links are
now and then slower than their rate by one per cent, which matters in a long slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workloads.agent.transport.pacing import Bucket
from workloads.rank.slot_sender import LATE_S

HELD_BACK_S = 0.015
"""Minimum part of an up window that is not handed over before it is known how much has left."""
HELD_BACK_SHARE = 0.02
LAST_LOOK_S = 0.010
"""With less time than this left, everything that still fits is handed over."""
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
        self._left_port = left_port
        self._base = left_port() if left_port is not None else 0
        self._handed = again
        self._untouched = not again
        lost_s = LATE_S + (RECOVERY_S if again else 0.0)
        self._budget = (window.until - window.began - lost_s) * self._rate

    def room(self, now: float) -> float:
        """Number of bytes that may be handed over now."""
        return self._fits(now, self._held_back_s(now))

    def handed(self, size: int) -> None:
        """Account for ``size`` bytes handed over."""
        self._handed += size
        self._untouched = False

    def look_again(self, now: float, least: float) -> float:
        """Time at which there may be room for ``least`` bytes again; infinity if not in this window."""
        if self._held_back_s(now) == 0 or self._fits(now, 0.0) < least:
            return float("inf")
        return now + max(AHEAD_S / 10, self._backlog_s(now) - AHEAD_S)

    def _fits(self, now: float, held_back_s: float) -> float:
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
