"""Rotations: circuits that change slot by slot while a group communicates, instead of staying up until its release.

A policy that rotates a group returns its slots; the engine steps through them cyclically as long as a member has data
to send. Sources: RotorNet (SIGCOMM'17) for the slots; PIP, arXiv 2501.18136, for the matchings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controllers.circuits.circuits import Matching
from controllers.circuits.matchings import Pairs
from railyard.errors import ConfigError
from railyard.protocol import Hop, SlotWindow
from railyard.validation import Seconds, Whole

Demand = tuple[tuple[float, ...], ...]
"""Bytes from position i of a group (row) to position j, in any unit: only proportions count."""


@dataclass(frozen=True)
class Cycle:
    """The parameters of the rotations of a job.

    ``slot_s``: how long the circuits of a slot are up, in wall-clock seconds (None: until all members have sent their
    data for this slot). ``guard_s``: the unused time at the end of such a slot, so that nothing is under way when its
    circuits go dark. ``simplex``: a circuit carries data one way, from port 1 of the sender to port 0 of the receiver,
    so a rank may send to one peer and receive from another; otherwise port 0 does both. ``demand``: the demand matrix
    for policies that use one (empty: uniform). ``most_slots``: the most slots that such a policy may use (0: any
    number). ``matchings``: pairs of positions slot by slot, in place of those that a rotor makes itself (empty: none
    are given). ``ConfigError`` for times that are out of range.
    """

    slot_s: Seconds | None = None
    guard_s: Seconds = 0.002
    simplex: bool = False
    demand: Demand = ()
    most_slots: Whole = 0
    matchings: tuple[Pairs, ...] = ()

    def scaled(self, time: float, size: float) -> Cycle:
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
    """One slot of a rotation: the circuits of the group in it (``wiring``: switch -> circuits) and its ``paths``.

    The circuits are up for ``seconds`` (wall-clock; None: until all members have sent their data for it). A path
    between different lanes is used one way only: the first rank sends and the second receives.
    """

    wiring: dict[str, Matching]
    paths: tuple[Hop, ...]
    seconds: float | None = None

    def uses(self, switch: str, port: int) -> bool:
        return switch in self.wiring and port in self.wiring[switch].ports


def circuits_in_slot(slots: Iterable[Slot], current: Slot, target: Mapping[str, Matching]) -> dict[str, Matching]:
    """All circuits of each switch in slot ``current``, given ``target``.

    Circuits of ``target`` that share a port with any of ``slots`` are removed, those of ``current`` added.
    """
    wiring: dict[str, Matching] = {}
    for slot in slots:
        for name, circuits in slot.wiring.items():
            wiring[name] = wiring.get(name, target.get(name, Matching())).without_ports(circuits.ports)
    return {name: Matching([*others, *current.wiring.get(name, ())]) for name, others in wiring.items()}


@dataclass
class RunningRotation:
    """The state of a rotation under way.

    ``number`` counts slots; the current one is up or being set up. ``moved`` are the ranks that have sent their data
    for it, ``idle`` those of them that have no data for any other slot either.
    """

    slots: tuple[Slot, ...]
    guard_s: float = 0.0
    number: int = 0
    moved: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    slot_window: SlotWindow | None = None
    """The window of the current slot; None while its circuits are being set up."""
    up_at: float = float("-inf")
    """The time from which the circuits of the current slot are up; a switch may confirm them some time before."""

    @property
    def slot(self) -> Slot:
        """The current slot, which is up or being set up."""
        return self.slots[self.number % len(self.slots)]

    def begin(self, now: float) -> SlotWindow:
        """Begin the current slot, whose circuits are up now or certain to be at ``up_at``; its window."""
        began, seconds = max(now, self.up_at), self.slot.seconds
        self.slot_window = SlotWindow(self.number, began, None if seconds is None else began + seconds, self.guard_s)
        return self.slot_window

    def report(self, rank: int, idle: bool) -> None:
        """Record that ``rank`` has sent its data for this slot; ``idle``: it has none for any other slot."""
        self.moved.add(rank)
        (self.idle.add if idle else self.idle.discard)(rank)

    def over(self, present: frozenset[int]) -> bool:
        """True when all of ``present`` have sent their data in a slot without an end, and one has data for another."""
        return self.slot.seconds is None and present <= self.moved and not present <= self.idle

    def advance(self) -> None:
        self.number += 1
        self.moved.clear()
        self.idle.clear()
        self.slot_window, self.up_at = None, float("-inf")
