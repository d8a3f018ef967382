"""What somebody waits for: a group's circuits, a job's starting circuits, a spare's, a rewiring by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import OpticalSwitch, UpdateMode
from controllers.circuits.rotation import RunningRotation, circuits_in_slot
from controllers.engine.actions import Action, Registered, RegisterRefused, Rewired, RewireRefused
from controllers.engine.jobs import Job
from controllers.engine.readiness import Readiness, Round
from controllers.policies.policy import Policy, Wiring
from railyard.errors import CircuitError
from railyard.protocol import Hop
from workloads.program import Group


@dataclass(eq=False, kw_only=True)
class PendingRequest:
    """Circuits that somebody waits for. ``awaiting`` are its reconfigurations under way.

    ``reroutes``: the routes of an electrical torus have to be brought up to date for it, once. ``changed`` are the
    (switch, port) whose circuits have changed for it.
    """

    asked: float
    delay_s: float
    reroutes: bool = False
    awaiting: set[int] = field(default_factory=set)
    changed: set[tuple[str, int]] = field(default_factory=set)
    tries: int = 0
    said_why: bool = False

    def label(self) -> str:
        """How the timeline and messages call it."""
        raise NotImplementedError

    def wanted(self, target: Wiring) -> Wiring:
        """The complete circuits of each switch that must stand."""
        raise NotImplementedError

    @property
    def quiet(self) -> bool:
        """Whether nobody sends over its circuits before it is told that they stand."""
        return False

    def own(self) -> Wiring:
        """The circuits of it that must pass light before it is done."""
        return {}

    def delayed(self) -> None:
        """The delay before its routes are sent is over."""

    def done(self, now: float) -> list[Action]:
        """They do."""
        raise NotImplementedError

    def given_up(self, reason: str, now: float) -> list[Action]:
        """They never will."""
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class GroupRequest(PendingRequest):
    """All members of a group have asked. (What is done for it when it is granted:
    ``controllers.engine.request_queue``.)

    ``rotating``: its circuits take turns instead of standing until it is done.
    """

    job: Job
    policy: Policy
    readiness: Readiness
    slot_window: Round
    rotating: RunningRotation | None = None

    @property
    def group(self) -> Group:
        """The group that asked."""
        return self.readiness.group

    @property
    def quiet(self) -> bool:
        """In a rotation everybody knows the turns."""
        return self.rotating is not None

    @cached_property
    def turning(self) -> tuple[tuple[str, int], ...]:
        """The (switch, port) that a rotation uses in any of its slots: all are its own from the first to the last."""
        slots = self.rotating.slots if self.rotating is not None else ()
        return tuple({(name, port) for slot in slots for name, own in slot.wiring.items() for port in own.ports})

    def label(self) -> str:
        """Its name."""
        return self.group.name

    def wanted(self, target: Wiring) -> Wiring:
        """What the policy wants: of a rotation the slot that is due, without the circuits of the others."""
        if self.rotating is None:
            return self.policy.wanted(self.group, target)
        return circuits_in_slot(self.rotating.slots, self.rotating.slot, target)

    def paths(self, lit: Wiring) -> tuple[Hop, ...]:
        """The paths of the group over what is lit."""
        if self.rotating is not None:
            return self.rotating.slot.paths
        return tuple(self.policy.paths(self.group, lit))


@dataclass(eq=False, kw_only=True)
class StartRequest(PendingRequest):
    """A job was registered and its starting circuits must stand. ``forget`` takes it off the books if they cannot."""

    job: Job
    wiring: Wiring
    kept: Callable[[], Mapping[str, frozenset[int]]]
    forget: Callable[[], object]

    def label(self) -> str:
        """Says which job."""
        return f"start of {self.job.name}"

    def wanted(self, target: Wiring) -> Wiring:
        """What the policy wanted at registration, beside the circuits of other jobs (``kept`` tells their ports)."""
        wiring, kept = {}, self.kept()
        for name, matching in self.wiring.items():
            ports = kept.get(name, frozenset())
            others = [c for c in target.get(name, Matching()) if ports.issuperset(c.ports)]
            wiring[name] = Matching([*others, *matching])
        return wiring

    def own(self) -> Wiring:
        """The policy's circuits."""
        return self.wiring

    def done(self, now: float) -> list[Action]:
        """The job may begin."""
        return [Registered(self.job.name)]

    def given_up(self, reason: str, now: float) -> list[Action]:
        """The job is forgotten."""
        self.forget()
        return [RegisterRefused(self.job.name, reason)]


