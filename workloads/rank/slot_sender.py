"""Sending of one rank in slots as a state machine: what may be sent in the current slot, and what is reported about it.

Pure. The circuits of a rotating group come and go in slots (``controllers.circuits.rotation``); a message waits for the
slot in which its peer is connected. In a slot with an end, the connection stops in time
(``PeerConnection.allow_until``) and continues in the next slot. In a slot without an end, the rank tells the controller
when all its messages for the slot are sent and acknowledged, and then sends nothing more in it, because the circuits
may go at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from railyard.errors import ControlError
from railyard.protocol import Hop, SlotWindow

LATE_S = 0.0002
"""Part of an up window that is not planned for: a transfer may begin and end this much later than the port's rate
implies, because of scheduling delay of this machine."""

HEADROOM_BYTES = 1000
"""Bytes of an up window that are not planned for, as room for message headers; data that does not fit waits for the
next slot."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Moved:
    """Report of a rank that has sent all its messages for slot number ``slot``.

    ``idle``: the rank has no messages for other slots either.
    """

    group: str
    index: int
    slot: int
    idle: bool


@dataclass(frozen=True)
class Lanes:
    """The port by which a rank sends to a peer (``out``), and the port by which the peer receives (``into``)."""

    out: int
    into: int


class SlotSender(Generic[_T]):
    """The messages of ``rank`` for the slots of request ``index`` of ``group``; items may be of any type.

    ``send`` passes a report to the controller.
    """

    def __init__(self, rank: int, group: str, index: int, send: Callable[[Moved], None]) -> None:
        self._rank = rank
        self._group, self._index = group, index
        self._send = send
        self._waiting: dict[int, list[_T]] = defaultdict(list)
        self._under_way = 0
        self._slot: SlotWindow | None = None
        self._lanes: dict[int, Lanes] = {}
        """Lanes of the peers of the current (or last) slot."""
        self._closed = True
        self._reported: Moved | None = None

    @property
    def began(self) -> float:
        """Time since which the circuits of the current (or last) slot are up."""
        return self._slot.began if self._slot is not None else 0.0

    @property
    def end(self) -> float | None:
        """Time by which all data of the current slot must have arrived; None if the slot has no end."""
        slot_window = self._slot
        return None if slot_window is None or slot_window.until is None else slot_window.until - slot_window.guard_s

    def begin_slot(self, slot_window: SlotWindow, paths: Iterable[Hop]) -> None:
        """Begin a slot; raises ``ControlError`` for one that is too short to send anything.

        The caller then sends the items of ``free`` and, when all available items were offered, calls ``report``.
        """
        self._lanes = {}
        for rank, out, peer, into in paths:
            if rank == self._rank:
                self._lanes[peer] = Lanes(out, into)
            elif peer == self._rank and out == into:
                self._lanes[rank] = Lanes(into, out)
        self._slot, self._closed, self._reported = slot_window, False, None
        if self.end is not None and self.end - self.began <= LATE_S:
            raise ControlError(
                f"slot {slot_window.number} of group {self._group} leaves nothing beside its guard time of "
                f"{slot_window.guard_s * 1e3:.3g} ms and the {LATE_S * 1e3:g} ms that this machine may be late; "
                "use longer slots"
            )

    @property
    def peers(self) -> frozenset[int]:
        return frozenset(self._lanes)

    def lanes(self, peer: int) -> Lanes:
        return self._lanes[peer]

    def offer(self, peer: int, item: _T) -> None:
        """Queue ``item`` for ``peer``. Calls of ``free`` and ``report`` follow as after ``begin_slot``."""
        self._waiting[peer].append(item)

    def acknowledged(self) -> None:
        self._under_way -= 1
        self.report()

    def report(self) -> None:
        """Report that the current slot is done with, if it is and that was not reported yet."""
        slot_window = self._slot
        if slot_window is None or slot_window.until is not None or self._under_way or self._left_for_this_slot():
            return
        message = Moved(self._group, self._index, slot_window.number, not any(self._waiting.values()))
        self._closed = True
        if message != self._reported:
            self._reported = message
            self._send(message)

    def _left_for_this_slot(self) -> bool:
        return not self._closed and any(self._waiting.get(peer) for peer in self._lanes)

    def free(self) -> list[_T]:
        """Remove and return the items that may go now; the caller sends them at once."""
        free: list[_T] = []
        for peer in self._lanes if not self._closed else ():
            free += self._waiting.pop(peer, ())
        self._under_way += len(free)
        return free
