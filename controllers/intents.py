"""What somebody waits for: a group's circuits, a job's starting circuits, a rewiring by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.circuits import Matching
from controllers.jobs import Job
from controllers.ocs import OpticalSwitch, UpdateMode
from controllers.policy import Path, Policy, Wiring
from controllers.readiness import Readiness, Round
from railyard.errors import CircuitError
from workloads.program import Group


@dataclass(eq=False, kw_only=True)
class Intent:
    """Circuits that somebody waits for. ``awaiting`` are its reconfigurations under way."""

    asked: float
    delay_s: float
    awaiting: set[int] = field(default_factory=set)
    tries: int = 0
    said_why: bool = False

    def label(self) -> str:
        """How the timeline and messages call it."""
        raise NotImplementedError

    def wanted(self, target: Wiring) -> Wiring:
        """The complete circuits of each switch that must stand."""
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class GroupIntent(Intent):
    """All members of a group have asked."""

    job: Job
    policy: Policy
    readiness: Readiness
    turn: Round

    @property
    def group(self) -> Group:
        """The group that asked."""
        return self.readiness.group

    def label(self) -> str:
        """Its name."""
        return self.group.name

    def wanted(self, target: Wiring) -> Wiring:
        """What the policy wants."""
        return self.policy.wanted(self.group, target)

    def paths(self, lit: Wiring) -> tuple[Path, ...]:
        """The paths of the group over what is lit."""
        return tuple(self.policy.paths(self.group, lit))


@dataclass(eq=False, kw_only=True)
class StartIntent(Intent):
    """A job was registered and its starting circuits must stand."""

    job: Job
    wiring: Wiring
    kept: Mapping[str, frozenset[int]]

    def label(self) -> str:
        """Says which job."""
        return f"start of {self.job.name}"

    def wanted(self, target: Wiring) -> Wiring:
        """What the policy wanted at registration, beside the circuits of other jobs (``kept`` are their ports)."""
        wiring = {}
        for name, matching in self.wiring.items():
            kept = self.kept.get(name, frozenset())
            others = [c for c in target.get(name, Matching()) if kept.issuperset(c.ports)]
            wiring[name] = Matching([*others, *matching])
        return wiring


@dataclass(eq=False, kw_only=True)
class RewireIntent(Intent):
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
