"""The controller core of a run whose circuits are set up by an OpenFlow app of the user's own (``app_bridge``).

It is connected to the switches beside that app, to read their flows, and changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from controllers.engine.actions import Action, Darken
from controllers.northbound.app_bridge import PATIENCE_S, AppBridge
from controllers.northbound.messages import AnyRequest
from controllers.northbound.pending_replies import Requester
from controllers.openflow.core import ControllerCore
from controllers.openflow.datapaths import Send


class AppCore(ControllerCore):
    """A controller core that asks ``app`` for circuits instead of sending flows."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = AppBridge(self, self.plan)
        self._flows: dict[int, bytes] = {}

    def app_connected(self, tell: Callable[[bytes], None]) -> None:
        with self._lock:
            self.app.connected(tell)

    def app_left(self, how: str = "left") -> None:
        self._run(lambda now: self.app.left(now, how))

    def app_said(self, line: bytes) -> None:
        self._run(lambda now: self.app.take(line, now))

    def _perform(self, request: AnyRequest, requester: Requester, now: float) -> Iterable[Action]:
        actions = super()._perform(request, requester, now)
        self.app.requested(request)
        return actions

    def _begin(self, action: Darken, now: float) -> Iterable[Action]:
        return self.app.begin(action, now)

    def joined(self, dpid: int, send: Send) -> None:
        """Take a connection to a switch, whose flows are the app's."""

        def join(now: float) -> Iterable[Action]:
            plan = self.datapaths.plan_of(dpid)
            assert plan is not None
            self.datapaths.connect(plan, send).filled = True
            return ()

        self._run(join)

    def left(self, dpid: int, send: Send) -> None:
        plan = self.datapaths.plan_of(dpid)
        assert plan is not None
        self._run(lambda now: self.app.switch_left(plan.name, now))

    def answered(self, dpid: int, xid: int) -> None:
        """Go on when all flows that were asked for by ``xid`` have come.

        A barrier reply would come later: it waits until no port of the switch is dark, for whomever.
        """

        def go_on(now: float) -> Iterable[Action]:
            done, entries = self.datapaths.transactions.pop(xid, None), self._flows.pop(xid, b"")
            return () if done is None else self.app.read(done, entries, now)

        self._run(go_on)

    def flows_read(self, xid: int, entries: bytes) -> None:
        self._flows[xid] = self._flows.get(xid, b"") + entries

    def _answer_s(self, name: str) -> float:
        return PATIENCE_S

    def _not_executed(self, xid: int, problem: str, now: float, *, at_once: bool) -> Iterable[Action]:
        failed = self.datapaths.transactions.pop(xid, None)
        return () if failed is None else self.app.not_executed(failed, problem, now)
