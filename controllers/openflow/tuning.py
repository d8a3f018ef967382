"""Executes what changes the flows of switches: reconfigurations of optical ones, re-routings of an electrical torus.

In a reconfiguration ports go dark, wait for the delay, and come up; then the ack is sent. The dark time runs from the
reply to the ``darken`` bundle to the reply to ``end_dark``, which is sent earlier than the end of the delay: by the
round trip that the last ones took, or by ``CacheTimes.early_s`` to a switch that keeps the time itself. In a rotation,
where ranks keep to their slots, such a switch is dark from the order, or the time that it names. In a re-routing every
switch whose table differs gets one bundle after the delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from controllers.circuits.losses import SHORTEST_DARK_S, Losses, PortCount, lead_s
from controllers.engine.actions import Ack, Action, Darken, Note, Registered, Reroute, Rewired
from controllers.openflow import flows
from controllers.openflow.datapaths import DatapathSender, Transaction
from topos.kernel.fastpath.lasting import NotBefore, encode

_PERMITS_TRAFFIC = Ack, Registered, Rewired
"""Actions whose receiver may send at once: they are held until the caches have followed."""


@dataclass
class _Running:
    """A reconfiguration under way, and the time at which its ports went dark.

    ``attempt``: how often its orders were begun again, since the switch was in trouble (``recovery``).
    ``failing_since``: when its switch first did not execute one of its orders, for the reason ``problem``.
    """

    action: Darken
    dark_since: float | None = None
    attempt: int = 0
    failing_since: float | None = None
    problem: str = ""


class Tuning:
    """The reconfigurations that are under way on switches."""

    def __init__(self, sender: DatapathSender) -> None:
        self._sender = sender
        self._under_way: dict[int, _Running] = {}
        self._losses = Losses()
        self._rotating: dict[str, set[int]] = {}
        """Ports of each switch whose circuit is of a rotation."""

    def begin(self, action: Darken, now: float) -> Iterable[Action]:
        """Send the bundle that makes the ports of a reconfiguration dark; it waits for a switch that is in trouble."""
        number, datapaths = action.reconfiguration_id, self._sender.datapaths
        reason = "" if datapaths.is_filled(action.switch) else datapaths.hopeless(action.switch)
        if reason:
            datapaths.outdate(action.switch)  # the flows on their way may have circuits of ports that have failed
            return self._sender.engine.failed(number, f"{action.switch} {reason}", now)
        self._under_way[number] = _Running(action)
        return self._darken(number, now)

    def _darken(self, number: int, now: float) -> Iterable[Action]:
        running = self._under_way[number]
        action = running.action
        tuned = action.ports & action.after.ports
        counted = action.delay_s >= SHORTEST_DARK_S and not self._losses.has_begun(number)

        def build(xid: int) -> bytes:
            rotation_ports = self._sender.datapaths.connected[action.switch].rotation_ports
            change = replace(action, delay_s=0.0) if self._at_once(action) else action
            bundle = flows.darken(change, xid, self._macs(action.switch) if action.quiet else None, rotation_ports)
            if action.not_before is not None and not running.attempt:
                bundle = encode(NotBefore(xid, action.not_before)) + bundle
            if action.quiet:
                rotation_ports |= dict.fromkeys(tuned, number)
            if not counted:
                return bundle
            self._losses.begin(number, tuned, xid)
            return bundle + flows.port_stats_request(xid)

        if self._sender.send(action.switch, "darken", build, now, number) and self._ends_with_order(running):
            return self._end_dark(number, running.attempt, now)
        return ()

    def step_done(self, done: Transaction, now: float) -> Iterable[Action]:
        """Go on with a reconfiguration after the reply to its ``darken`` or ``end_dark``."""
        number, sender = done.reconfiguration_id, self._sender
        datapath, running = sender.datapaths.connected[done.switch], self._under_way.get(number)
        if running is None:
            return ()  # its first order was refused
        action, attempt = running.action, running.attempt
        running.failing_since = None
        caches_at = now + datapath.circuits_to_caches_s(now) + datapath.caches.settle_s
        if done.step == "darken" or not self._keeps_time(running):
            datapath.learn(done.step, now - done.sent_at)
        if done.step == "darken" and not action.quiet:
            # a port that only lost its circuit may have been given a rotation flow by a later reconfiguration
            for port in action.ports:
                if datapath.rotation_ports.get(port, number) < number:
                    del datapath.rotation_ports[port]
        delay_s, begun = action.delay_s, now
        if action.quiet and datapath.caches.early_s is not None:  # no rank sends from the order on, or its time
            begun = max(done.sent_at, action.not_before or 0.0)
        if done.step == "darken" and delay_s > 0 and not self._at_once(action):
            running.dark_since = begun if running.dark_since is None else running.dark_since
            if self._ends_with_order(running):
                return ()
            lead = min(delay_s, datapath.caches.quiet_lead_s) if action.quiet else 0.0
            keeps_time, early_s = self._keeps_time(running), datapath.caches.early_s or 0.0
            end = running.dark_since + delay_s - lead - (early_s if keeps_time else datapath.trip_s("end_dark"))
            if self._losses.counts(number):
                sender.later(end - lead_s(len(datapath.plan.ports)), lambda _: self._count(number, attempt))
            sender.later(end, lambda t: self._end_dark(number, attempt, t))
            return ()
        if action.quiet:
            if running.dark_since is None and delay_s > 0:
                running.dark_since = begun
            since = begun if running.dark_since is None else running.dark_since
            return self._end(number, now, max(since + delay_s, caches_at))
        actions = self._end(number, now)
        held = [action for action in actions if isinstance(action, _PERMITS_TRAFFIC)]
        if caches_at <= now:
            return actions
        if held:
            sender.later(caches_at, lambda _: held)
        return [action for action in actions if not isinstance(action, _PERMITS_TRAFFIC)]

    def _end(self, number: int, now: float, until: float | None = None) -> list[Action]:
        """End a reconfiguration whose circuits the switch holds; ``until``: no rank sends before (None: from now)."""
        running = self._under_way.pop(number, None)
        if running is None:
            return []
        action, tuned = running.action, running.action.ports & running.action.after.ports
        rotating = self._rotating.setdefault(action.switch, set())
        rotating -= action.ports
        rotating |= tuned if action.quiet else set()
        packets, size = self._losses.end(number)
        lost = [_dropped(running.action.switch, packets, size, number, now)] if packets else []
        return [*lost, *self._sender.engine.reconfigured(number, now, since=running.dark_since, until=until)]

    def rotating(self, switch: str) -> frozenset[int]:
        return frozenset(self._rotating.get(switch, ()))

    def not_executed(self, number: int, problem: str, now: float) -> None:
        """Take note that a switch has not executed an order of a reconfiguration."""
        running = self._under_way.get(number)
        if running is not None:
            running.failing_since = now if running.failing_since is None else running.failing_since
            running.problem = problem

    def give_up_overdue(self, switch: str, since: float, now: float) -> list[Action]:
        """Abort the reconfigurations whose orders ``switch`` has not executed since ``since`` or longer."""
        actions: list[Action] = []
        for number, running in list(self._under_way.items()):
            failing_since = running.failing_since
            if running.action.switch == switch and failing_since is not None and failing_since <= since:
                self._forget(number)
                actions += self._sender.engine.failed(number, f"{switch} {running.problem}", now)
        return actions

    def resumed(self, switch: str, now: float) -> list[Action]:
        """Begin the orders of all reconfigurations under way on ``switch`` again, whose ports have no flow now.

        A dark time that has begun does not begin again. Ports that only lost their circuit and have one of a later
        reconfiguration since are left to that.
        """
        actions: list[Action] = []
        for number in [n for n, running in self._under_way.items() if running.action.switch == switch]:
            running = self._under_way[number]
            running.attempt += 1
            taken = self._sender.engine.optical.switches[switch].target.ports - running.action.after.ports
            running.action = replace(running.action, ports=running.action.ports - taken)
            actions += self._darken(number, now)
        return actions

    def lost(self, switch: str, reason: str, now: float) -> list[Action]:
        """Abort all reconfigurations that are under way on ``switch``."""
        actions: list[Action] = []
        for number in [n for n, running in self._under_way.items() if running.action.switch == switch]:
            self._forget(number)
            actions += self._sender.engine.failed(number, reason, now)
        return actions

    def counted(self, xid: int, counts: Iterable[PortCount]) -> None:
        self._losses.read(xid, counts)

    def _count(self, number: int, attempt: int) -> Iterable[Action]:
        """Ask for the second reading of the port counters of a reconfiguration."""
        datapaths, running = self._sender.datapaths, self._under_way.get(number)
        is_current = running is not None and running.attempt == attempt
        datapath = datapaths.connected.get(running.action.switch) if running is not None and is_current else None
        if datapath is not None:
            xid = datapaths.next_xid()
            self._losses.again(number, xid)
            datapath.send(flows.port_stats_request(xid))
        return ()

    def _end_dark(self, number: int, attempt: int, now: float) -> Iterable[Action]:
        running = self._under_way.get(number)
        if running is None or running.attempt != attempt:
            return ()
        name = running.action.switch
        dark_s = running.action.delay_s if self._keeps_time(running) else None
        self._sender.send(name, "end_dark", lambda xid: flows.end_dark(number, xid, dark_s), now, number)
        return ()

    def _keeps_time(self, running: _Running) -> bool:
        """Whether the switch itself ends the dark time of a reconfiguration when it is over.

        It counts from when it held the dark flows first, which it has forgotten if they were removed meanwhile.
        """
        exact = self._sender.datapaths.caches.early_s is not None
        return exact and not running.action.quiet and not running.attempt

    def _ends_with_order(self, running: _Running) -> bool:
        """Whether the end of a dark time is ordered together with its beginning, since it is so short."""
        early_s = self._sender.datapaths.caches.early_s
        return self._keeps_time(running) and 0 < running.action.delay_s <= (early_s or 0.0)

    def _at_once(self, action: Darken) -> bool:
        """Whether circuits are installed at the beginning of a short delay, at whose end ranks send, as they are told.

        A second order to the switch would take longer than the delay.
        """
        caches = self._sender.datapaths.caches
        return action.quiet and caches.early_s is not None and action.delay_s <= caches.quiet_lead_s

    def _macs(self, switch: str) -> dict[int, str]:
        return {port.number: port.mac for port in self._sender.datapaths.connected[switch].plan.ports}

    def _forget(self, number: int) -> None:
        self._under_way.pop(number, None)
        self._losses.end(number)


def _dropped(rail: str, packets: int, size: int, reconfiguration_id: int, now: float) -> Note:
    fields = {"rail": rail, "packets": packets, "bytes": size, "during": reconfiguration_id}
    return Note("dropped", now, fields=fields, source="switch")


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
