"""The interface that executing actions on switches needs: sending with a time limit for the reply, and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from controllers.engine.actions import Action
from controllers.engine.engine import Engine
from controllers.openflow.datapaths import Datapaths, Step

Decide = Callable[[float], Iterable[Action]]
"""A function of the time that returns the actions to execute."""


class DatapathSender(Protocol):
    """The controller core as ``Tuning`` and ``Forwarding`` use it. All methods are called under its lock."""

    engine: Engine
    datapaths: Datapaths

    def send(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        """Send ``build(xid)`` to switch ``name``; False if it is not connected. No reply in time is a refusal."""

    def later(self, moment: float, decide: Decide) -> None:
        """Call ``decide`` at time ``moment``, under the lock, and execute the actions that it returns."""
