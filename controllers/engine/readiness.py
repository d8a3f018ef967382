"""The readiness barrier of one group: who has checked in, asked, been acknowledged, and released.

The k-th request of each member belong together; ``index`` counts them from 0 over the whole run. A round is *held*
from its ack until the last member has released it: until then none of its circuits may be touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from railyard.errors import ControlError
from workloads.program import Group

FIRST_INDEX = 0


@dataclass
class Round:
    """The requests of all members with one index."""

    index: int
    asked_first: float
    asked_last: float
    asked: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    acked: bool = False


class Readiness:
    """The barrier of one group. Errors are ``ControlError``, and then nothing has changed."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.checked_in: set[int] = set()
        self.rounds: dict[int, Round] = {}
        self._members = frozenset(group.members)
        self._next = dict.fromkeys(group.members, FIRST_INDEX)

    def check_in(self, rank: int) -> bool:
        """``rank`` is here; True when all are."""
        self._check_member(rank)
        if rank in self.checked_in:
            raise ControlError(f"rank {rank} checked in to group {self.group.name} already; once is right")
        self.checked_in.add(rank)
        return self.checked_in == self._members

    def ask(self, rank: int, index: int, now: float) -> Round | None:
        """``rank`` asks for round ``index``; the round when it is complete, else None."""
        self._check_member(rank)
        expected = self._next[rank]
        if index != expected:
            raise ControlError(
                f"rank {rank} asked for index {index} of group {self.group.name}; its next index is {expected}"
            )
        self._next[rank] = expected + 1
        slot_window = self.rounds.setdefault(index, Round(index, now, now))
        slot_window.asked.add(rank)
        slot_window.asked_last = now
        return slot_window if slot_window.asked == self._members else None

    def release(self, rank: int, index: int) -> Round | None:
        """``rank`` is done with round ``index``; the round (forgotten here) when all are, else None."""
        self._check_member(rank)
        slot_window = self.rounds.get(index)
        if slot_window is None or not slot_window.acked or rank in slot_window.released:
            raise ControlError(
                f"rank {rank} released index {index} of group {self.group.name}, for which it holds no ack"
            )
        slot_window.released.add(rank)
        if slot_window.released != self._members:
            return None
        return self.rounds.pop(index)

    def missing(self, slot_window: Round) -> frozenset[int]:
        """The members that ``slot_window`` still waits for."""
        return self._members - slot_window.asked

    def _check_member(self, rank: int) -> None:
        if rank not in self._members:
            raise ControlError(
                f"rank {rank} is not a member of group {self.group.name}; its members are "
                f"{', '.join(map(str, self.group.members))}"
            )
