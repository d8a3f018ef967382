"""Carries out re-routings of an electrical torus: after the delay every switch that differs gets one bundle."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from controllers.engine.actions import Action, Reroute
from controllers.openflow import flows
from controllers.openflow.datapath_sender import DatapathSender
from controllers.openflow.datapaths import Transaction


class Forwarding:
    """The re-routings whose bundles are under way: number -> the switches that have not answered."""

    def __init__(self, sender: DatapathSender) -> None:
        self._sender = sender
        self._waiting: dict[int, set[str]] = {}

    def begin(self, action: Reroute, now: float) -> Iterable[Action]:
        """Send now, or when the delay is over."""
        number = action.reconfiguration_id
        if action.delay_s <= 0:
            return self._send(number, now)
        self._sender.later(now + action.delay_s, lambda later: self._send(number, later))
        return ()

    def answered(self, done: Transaction, now: float) -> Iterable[Action]:
        """A switch holds its new table."""
        waiting = self._waiting.get(done.reconfiguration_id)
        if waiting is None:
            return ()
        waiting.discard(done.switch)
        return () if waiting else self._end(done.reconfiguration_id, now)

    def refused(self, failed: Transaction, reason: str, now: float) -> Iterable[Action]:
        """A switch did not take its table."""
        return self._give_up(failed.reconfiguration_id, reason, now)

    def lost(self, switch: str, reason: str, now: float) -> list[Action]:
        """``switch`` is gone; what waited for it is given up."""
        numbers = [number for number, waiting in self._waiting.items() if switch in waiting]
        return [action for number in numbers for action in self._give_up(number, reason, now)]

    def _send(self, number: int, now: float) -> Iterable[Action]:
        due = self._sender.engine.routes_due(number)
        waiting = self._waiting[number] = set[str]()
        for name, table in due.tables.items():
            dead = name in due.dead
            if self._sender.ask(name, "route", partial(flows.forward, table), now, 0 if dead else number):
                waiting.update(() if dead else (name,))
            elif not dead:
                return self._give_up(number, f"{name} is not connected to the controller", now)
        return () if waiting else self._end(number, now)

    def _end(self, number: int, now: float) -> Iterable[Action]:
        del self._waiting[number]
        return self._sender.engine.rerouted(number, now)

    def _give_up(self, number: int, reason: str, now: float) -> Iterable[Action]:
        if self._waiting.pop(number, None) is None:
            return ()
        return self._sender.engine.failed(number, reason, now)
