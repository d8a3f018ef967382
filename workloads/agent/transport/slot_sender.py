"""One rank's part in a rotation as a state machine: what may be sent in the slot that stands, and what is said of it.

Pure. The circuits of a rotating group come and go in slots (``controllers.circuits.rotation``); what is to be sent
waits until its peer's turn comes. In a slot with an end its connection stops in time (``Connection.allow_until``) and
goes on in the next one. In a slot without, the rank tells the controller when everything it had for it is sent and
acknowledged, and then sends nothing more in it: the circuits may go at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from railyard.errors import ControlError
from railyard.protocol import Hop, SlotWindow
from workloads.agent.transport.pacing import LATE_S

_T = TypeVar("_T")


@dataclass(frozen=True)
class Moved:
    """The rank has sent what it had for slot number ``slot``; ``idle``: and has nothing for any other."""

    group: str
    index: int
    slot: int
    idle: bool


@dataclass(frozen=True)
class Lanes:
    """By which of its ports a rank sends to a peer, and by which of its own that one receives."""

    out: int
    into: int


class SlotSender(Generic[_T]):
    """The turns of ``rank`` in request ``index`` of ``group``. What waits may be of any kind.

    ``say`` tells the controller.
    """

    def __init__(self, rank: int, group: str, index: int, say: Callable[[Moved], None]) -> None:
        self._rank = rank
        self._group, self._index = group, index
        self._say = say
        self._waiting: dict[int, list[_T]] = defaultdict(list)
        self._under_way = 0
        self._turn: SlotWindow | None = None
        self._lanes: dict[int, Lanes] = {}
        """The peers of the slot that stands (or stood last)."""
        self._closed = True
        self._said: Moved | None = None

    @property
    def began(self) -> float:
        """Since when the slot that stands (or the last one) has had its light."""
        return self._turn.began if self._turn is not None else 0.0

    @property
    def end(self) -> float | None:
        """When all that is sent in the slot that stands must be there; None if it has no end."""
        slot_window = self._turn
        return None if slot_window is None or slot_window.until is None else slot_window.until - slot_window.guard_s

    def stands(self, slot_window: SlotWindow, paths: Iterable[Hop]) -> None:
        """A slot has come. ``free`` tells what may go, ``report`` follows when all that there is was offered.

        ``ControlError`` for one that is over before anything could be sent.
        """
        self._lanes = {}
        for rank, out, peer, into in paths:
            if rank == self._rank:
                self._lanes[peer] = Lanes(out, into)
            elif peer == self._rank and out == into:
                self._lanes[rank] = Lanes(into, out)
        self._turn, self._closed, self._said = slot_window, False, None
        if self.end is not None and self.end - self.began <= LATE_S:
            raise ControlError(
                f"slot {slot_window.number} of group {self._group} leaves nothing beside its guard time of "
                f"{slot_window.guard_s * 1e3:.3g} ms and the "
                f"{LATE_S * 1e3:g} ms that this machine may be late; longer slots are right"
            )

    @property
    def peers(self) -> frozenset[int]:
        """To whom something may go in the slot that stands."""
        return frozenset(self._lanes)

    def lanes(self, peer: int) -> Lanes:
        """By which ports something goes to a peer of the slot that stands."""
        return self._lanes[peer]

    def offer(self, peer: int, item: _T) -> None:
        """``item`` is to go to ``peer``. ``free`` and ``report`` follow as after ``stands``."""
        self._waiting[peer].append(item)

    def over(self) -> None:
        """Something that went is acknowledged by the peer's kernel."""
        self._under_way -= 1
        self.report()

    def report(self) -> None:
        """Say that this slot is done with, if it is and that was not said."""
        slot_window = self._turn
        if slot_window is None or slot_window.until is not None or self._under_way or self._left_for_this_slot():
            return
        message = Moved(self._group, self._index, slot_window.number, not any(self._waiting.values()))
        self._closed = True
        if message != self._said:
            self._said = message
            self._say(message)

    def _left_for_this_slot(self) -> bool:
        return not self._closed and any(self._waiting.get(peer) for peer in self._lanes)

    def free(self) -> list[_T]:
        """Take what may go off the queues; whoever calls sends it at once."""
        free: list[_T] = []
        for peer in self._lanes if not self._closed else ():
            free += self._waiting.pop(peer, ())
        self._under_way += len(free)
        return free


class SlotScheduler(Generic[_T]):
    """The turnstiles of ``rank`` by group; ``say`` tells the controller."""

    def __init__(self, rank: int, say: Callable[[Moved], None]) -> None:
        self._rank = rank
        self._say = say
        self._found: dict[str, SlotSender[_T]] = {}

    def of(self, group: str) -> SlotSender[_T] | None:
        """The turnstile of ``group`` while its circuits take turns."""
        return self._found.get(group)

    def stands(self, group: str, index: int, slot_window: SlotWindow, paths: Iterable[Hop]) -> None:
        """A slot of ``group`` has come."""
        if group not in self._found:
            self._found[group] = SlotSender(self._rank, group, index, self._say)
        self._found[group].stands(slot_window, paths)

    def report(self, group: str) -> None:
        """Say that a slot is done with, if there is nothing to send in it."""
        if group in self._found:
            self._found[group].report()

    def end(self, group: str) -> None:
        """The rank has let go of the circuits of ``group``."""
        self._found.pop(group, None)
