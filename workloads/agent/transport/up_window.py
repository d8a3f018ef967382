"""What may be sent over a circuit that goes dark at a known time, so that nothing is on its way when it does.

What the kernel was given cannot be taken back, and what is still in its queue when the circuit goes would come out at
somebody else. So the port is given what it can surely carry, and the rest when it is known how much has left: links
are now and then slower than their rate by a per cent, which is much in a long slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workloads.agent.transport.pacing import LATE_S, Bucket

HELD_BACK_S = 0.015
"""So much of a light is not handed over before what has left by then is known; the longer it lasts the more of it."""
HELD_BACK_SHARE = 0.02
LAST_LOOK_S = 0.010
"""From here on everything that still fits is handed over."""
RECOVERY_S = 0.005
"""What a connection loses that has to send something again."""
AHEAD_S = 0.005
"""The port still has so much to send when more is handed over."""


@dataclass(frozen=True)
class UpWindow:
    """A circuit passes light since ``began``; all that is sent over it must be there at ``until``."""

    began: float
    until: float


class SendAllowance:
    """One light of one port. Sizes are bytes of payload, times monotonic seconds.

    ``bucket`` mirrors the port, which carries ``share`` bytes of payload for each byte it counts. ``left_port`` tells
    how many bytes have left it since any time (None: the mirror must do). ``again`` bytes were lost in an earlier light
    and go first, while TCP finds its way back to full speed.
    """

    def __init__(
        self,
        light: UpWindow,
        bucket: Bucket,
        share: float,
        left_port: Callable[[], int] | None = None,
        again: int = 0,
    ) -> None:
        self._light = light
        self._bucket = bucket
        self._share = share
        self._rate = bucket.bytes_per_s * share
        self._left_port = left_port
        self._base = left_port() if left_port is not None else 0
        self._handed = again
        self._untouched = not again
        lost_s = LATE_S + (RECOVERY_S if again else 0.0)
        self._budget = (light.until - light.began - lost_s) * self._rate

    def room(self, now: float) -> float:
        """How much may be handed over now."""
        return self._fits(now, self._held_back_s(now))

    def handed(self, size: int) -> None:
        """``size`` bytes were handed over."""
        self._handed += size
        self._untouched = False

    def look_again(self, now: float, least: float) -> float:
        """When there may be room for ``least`` bytes again; infinity if not in this light."""
        if self._held_back_s(now) == 0 or self._fits(now, 0.0) < least:
            return float("inf")
        return now + max(AHEAD_S / 10, self._backlog_s(now) - AHEAD_S)

    def _fits(self, now: float, held_back_s: float) -> float:
        seconds = self._light.until - now - self._backlog_s(now) - held_back_s
        return max(0.0, min(self._budget - self._handed, seconds * self._rate))

    def _held_back_s(self, now: float) -> float:
        left_s = self._light.until - now
        if self._left_port is None or left_s <= LAST_LOOK_S:
            return 0.0
        return min(left_s / 3, HELD_BACK_S + HELD_BACK_SHARE * left_s)

    def _backlog_s(self, now: float) -> float:
        """Until all that was handed over has left; below 0 what the bucket has saved up before."""
        mirrored = self._bucket.backlog_s(now)
        if self._left_port is None or self._untouched:
            return mirrored
        waiting = self._handed / self._share - (self._left_port() - self._base)
        return max(mirrored, waiting / self._bucket.bytes_per_s)
