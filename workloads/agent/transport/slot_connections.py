"""Slots of one agent: which connection carries which message in which slot, and how long its circuit is up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from railyard.protocol import Hop, SlotWindow
from workloads.agent.transport.connection import Connection, PeerKey
from workloads.agent.transport.in_flight import SlotMessage
from workloads.agent.transport.paths import keys_at
from workloads.agent.transport.slot_sender import Moved, SlotScheduler
from workloads.agent.transport.up_window import UpWindow


class Post(NamedTuple):
    """A message to be sent now over the connection ``key``; ``since`` is the time at which its slot began.

    ``fresh``: the first message in a slot without an end, which waits for the tokens that the port's bucket accumulated
    while the circuit was dark. In a slot with an end, the bucket makes up for lateness, and the up window limits the
    amount.
    """

    key: PeerKey
    message: SlotMessage
    fresh: bool
    since: float


class SlotConnections:
    """The groups of ``rank`` whose circuits come in slots; ``send`` tells the controller, ``note`` logs events."""

    def __init__(self, rank: int, send: Callable[[Moved], None], note: Callable[..., object]) -> None:
        self._rank = rank
        self._note = note
        self._heard: dict[str, tuple[SlotWindow, float]] = {}
        """The current slot of a group, and the time at which this rank was told."""
        self._used: dict[str, dict[Connection, int]] = {}
        """The connections used in the current slot of a group, each with the bytes it had sent before."""
        self.scheduler: SlotScheduler[SlotMessage] = SlotScheduler(rank, send)
        self.groups: set[str] = set()
        """All groups whose circuits come in slots, whether one of their slots is up or not."""
        self._unused: set[PeerKey] = set()
        """Connections over circuits of slots without an end that have not sent anything yet."""
        self._windows: dict[PeerKey, tuple[str, UpWindow | None]] = {}
        """(group, up window) of circuits whose connection was not told yet, since the peer has yet to open it."""

    def begin_slot(
        self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float
    ) -> list[PeerKey]:
        """Begin a slot and return the connections over its circuits; ``free`` returns the messages that may go."""
        self._note_slot(group)
        self._heard[group] = slot_window, now
        self.scheduler.begin_slot(group, index, slot_window, paths)
        slot_sender = self.scheduler.of(group)
        assert slot_sender is not None
        keys = keys_at(self._rank, paths)
        if slot_sender.end is None:
            self._unused.update(keys)
        window = None if slot_sender.end is None else UpWindow(slot_sender.began, slot_sender.end)
        self._windows.update(dict.fromkeys(keys, (group, window)))
        return keys

    def end(self, group: str) -> None:
        """End the slots of ``group``: the rank has released its circuits."""
        self._note_slot(group)
        self.scheduler.end(group)
        self._windows.clear()

    def offer(self, message: SlotMessage) -> None:
        """Queue a message for the slot of its peer; ``free`` returns the messages that may go now."""
        assert message.in_flight.slot_sender is not None
        message.in_flight.slot_sender.offer(message.part.peer, message)

    def free(self, group: str) -> Iterable[Post]:
        """The messages that may go now."""
        slot_sender = self.scheduler.of(group)
        if slot_sender is None:
            return
        for waiting in slot_sender.free():
            lanes, peer = slot_sender.lanes(waiting.part.peer), waiting.part.peer
            key: PeerKey = ("scale-out", lanes.out, peer, lanes.into)
            yield Post(key, waiting, key in self._unused, slot_sender.began)
            self._unused.discard(key)

    def allow_until(self, connection: Connection) -> None:
        """Tell a connection the up window of its circuit, if it was not told yet."""
        if connection.key in self._windows:
            group, window = self._windows.pop(connection.key)
            connection.allow_until(window)
            self._used.setdefault(group, {})[connection] = connection.sent_bytes

    def _note_slot(self, group: str) -> None:
        """Log the bytes sent in the last slot."""
        heard, used = self._heard.pop(group, None), self._used.pop(group, {})
        if heard is not None:
            slot_window, told = heard
            sent = sum(connection.sent_bytes - before for connection, before in used.items())
            fields = {"group": group, "slot": slot_window.number, "late_s": told - slot_window.began, "bytes": sent}
            self._note("sent_in_slot", slot_window.began, max(slot_window.began, told), **fields)
