"""Who is late to an eager collective, and how much of it was begun meanwhile: what its members tell each other. Pure.

Nobody knows beforehand who will be late. The member of the highest rank calls the roll, whether it is late itself or
not, as a proxy beside its accelerator would. Every member says that it is ``ready``. When all but one are, these are
told who is ``late``, and begin the first phase, piece by piece. When the last one is ready too, the others are told to
``stop``: they begin no further piece, and say how many they have ``begun``. All are told the most of these: the pieces
to be ``done`` before all go on with the schedule that follows from them. Messages take the front-end network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from workloads.rank.exchange import Exchange, MessagePart
from workloads.rank.flows import Flow
from workloads.rank.paths import PeerKey

Word = Literal["ready", "late", "stop", "begun", "done"]
WORDS: tuple[Word, ...] = get_args(Word)


class Tell(NamedTuple):
    """Action: tell ``rank`` a word about ``flow``; ``number`` is a position (``late``) or one of pieces."""

    flow: Flow
    rank: int
    word: Word
    number: int = 0

    @property
    def path(self) -> PeerKey:
        return "front-end", 0, self.rank, 0


class RollCall:
    """The caller's list of the ``members`` of one collective."""

    def __init__(self, flow: Flow, members: Sequence[int]) -> None:
        self._flow, self._members = flow, members
        self._ready: list[int] = []
        self._begun: list[int] = []

    def take(self, rank: int, word: Word, number: int) -> list[Tell]:
        """Process that ``rank`` is ``ready``, or the ``number`` of pieces it has ``begun``; returns the answers."""
        others = len(self._members) - 1
        if word == "begun":
            self._begun.append(number)
            return self._all(self._members, "done", max(self._begun)) if len(self._begun) == others else []
        self._ready.append(rank)
        if len(self._ready) == others:
            (late,) = set(self._members).difference(self._ready)
            return self._all(self._ready, "late", self._members.index(late))
        return self._all(self._ready[:-1], "stop") if len(self._ready) > others else []

    def _all(self, ranks: Sequence[int], word: Word, number: int = 0) -> list[Tell]:
        return [Tell(self._flow, rank, word, number) for rank in ranks]


@dataclass
class FirstPhase:
    """The first phase of one member, in pieces of ``rounds`` rounds, from which it goes on to ``after``."""

    late: int
    """Position of the member that is late: one's own until told otherwise."""
    rounds: int = 0
    most: int = 0
    """Number of pieces that may begin; those to be done, once ``after`` is known."""
    begun: int = 0
    held: list[MessagePart] = field(default_factory=list)
    """Parts that have left, after which the next piece would have begun."""
    after: Exchange | None = None

    def goes_on(self, part: MessagePart) -> bool:
        """Whether the piece after that of ``part``, which has left, may begin; else that is remembered."""
        following = part.round // self.rounds + 1
        if following >= self.most:
            self.held.append(part)
            return False
        self.begun = max(self.begun, following + 1)
        return True

    def over(self, exchange: Exchange, unsent: int) -> bool:
        """Whether ``exchange`` has received all parts of the pieces to be done, and none of them is ``unsent``."""
        awaited = (part.round < self.most * self.rounds for part in exchange.awaited)
        return unsent == 0 and not any(awaited)
