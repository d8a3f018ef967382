"""A rotation: circuits that come and go in turns while a group talks, instead of standing until it is done.

A policy that rotates a group gives its slots; the engine steps through them, from the first again after the last, as
long as a member has something to send. Source: RotorNet (SIGCOMM'17) for the turns; PIP, arXiv 2501.18136, for the
matchings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controllers.circuits.circuits import Matching
from railyard.errors import ConfigError
from railyard.protocol import Hop, SlotWindow

Demand = tuple[tuple[float, ...], ...]
"""Bytes from position i of a group (row) to position j; any unit will do, only proportions count."""


@dataclass(frozen=True)
class Cycle:
    """How a job wants its rotating groups to turn.

    ``slot_s``: how long the circuits of a slot pass light (wall-clock seconds; None: until everybody has sent what it
    has for this slot). ``guard_s``: how much of the end of such a slot stays unused, so that nothing is under way when
    it goes dark. ``simplex``: a circuit carries data one way, from port 1 of the sender to port 0 of the receiver, so
    that a rank may send to one and receive from another; otherwise port 0 does both. ``demand``: what positions send
    to each other, for policies that look at it (empty: everybody as much to everybody). ``most_slots``: how many slots
    such a policy may make of it (0: as many as it takes).
    """

    slot_s: float | None = None
    guard_s: float = 0.002
    simplex: bool = False
    demand: Demand = ()
    most_slots: int = 0

    def scaled(self, time: float, size: float) -> Cycle:
        """The same with times multiplied by ``time`` and demands by ``size``."""
        return replace(
            self,
            slot_s=None if self.slot_s is None else self.slot_s * time,
            guard_s=self.guard_s * time,
            demand=tuple(tuple(entry * size for entry in row) for row in self.demand),
        )

    def __post_init__(self) -> None:
        if not self.guard_s >= 0:
            raise ConfigError(f"must be 0 or more, not {self.guard_s * 1e3:g} ms", key="guard_ms")
        if self.slot_s is not None and not self.slot_s > self.guard_s:
            raise ConfigError(
                f"a slot of {self.slot_s * 1e3:g} ms leaves no time beside a guard time of {self.guard_s * 1e3:g} ms; "
                "make it longer",
                key="slot_ms",
            )


@dataclass(frozen=True)
class Slot:
    """One turn: ``wiring`` are the group's own circuits in it (switch -> circuits), ``paths`` what may be sent over
    them. ``seconds`` that they pass light (wall-clock), None: until all members have sent what they have for it.

    A path between different lanes is used one way only: the first rank sends and the second receives.
    """

    wiring: dict[str, Matching]
    paths: tuple[Hop, ...]
    seconds: float | None = None

    def uses(self, switch: str, port: int) -> bool:
        """Whether one of its circuits ends there."""
        return switch in self.wiring and port in self.wiring[switch].ports


def circuits_in_slot(slots: Iterable[Slot], due: Slot, target: Mapping[str, Matching]) -> dict[str, Matching]:
    """All circuits of each switch in slot ``due``: its own in place of whatever has ports of any of ``slots``."""
    wiring: dict[str, Matching] = {}
    for slot in slots:
        for name, circuits in slot.wiring.items():
            wiring[name] = wiring.get(name, target.get(name, Matching())).without_ports(circuits.ports)
    return {name: Matching([*others, *due.wiring.get(name, ())]) for name, others in wiring.items()}


@dataclass
class RunningRotation:
    """A rotation under way: the ``number`` of the slot that stands or is being set up, who has sent its part of it
    (``moved``), and who of those has nothing for any other slot either (``idle``).
    """

    slots: tuple[Slot, ...]
    guard_s: float = 0.0
    number: int = 0
    moved: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    slot_window: SlotWindow | None = None
    """The slot that stands; None while it is being set up."""
    up_at: float = float("-inf")
    """Since when the circuits of the slot that is being set up pass light; a switch may say so some time before."""

    @property
    def slot(self) -> Slot:
        """The slot that stands or is being set up."""
        return self.slots[self.number % len(self.slots)]

    def begin(self, now: float) -> SlotWindow:
        """Its circuits pass light, or surely will at ``up_at``."""
        began, seconds = max(now, self.up_at), self.slot.seconds
        self.slot_window = SlotWindow(self.number, began, None if seconds is None else began + seconds, self.guard_s)
        return self.slot_window

    def report(self, rank: int, idle: bool) -> None:
        """``rank`` has sent its part of this slot; ``idle``: and has nothing for any other."""
        self.moved.add(rank)
        (self.idle.add if idle else self.idle.discard)(rank)

    def over(self, present: frozenset[int]) -> bool:
        """Whether a slot without an end is over for those who are ``present``, and somebody waits for another."""
        return self.slot.seconds is None and present <= self.moved and not present <= self.idle

    def advance(self) -> None:
        """On to the next slot."""
        self.number += 1
        self.moved.clear()
        self.idle.clear()
        self.slot_window, self.up_at = None, float("-inf")
