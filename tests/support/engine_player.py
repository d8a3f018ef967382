"""Plays a job against the engine: keeps what was acknowledged and what is dark, and checks every action."""

from __future__ import annotations

from dataclasses import dataclass, field

from controllers.circuits.circuits import Circuit
from controllers.engine.actions import Ack, Action, Darken, Note, Refuse
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from workloads.program import Group


@dataclass
class Player:
    """The world around an engine."""

    engine: Engine
    groups: dict[str, Group] = field(default_factory=dict)
    now: float = 0.0
    dark: list[Darken] = field(default_factory=list)
    waiting: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    held: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    refused: list[Refuse] = field(default_factory=list)

    def start(self, job: Job, policy: Policy) -> None:
        """Register and light the starting circuits; everybody checks in."""
        self.groups |= {g.name: g for g in job.groups}
        self.do(self.engine.register(job, policy, self.now))
        self.light_all()
        for group in job.groups:
            for rank in group.members:
                self.engine.check_in(rank, group.name, self.now)

    def light_all(self) -> None:
        """Light everything that is dark, the oldest first."""
        while self.dark:
            self.light(0)

    def light(self, which: int) -> None:
        """End one reconfiguration."""
        darken = self.dark.pop(which)
        self.now += darken.delay_s
        self.do(self.engine.reconfigured(darken.reconfiguration_id, self.now))

    def ask(self, group: str, index: int, ranks: tuple[int, ...] | None = None) -> None:
        """Members ask (all by default)."""
        for rank in self.groups[group].members if ranks is None else ranks:
            self.waiting.setdefault((group, index), set()).add(rank)
            self.do(self.engine.request(rank, group, index, self.now))

    def release(self, group: str, index: int, ranks: tuple[int, ...] | None = None) -> None:
        """Members release (all by default)."""
        for rank in self.groups[group].members if ranks is None else ranks:
            key = group, index
            self.held[key].discard(rank)
            if not self.held[key]:
                del self.held[key]
            self.do(self.engine.release(rank, group, index, self.now))

    def granted(self, group: str, index: int = 0) -> bool:
        """Whether the group has its ack and has not released it."""
        return (group, index) in self.held

    def do(self, actions: list[Action]) -> None:
        """Take the engine's actions, checking that no circuit in use is ever torn."""
        for action in actions:
            if isinstance(action, Darken):
                assert not action.ports & {p for d in self.dark if d.switch == action.switch for p in tuned(d)}
                torn = action.before.circuits - action.after.circuits
                assert not torn & self.used(action.switch), f"{action} tears what is held"
                self.dark.append(action)
            elif isinstance(action, Ack):
                key = action.group, action.index
                self.waiting[key].discard(action.rank)
                self.held.setdefault(key, set()).add(action.rank)
                assert self.circuits(action.group) <= self.lit_circuits(), f"{action} without its light"
            elif isinstance(action, Refuse):
                self.refused.append(action)
            elif isinstance(action, Note):
                self.notes.append(action)

    def circuits(self, group: str) -> set[tuple[str, Circuit]]:
        """The circuits of a group's paths, from the engine's plan and the Opus wiring."""
        from controllers.policies.wiring import group_paths, path_circuits

        switch = self.engine.plan.rail_of(self.groups[group].members[0])
        return {(switch.name, c) for c in path_circuits(switch, group_paths(self.groups[group]))}

    def used(self, switch: str) -> set[Circuit]:
        """The circuits in use on a switch."""
        return {c for group, _ in self.held for name, c in self.circuits(group) if name == switch}

    def lit_circuits(self) -> set[tuple[str, Circuit]]:
        """All circuits that pass light."""
        return {(name, c) for name, matching in self.engine.optical.circuits_up().items() for c in matching}


def tuned(darken: Darken) -> frozenset[int]:
    """The ports that get a new circuit."""
    return darken.ports & darken.after.ports
