"""Carries out reconfigurations of optical switches: dark, delay, light, and when it may be acknowledged.

The dark time runs from the reply to the bundle to the reply to the lighting: the lighting is sent earlier than the end
of the delay by the round trip that the last ones took.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers import flows
from controllers.actions import Ack, Action, Darken, Note, TurnEnds
from controllers.losses import SHORTEST_DARK_S, Losses, PortCount, lead_s
from controllers.southbound import Southbound
from controllers.switchboard import Transaction

SETTLE_S = 0.004
"""From light to acknowledgement. Open vSwitch answers a barrier when its tables are changed; its caches of what to do
with a packet follow within two milliseconds (measured), and until then what is sent goes where it went before. Where
changes follow each other closely they follow later by ``Line.turns_to_caches_s``."""


class Tuning:
    """The reconfigurations that are under way on switches."""

    def __init__(self, south: Southbound) -> None:
        self._south = south
        self._dark_since: dict[int, tuple[str, float | None]] = {}
        self._delays: dict[int, float] = {}
        self._losses = Losses()

    def begin(self, action: Darken, now: float) -> Iterable[Action]:
        """Send the bundle that takes the light off."""
        number = action.reconfiguration_id
        self._dark_since[number] = (action.switch, None)
        tuned = action.ports & action.after.ports
        counted = action.delay_s >= SHORTEST_DARK_S

        def build(xid: int) -> bytes:
            if not counted:
                return flows.darken(action, xid)
            self._losses.begin(number, tuned, xid)
            return flows.darken(action, xid) + flows.port_stats_request(xid)

        self._delays[number] = action.delay_s
        if self._south.ask(action.switch, "darken", build, now, number):
            return ()
        self._forget(number)
        return self._south.engine.failed(number, f"{action.switch} is not connected to the controller", now)

    def stepped(self, done: Transaction, now: float) -> Iterable[Action]:
        """The dark bundle or the lighting of a reconfiguration is done."""
        number, south = done.reconfiguration_id, self._south
        line = south.board.lines[done.switch]
        wait_s = line.turns_to_caches_s(now)
        if done.step == "darken":
            delay_s = self._delays.pop(number)
            if delay_s > 0:
                self._dark_since[number] = (done.switch, now)
                end = now + delay_s - line.round_trip_s
                if self._losses.counts(number):
                    south.later(end - lead_s(len(line.plan.ports)), lambda _: self._count(number))
                south.later(end, lambda t: self._light(number, t))
                return ()
        else:
            line.learn(now - done.sent_at)
        _, since = self._dark_since.pop(number)
        packets, size = self._losses.end(number)
        lost = [_dropped(done.switch, packets, size, number, now)] if packets else []
        actions = south.engine.lit(number, now, since=since)
        acks = [action for action in actions if isinstance(action, Ack | TurnEnds)]
        if acks:
            south.later(now + wait_s + SETTLE_S, lambda _: acks)
        return [*lost, *(action for action in actions if action not in acks)]

    def refused(self, failed: Transaction, reason: str, now: float) -> Iterable[Action]:
        """A switch did not do its part."""
        self._forget(failed.reconfiguration_id)
        return self._south.engine.failed(failed.reconfiguration_id, reason, now)

    def lost(self, switch: str, reason: str, now: float) -> list[Action]:
        """Give up everything that is under way on ``switch``."""
        actions: list[Action] = []
        for number in [n for n, (name, _) in self._dark_since.items() if name == switch]:
            self._forget(number)
            actions += self._south.engine.failed(number, reason, now)
        return actions

    def counted(self, xid: int, counts: Iterable[PortCount]) -> None:
        """Counters of ports came."""
        self._losses.read(xid, counts)

    def _count(self, number: int) -> Iterable[Action]:
        """Read the counters of a switch for the second time."""
        board = self._south.board
        line = board.lines.get(self._dark_since.get(number, ("", None))[0])
        if line is not None:
            xid = board.next_xid()
            self._losses.again(number, xid)
            line.send(flows.port_stats_request(xid))
        return ()

    def _light(self, number: int, now: float) -> Iterable[Action]:
        if number not in self._dark_since:
            return ()
        name = self._dark_since[number][0]
        if self._south.ask(name, "light", lambda xid: flows.light(number, xid), now, number):
            return ()
        return self.lost(name, f"{name} is not connected to the controller", now)

    def _forget(self, number: int) -> None:
        self._dark_since.pop(number, None)
        self._delays.pop(number, None)
        self._losses.end(number)


def _dropped(rail: str, packets: int, size: int, reconfiguration_id: int, now: float) -> Note:
    fields = {"rail": rail, "packets": packets, "bytes": size, "during": reconfiguration_id}
    return Note("dropped", now, fields=fields, source="switch")
