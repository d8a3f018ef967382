"""Carries out reconfigurations of optical switches: dark, delay, light, and when it may be acknowledged.

The dark time runs from the reply to the bundle to the reply to the lighting: the lighting is sent earlier than the end
of the delay by the round trip that the last ones took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.circuits.losses import SHORTEST_DARK_S, Losses, PortCount, lead_s
from controllers.engine.actions import Ack, Action, Darken, Note, Registered, Rewired
from controllers.openflow import flows
from controllers.openflow.datapath_sender import DatapathSender
from controllers.openflow.datapaths import REVALIDATION_GAP_S, Transaction

SETTLE_S = 0.004
"""From light to acknowledgement. Open vSwitch answers a barrier when its tables are changed; its caches of what to do
with a packet follow within two milliseconds (measured), and until then what is sent goes where it went before. Where
changes follow each other closely they follow later by ``Line.circuits_to_caches_s``."""


QUIET_LEAD_S = SETTLE_S + REVALIDATION_GAP_S
"""Where nobody sends before it is told, the switch is lit so much before the end of the delay: its caches have followed
by then, whatever it did before."""

_LETS_SEND = Ack, Registered, Rewired
"""Whoever is told so may send at once: said when the caches have followed."""


@dataclass
class _Tuned:
    """A reconfiguration under way, and when its ports went dark."""

    action: Darken
    dark_since: float | None = None


class Tuning:
    """The reconfigurations that are under way on switches."""

    def __init__(self, sender: DatapathSender) -> None:
        self._sender = sender
        self._under_way: dict[int, _Tuned] = {}
        self._losses = Losses()

    def begin(self, action: Darken, now: float) -> Iterable[Action]:
        """Send the bundle that takes the light off."""
        number = action.reconfiguration_id
        self._under_way[number] = _Tuned(action)
        tuned = action.ports & action.after.ports
        counted = action.delay_s >= SHORTEST_DARK_S

        def build(xid: int) -> bytes:
            gated = self._south.datapaths.connected[action.switch].gated
            bundle = flows.darken(action, xid, self._macs(action.switch) if action.quiet else None, gated)
            if action.quiet:
                gated |= tuned
            if not counted:
                return bundle
            self._losses.begin(number, tuned, xid)
            return bundle + flows.port_stats_request(xid)

        if self._sender.ask(action.switch, "darken", build, now, number):
            return ()
        self._forget(number)
        return self._sender.engine.failed(number, f"{action.switch} is not connected to the controller", now)

    def stepped(self, done: Transaction, now: float) -> Iterable[Action]:
        """The dark bundle or the lighting of a reconfiguration is done."""
        number, sender = done.reconfiguration_id, self._sender
        datapath, tuned = sender.datapaths.connected[done.switch], self._under_way[number]
        caches_at = now + datapath.circuits_to_caches_s(now) + SETTLE_S
        datapath.learn(done.step, now - done.sent_at)
        if not tuned.action.quiet:
            datapath.gated -= tuned.action.ports
        delay_s = tuned.action.delay_s
        if done.step == "darken" and delay_s > 0:
            tuned.dark_since = now
            end = now + delay_s - datapath.round_trip_s - (min(delay_s, QUIET_LEAD_S) if tuned.action.quiet else 0.0)
            if self._losses.counts(number):
                sender.later(end - lead_s(len(datapath.plan.ports)), lambda _: self._count(number))
            sender.later(end, lambda t: self._light(number, t))
            return ()
        if tuned.action.quiet:
            since = now if tuned.dark_since is None else tuned.dark_since
            return self._lit(number, now, max(since + delay_s, caches_at))
        actions = self._lit(number, now)
        held = [action for action in actions if isinstance(action, _LETS_SEND)]
        if held:
            sender.later(caches_at, lambda _: held)
        return [action for action in actions if not isinstance(action, _LETS_SEND)]

    def _lit(self, number: int, now: float, until: float | None = None) -> list[Action]:
        """The switch holds the circuits of a reconfiguration. ``until``: nobody sends before (None: they may now)."""
        tuned = self._under_way.pop(number, None)
        if tuned is None:
            return []
        packets, size = self._losses.end(number)
        lost = [_dropped(tuned.action.switch, packets, size, number, now)] if packets else []
        return [*lost, *self._sender.engine.reconfigured(number, now, since=tuned.dark_since, until=until)]

    def refused(self, failed: Transaction, reason: str, now: float) -> Iterable[Action]:
        """A switch did not do its part."""
        self._forget(failed.reconfiguration_id)
        return self._sender.engine.failed(failed.reconfiguration_id, reason, now)

    def lost(self, switch: str, reason: str, now: float) -> list[Action]:
        """Give up everything that is under way on ``switch``."""
        actions: list[Action] = []
        for number in [n for n, tuned in self._under_way.items() if tuned.action.switch == switch]:
            self._forget(number)
            actions += self._sender.engine.failed(number, reason, now)
        return actions

    def counted(self, xid: int, counts: Iterable[PortCount]) -> None:
        """Counters of ports came."""
        self._losses.read(xid, counts)

    def _count(self, number: int) -> Iterable[Action]:
        """Read the counters of a switch for the second time."""
        datapaths, tuned = self._sender.datapaths, self._under_way.get(number)
        datapath = datapaths.connected.get(tuned.action.switch) if tuned is not None else None
        if datapath is not None:
            xid = datapaths.next_xid()
            self._losses.again(number, xid)
            datapath.send(flows.port_stats_request(xid))
        return ()

    def _light(self, number: int, now: float) -> Iterable[Action]:
        if number not in self._under_way:
            return ()
        name = self._under_way[number].action.switch
        if self._sender.ask(name, "light", lambda xid: flows.light(number, xid), now, number):
            return ()
        return self.lost(name, f"{name} is not connected to the controller", now)

    def _macs(self, switch: str) -> dict[int, str]:
        """Those of the hosts behind the ports of a switch."""
        return {port.number: port.mac for port in self._sender.datapaths.connected[switch].plan.ports}

    def _forget(self, number: int) -> None:
        self._under_way.pop(number, None)
        self._losses.end(number)


def _dropped(rail: str, packets: int, size: int, reconfiguration_id: int, now: float) -> Note:
    fields = {"rail": rail, "packets": packets, "bytes": size, "during": reconfiguration_id}
    return Note("dropped", now, fields=fields, source="switch")
