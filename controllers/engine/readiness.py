"""The readiness barrier of one group: which members have checked in, requested circuits, and released them.

The k-th requests of all members form a round; ``index`` counts rounds from 0 over the whole run. A round is *held* from
its ack until the last member has released it: until then none of its circuits may change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from railyard.errors import ControlError
from workloads.program import Group

FIRST_INDEX = 0


@dataclass
class Round:
    """The requests of all members with one index: ranks that requested and released, and whether it was granted."""

    index: int
    asked_first: float
    asked_last: float
    asked: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    acked: bool = False


class Readiness:
    """The readiness barrier of one group. An invalid call raises ``ControlError`` and changes nothing."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.checked_in: set[int] = set()
        self.rounds: dict[int, Round] = {}
        self._members = frozenset(group.members)
        self._next = dict.fromkeys(group.members, FIRST_INDEX)

    def check_in(self, rank: int) -> bool:
        """Check ``rank`` in; True once all members are in."""
        self._check_member(rank)
        if rank in self.checked_in:
            raise ControlError(f"rank {rank} has already checked in to group {self.group.name}")
        self.checked_in.add(rank)
        return self.checked_in == self._members

    def request(self, rank: int, index: int, now: float) -> Round | None:
        """Take the request of ``rank`` for round ``index``; the round once it is complete, else None."""
        self._check_member(rank)
        expected = self._next[rank]
        if index != expected:
            raise ControlError(
                f"rank {rank} sent request {index} of group {self.group.name}; its next request must be {expected}"
            )
        self._next[rank] = expected + 1
        current = self.rounds.setdefault(index, Round(index, now, now))
        current.asked.add(rank)
        current.asked_last = now
        return current if current.asked == self._members else None

    def release(self, rank: int, index: int) -> Round | None:
        """Take the release of round ``index`` by ``rank``; the round (then forgotten) after the last one, else None."""
        self._check_member(rank)
        current = self.rounds.get(index)
        if current is None or not current.acked or rank in current.released:
            raise ControlError(
                f"rank {rank} released index {index} of group {self.group.name}, for which it holds no ack"
            )
        current.released.add(rank)
        if current.released != self._members:
            return None
        return self.rounds.pop(index)

    def missing(self, incomplete: Round) -> frozenset[int]:
        """The members whose request ``incomplete`` still waits for."""
        return self._members - incomplete.asked

    def _check_member(self, rank: int) -> None:
        if rank not in self._members:
            raise ControlError(
                f"rank {rank} is not a member of group {self.group.name}; its members are "
                f"{', '.join(map(str, self.group.members))}"
            )
