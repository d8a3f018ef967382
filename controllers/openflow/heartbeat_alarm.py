"""Looks at the heartbeats at the very moment when the next agent could be silent, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controllers.engine.actions import Action
from controllers.engine.engine import Engine

LATE_S = 0.02
"""A look that comes so much late was held up with the whole controller, and heartbeats may wait to be read: they are
given as long again."""


class HeartbeatAlarm:
    """``later(moment, decide)`` is the alarm clock. All is called under the conductor's lock."""

    def __init__(self, engine: Engine, later: Callable[[float, Callable[[float], Iterable[Action]]], None]) -> None:
        self._engine = engine
        self._later = later
        self._at: float | None = None
        self._excused = False

    def arm(self) -> None:
        """Somebody may be watched who was not: see to it that the next look is not too late."""
        moment = self._engine.liveness.next_check()
        if moment is not None and (self._at is None or moment < self._at):
            self._set(moment)

    def _set(self, moment: float) -> None:
        self._at = moment
        self._later(moment, self._look)

    def _look(self, now: float) -> Iterable[Action]:
        if self._at is None or now < self._at:
            return ()  # an alarm that was set before an earlier one
        late = now - self._at > LATE_S
        if late and not self._excused:
            self._excused = True
            self._set(now + LATE_S)
            return ()
        self._excused = False
        self._at = None
        actions = self._engine.check_heartbeats(now)
        self.arm()
        return actions
