"""The rotations of one agent: which connection carries what in which slot, and how long that connection has light."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from railyard.protocol import Hop, SlotWindow
from workloads.agent.transport.connection import Connection, PeerKey
from workloads.agent.transport.in_flight import Waiting
from workloads.agent.transport.paths import keys_at
from workloads.agent.transport.slot_sender import Moved, SlotScheduler
from workloads.agent.transport.up_window import UpWindow


class Post(NamedTuple):
    """Something to be sent now over the connection ``key``, as its slot would have begun at ``since``.

    ``fresh``: the first in a slot without an end, which pays for what the port's bucket saved up in the dark. In a slot
    with an end the bucket makes up for lateness, and the light limits what is sent.
    """

    key: PeerKey
    waiting: Waiting
    fresh: bool
    since: float


class SlotConnections:
    """The groups of ``rank`` whose circuits take turns; ``say`` tells the controller, ``note`` takes events."""

    def __init__(self, rank: int, say: Callable[[Moved], None], note: Callable[..., object]) -> None:
        self._rank = rank
        self._note = note
        self._heard: dict[str, tuple[SlotWindow, float]] = {}
        """By group: the slot that stands, and when this rank was told."""
        self._used: dict[str, dict[Connection, int]] = {}
        """By group: the connections of that slot, and what had gone by them before."""
        self.turns: SlotScheduler[Waiting] = SlotScheduler(rank, say)
        self.groups: set[str] = set()
        """All that take turns, whether a slot of theirs stands or not."""
        self._unused: set[PeerKey] = set()
        """Connections over circuits of slots without an end by which nothing has gone yet."""
        self._lights: dict[PeerKey, tuple[str, UpWindow | None]] = {}
        """(group, light) of circuits whose connection has not heard of it, since the peer has yet to open it."""

    def stands(
        self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float
    ) -> list[PeerKey]:
        """A slot has come: the connections over its circuits. ``free`` tells what may go."""
        self._note_turn(group)
        self._heard[group] = slot_window, now
        self.turns.stands(group, index, slot_window, paths)
        slot_sender = self.turns.of(group)
        assert slot_sender is not None
        keys = keys_at(self._rank, paths)
        if slot_sender.end is None:
            self._unused.update(keys)
        light = None if slot_sender.end is None else UpWindow(slot_sender.began, slot_sender.end)
        self._lights.update(dict.fromkeys(keys, (group, light)))
        return keys

    def end(self, group: str) -> None:
        """The rank has let go of the circuits of ``group``."""
        self._note_turn(group)
        self.turns.end(group)
        self._lights.clear()

    def offer(self, waiting: Waiting) -> None:
        """Something is to go when the turn of its peer comes. ``free`` tells what may go now."""
        assert waiting.in_flight.slot_sender is not None
        waiting.in_flight.slot_sender.offer(waiting.part.peer, waiting)

    def free(self, group: str) -> Iterable[Post]:
        """What may go now."""
        slot_sender = self.turns.of(group)
        if slot_sender is None:
            return
        for waiting in slot_sender.free():
            lanes, peer = slot_sender.lanes(waiting.part.peer), waiting.part.peer
            key: PeerKey = ("scale-out", lanes.out, peer, lanes.into)
            yield Post(key, waiting, key in self._unused, slot_sender.began)
            self._unused.discard(key)

    def allow_until(self, connection: Connection) -> None:
        """Let a connection know how long its circuit has light, if it has not heard."""
        if connection.key in self._lights:
            group, light = self._lights.pop(connection.key)
            connection.allow_until(light)
            self._used.setdefault(group, {})[connection] = connection.sent_bytes

    def _note_turn(self, group: str) -> None:
        """What went in the last slot, for the timeline."""
        heard, used = self._heard.pop(group, None), self._used.pop(group, {})
        if heard is not None:
            slot_window, told = heard
            sent = sum(connection.sent_bytes - before for connection, before in used.items())
            fields = {"group": group, "slot": slot_window.number, "late_s": told - slot_window.began, "bytes": sent}
            self._note("sent_in_slot", slot_window.began, max(slot_window.began, told), **fields)
