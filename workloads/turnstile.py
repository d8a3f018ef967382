"""One rank's part in a rotation as a state machine: what may be sent in the slot that stands, and what is said of it.

Pure. The circuits of a rotating group come and go in slots (``controllers.rotation``); what is to be sent waits until
its peer's turn comes. In a slot with an end its connection stops in time (``Connection.shine``) and goes on in the next
one. In a slot without, the rank tells the controller when everything it had for it is sent and acknowledged, and then
sends nothing more in it: the circuits may go at any moment.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from controllers.rotation import Turn
from railyard.errors import ControlError
from workloads.paths import Path

_T = TypeVar("_T")

_ROUNDING_S = 1e-6


@dataclass(frozen=True)
class Moved:
    """The rank has sent what it had for slot number ``slot``; ``idle``: and has nothing for any other."""

    group: str
    index: int
    slot: int
    idle: bool


@dataclass(frozen=True)
class Lanes:
    """By which port a rank sends in a rotation, and by which it receives."""

    out: int
    into: int


class Turnstile(Generic[_T]):
    """The turns of ``rank`` in request ``index`` of ``group``. What waits may be of any kind; it has a peer and a size.

    ``bytes_per_s`` is the payload that its port carries; ``say`` tells the controller. ``whole``: what does not fit
    into what is left of a slot is not begun in it (as the model has it).
    """

    def __init__(
        self,
        rank: int,
        group: str,
        index: int,
        bytes_per_s: float,
        say: Callable[[Moved], None],
        *,
        whole: bool = False,
    ) -> None:
        self._rank = rank
        self._group, self._index = group, index
        self._bytes_per_s = bytes_per_s
        self._say = say
        self._whole = whole
        self._waiting: dict[int, deque[tuple[int, _T]]] = defaultdict(deque)
        self._under_way = 0
        self._turn: Turn | None = None
        self._peers: frozenset[int] = frozenset()
        self._booked = 0.0
        self._closed = True
        self._said: Moved | None = None
        self.lanes = Lanes(0, 0)

    @property
    def began(self) -> float:
        """Since when the slot that stands (or the last one) has had its light."""
        return self._turn.began if self._turn is not None else 0.0

    @property
    def end(self) -> float | None:
        """When all that is sent in the slot that stands must be there; None if it has no end."""
        turn = self._turn
        return None if turn is None or turn.until is None else turn.until - turn.guard_s

    @property
    def budget(self) -> float:
        """Bytes that the port carries in the slot that stands (infinity if it has no end)."""
        return float("inf") if self.end is None else (self.end - self.began) * self._bytes_per_s

    @property
    def slot(self) -> int:
        """The number of the slot that stands, or of the last one (-1: none came yet)."""
        return self._turn.number if self._turn is not None else -1

    def stands(self, turn: Turn, paths: Iterable[Path], now: float) -> list[_T]:
        """A slot has come: what may go now."""
        mine = []
        for rank, out, peer, into in paths:
            self.lanes = Lanes(out, into)
            mine += [peer] if rank == self._rank else [rank] if peer == self._rank and out == into else []
        self._turn, self._peers = turn, frozenset(mine)
        self._booked, self._closed, self._said = turn.began, False, None
        return self._go(now)

    def offer(self, peer: int, size: int, item: _T, now: float) -> list[_T]:
        """``item`` of ``size`` bytes is to go to ``peer``: what may go now."""
        self._waiting[peer].append((size, item))
        return self._go(now)

    def over(self) -> None:
        """Something that went is acknowledged by the peer's kernel."""
        self._under_way -= 1
        self.report()

    def report(self) -> None:
        """Say that this slot is done with, if it is and that was not said."""
        turn = self._turn
        if turn is None or turn.until is not None or self._under_way or self._left_for_this_slot():
            return
        message = Moved(self._group, self._index, turn.number, not any(self._waiting.values()))
        self._closed = True
        if message != self._said:
            self._said = message
            self._say(message)

    def _left_for_this_slot(self) -> bool:
        return not self._closed and any(self._waiting[peer] for peer in self._peers)

    def _go(self, now: float) -> list[_T]:
        """Take what may go off the queues; whoever calls sends it at once."""
        free: list[_T] = []
        for peer in self._peers if not self._closed else ():
            queue = self._waiting[peer]
            while queue and self._fits(queue[0][0], now):
                size, item = queue.popleft()
                self._booked = max(self._booked, now) + size / self._bytes_per_s
                self._under_way += 1
                free.append(item)
        self.report()
        return free

    def _fits(self, size: int, now: float) -> bool:
        """Whether ``size`` bytes may be begun."""
        end = self.end
        if end is None or not self._whole:
            return True
        if size / self._bytes_per_s > end - self.began + _ROUNDING_S:
            takes_ms, has_ms = size / self._bytes_per_s * 1e3, (end - self.began) * 1e3
            raise ControlError(
                f"a transfer of {size} bytes takes {takes_ms:.3g} ms, and slot {self.slot} of group {self._group} has "
                f"{has_ms:.3g} ms; cut it into pieces or make slots longer"
            )
        return max(self._booked, now) + size / self._bytes_per_s <= end + _ROUNDING_S
