"""The rotations that the groups of one rank are in: slots come in, what may be sent goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from railyard.protocol import Hop, SlotWindow
from workloads.agent.transport.slot_sender import Moved, SlotSender

_T = TypeVar("_T")


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