@dataclass(eq=False, kw_only=True)
class SpliceRequest(PendingRequest):
    """Somebody stands in for a member that failed, and the circuits of the job's new groups must stand.

    ``mine`` are the ports of all who are in the job or were before: no circuit of others is touched. ``broken`` are the
    broken ports of a switch: a circuit that needs one is left out, since its chip is the next to be given up, or works
    with the ports it has left.
    """

    job: str
    wiring: Wiring
    broken: Callable[[str], frozenset[int]]
    mine: Mapping[str, frozenset[int]]
    arrive: Callable[[], None]
    settle: Callable[[float], list[Action]]
    strand: Callable[[str, float], list[Action]]

    def label(self) -> str:
        """Says which job."""
        return f"splice of {self.job}"

    def wanted(self, target: Wiring) -> Wiring:
        """The job's circuits in place of those it had, beside all others."""
        wiring = {}
        for name in self.mine.keys() | self.wiring.keys():
            ports = self.mine.get(name, frozenset())
            others = [c for c in target.get(name, Matching()) if ports.isdisjoint(c.ports)]
            wiring[name] = Matching([*others, *self._sound(name)])
        return wiring

    def own(self) -> Wiring:
        """The circuits of the new groups."""
        return {name: Matching(self._sound(name)) for name in self.wiring}

    def _sound(self, name: str) -> list[Circuit]:
        """The job's circuits on a switch that can be."""
        broken = self.broken(name)
        return [circuit for circuit in self.wiring.get(name, ()) if broken.isdisjoint(circuit.ports)]

    def delayed(self) -> None:
        """The new members have their place on the torus."""
        self.arrive()

    def done(self, now: float) -> list[Action]:
        """The new members may begin."""
        return self.settle(now)

    def given_up(self, reason: str, now: float) -> list[Action]:
        """The job has nobody."""
        return self.strand(reason, now)


@dataclass(eq=False, kw_only=True)
class RerouteRequest(PendingRequest):
    """A chip that no job is in has failed, and packets of others may have gone through it."""

    rank: int

    def label(self) -> str:
        """Says round whom."""
        return f"detour round rank {self.rank}"

    def wanted(self, target: Wiring) -> Wiring:
        """No circuit changes."""
        return {}

    def done(self, now: float) -> list[Action]:
        """Nobody needs to be told."""
        return []

    def given_up(self, reason: str, now: float) -> list[Action]:
        """Nobody needs to be told."""
        return []


@dataclass(eq=False, kw_only=True)
class RewireRequest(PendingRequest):
    """Somebody rewires a switch by hand."""

    ticket: object
    switch: OpticalSwitch
    matching: Matching
    mode: UpdateMode

    def label(self) -> str:
        """Says which switch."""
        return f"rewiring of {self.switch.name}"

    def wanted(self, target: Wiring) -> Wiring:
        """The matching applied in its update mode, once."""
        if self.tries and not self.matching.circuits <= self.switch.target.circuits:
            raise CircuitError(f"the circuits of {self.switch.name} were taken away again while they were tuning")
        if self.tries:
            return {}
        return {self.switch.name: self.switch.resolve(self.matching, self.mode)}

    def own(self) -> Wiring:
        """What was asked for."""
        return {self.switch.name: self.matching}

    def done(self, now: float) -> list[Action]:
        """It is tuned."""
        return [Rewired(self.ticket)]

    def given_up(self, reason: str, now: float) -> list[Action]:
        """It was not done."""
        return [RewireRefused(self.ticket, reason)]
