"""What carrying out an action on switches needs: sending with an answer due, and doing something later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from controllers.engine.actions import Action
from controllers.engine.engine import Engine
from controllers.openflow.datapaths import Datapaths, Step

Decide = Callable[[float], Iterable[Action]]
"""What to do, given the time."""


class DatapathSender(Protocol):
    """The conductor, as seen by those who carry out one kind of action. All is called under its lock."""

    engine: Engine
    datapaths: Datapaths

    def ask(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        """Send ``build(xid)`` to a switch; False if it is not connected. No answer in time counts as a refusal."""

    def later(self, moment: float, decide: Decide) -> None:
        """Decide at ``moment``, under the lock, and carry out what comes of it."""
