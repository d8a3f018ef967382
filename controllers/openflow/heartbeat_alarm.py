"""Checks heartbeats exactly when the next agent could be silent, and at no other time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from controllers.engine.actions import Action
from controllers.engine.engine import Engine

LATE_S = 0.02
"""A check that is later than this was delayed with the whole controller, so heartbeats may wait to be read: the check
is postponed once, by the same time."""


class HeartbeatAlarm:
    """The timer of the next check. ``later(moment, decide)`` sets a timer; all is called under the core's lock."""

    def __init__(self, engine: Engine, later: Callable[[float, Callable[[float], Iterable[Action]]], None]) -> None:
        self._engine = engine
        self._later = later
        self._at: float | None = None
        self._postponed = False

    def arm(self, now: float = -math.inf) -> None:
        """Set the timer earlier if a newly watched rank requires it; ``now``: all has been checked at that time."""
        moment = self._engine.liveness.next_check(now)
        if moment is not None and (self._at is None or moment < self._at):
            self._set(moment)

    def _set(self, moment: float) -> None:
        self._at = moment
        self._later(moment, self._check)

    def _check(self, now: float) -> Iterable[Action]:
        if self._at is None or now < self._at:
            return ()  # a timer that an earlier one has replaced
        is_late = now - self._at > LATE_S
        if is_late and not self._postponed:
            self._postponed = True
            self._set(now + LATE_S)
            return ()
        self._postponed = False
        self._at = None
        actions = self._engine.check_heartbeats(now)
        self.arm(now)
        return actions
