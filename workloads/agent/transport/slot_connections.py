"""Slots of one agent: how long the circuit under each connection is up, and what was sent in each slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from railyard.protocol import SlotWindow
from workloads.agent.transport.connection import Connection
from workloads.agent.transport.up_window import UpWindow
from workloads.rank.paths import PeerKey


class SlotConnections:
    """The connections over circuits that come in slots; ``note`` logs events."""

    def __init__(self, note: Callable[..., object]) -> None:
        self._note = note
        self._heard: dict[str, tuple[SlotWindow, float]] = {}
        """The current slot of a group, and the time at which this rank was told."""
        self._used: dict[str, dict[Connection, int]] = {}
        """The connections used in the current slot of a group, each with the bytes it had sent before."""
        self._unused: set[PeerKey] = set()
        """Paths over circuits of slots without an end on which nothing was sent yet."""
        self._windows: dict[PeerKey, tuple[str, UpWindow | None]] = {}
        """(group, up window) of circuits whose connection was not told yet, since the peer has yet to open it."""

    def begin_slot(self, group: str, slot_window: SlotWindow, paths: Iterable[PeerKey], now: float) -> None:
        """Begin a slot whose circuits make ``paths``."""
        self._note_slot(group)
        self._heard[group] = slot_window, now
        window = None
        if slot_window.until is None:
            self._unused.update(paths)
        else:
            window = UpWindow(slot_window.began, slot_window.until - slot_window.guard_s)
        self._windows.update(dict.fromkeys(paths, (group, window)))

    def end(self, group: str) -> None:
        """End the slots of ``group``: the rank has released its circuits."""
        self._note_slot(group)
        self._windows.clear()

    def is_first(self, path: PeerKey) -> bool:
        """Whether the next message is the first by ``path`` in a slot without an end.

        It waits for the tokens that the port's bucket accumulated while the circuit was dark. In a slot with an end,
        the bucket makes up for lateness, and the up window limits the amount.
        """
        first = path in self._unused
        self._unused.discard(path)
        return first

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
