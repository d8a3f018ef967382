"""Executes re-routings of an electrical torus: after the delay every switch whose table differs gets one bundle."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from controllers.engine.actions import Action, Reroute
from controllers.openflow import flows
from controllers.openflow.datapaths import DatapathSender, Transaction


class Forwarding:
    """The re-routings whose bundles are under way, and the switches that have not replied to each."""

    def __init__(self, sender: DatapathSender) -> None:
        self._sender = sender
        self._waiting: dict[int, set[str]] = {}

    def begin(self, action: Reroute, now: float) -> Iterable[Action]:
        """Send the tables of a re-routing at once, or when its delay is over."""
        number = action.reconfiguration_id
        if action.delay_s <= 0:
            return self._send(number, now)
        self._sender.later(now + action.delay_s, lambda later: self._send(number, later))
        return ()

    def answered(self, done: Transaction, now: float) -> Iterable[Action]:
        """Take the confirmation of a switch that it holds its new table."""
        waiting = self._waiting.get(done.reconfiguration_id)
        if waiting is None:
            return ()
        waiting.discard(done.switch)
        return () if waiting else self._end(done.reconfiguration_id, now)

    def resumed(self, switch: str, now: float) -> list[Action]:
        """Go on after ``switch`` has confirmed all its flows, and so its tables of all re-routings."""
        actions: list[Action] = []
        for number in [number for number, waiting in self._waiting.items() if switch in waiting]:
            self._waiting[number].discard(switch)
            if not self._waiting[number]:
                actions += self._end(number, now)
        return actions

    def lost(self, switch: str, reason: str, now: float) -> list[Action]:
        """Abort the re-routings that wait for ``switch``, which is away for too long."""
        numbers = [number for number, waiting in self._waiting.items() if switch in waiting]
        return [action for number in numbers for action in self._give_up(number, reason, now)]

    def _send(self, number: int, now: float) -> Iterable[Action]:
        update = self._sender.engine.routes_due(number)
        waiting = self._waiting[number] = set[str]()
        datapaths, hopeless = self._sender.datapaths, ""
        for name, table in update.tables.items():
            is_dead = name in update.dead
            if not self._sender.send(name, "route", partial(flows.forward, table), now, 0 if is_dead else number):
                datapaths.outdate(name)
                reason = "" if is_dead else datapaths.hopeless(name)
                hopeless = hopeless or (reason and f"{name} {reason}")
            waiting.update(() if is_dead else (name,))
        if hopeless:
            return self._give_up(number, hopeless, now)
        return () if waiting else self._end(number, now)

    def _end(self, number: int, now: float) -> Iterable[Action]:
        del self._waiting[number]
        return self._sender.engine.rerouted(number, now)

    def _give_up(self, number: int, reason: str, now: float) -> Iterable[Action]:
        if self._waiting.pop(number, None) is None:
            return ()
        return self._sender.engine.failed(number, reason, now)
