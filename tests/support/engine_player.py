"""The world around an engine in tests, which checks every action; time passes only as the test says.

``Player`` plays jobs whose groups request and release, ``Turner`` those whose groups rotate; racks whose chips fail are
in ``rack_player``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from controllers.circuits.circuits import Circuit, Matching
from controllers.engine.actions import Ack, Action, Darken, Note, Refuse, RegisterRefused, SlotEnds
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from controllers.policies.wiring import group_paths, path_circuits
from workloads.program import Group


@dataclass
class Player:
    """Members ask and release. No port may be in two reconfigurations, and no circuit in use may be torn."""

    engine: Engine
    groups: dict[str, Group] = field(default_factory=dict)
    now: float = 0.0
    dark: list[Darken] = field(default_factory=list)
    waiting: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    held: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    refused: list[Refuse] = field(default_factory=list)
    others: list[Action] = field(default_factory=list)
    """Actions that are none of these, in order."""

    def start(self, job: Job, policy: Policy) -> None:
        """Register and light the starting circuits; everybody checks in."""
        self.groups |= {group.name: group for group in job.groups}
        self.do(self.engine.register(job, policy, self.now))
        self.settle()
        assert not any(isinstance(action, RegisterRefused) for action in self.others)
        for group in job.groups:
            for rank in group.members:
                self.do(self.engine.check_in(rank, group.name, self.now))
        self.others.clear()

    def settle(self) -> None:
        """End everything that is dark, the oldest first."""
        while self.dark:
            self.light(0)

    def light(self, which: int) -> None:
        """End one reconfiguration."""
        darken = self.dark.pop(which)
        self.now += darken.delay_s
        self.do(self.engine.reconfigured(darken.reconfiguration_id, self.now))

    def refuse(self, which: int = 0, reason: str = "rack0 refused it") -> None:
        """A switch refuses a reconfiguration, and then takes its flows."""
        darken = self.dark.pop(which)
        self.do(self.engine.failed(darken.reconfiguration_id, reason, self.now))
        self.do(self.engine.bring_back(darken.switch, self.now))

    def ask(self, group: str, index: int = 0, ranks: tuple[int, ...] | None = None) -> None:
        """Members ask (all by default)."""
        for rank in self.groups[group].members if ranks is None else ranks:
            self.waiting.setdefault((group, index), set()).add(rank)
            self.do(self.engine.request(rank, group, index, self.now))

    def release(self, group: str, index: int = 0, ranks: tuple[int, ...] | None = None) -> None:
        """Members release (all by default)."""
        for rank in self.groups[group].members if ranks is None else ranks:
            self.held[group, index].discard(rank)
            if not self.held[group, index]:
                del self.held[group, index]
            self.do(self.engine.release(rank, group, index, self.now))

    def granted(self, group: str, index: int = 0) -> bool:
        """Whether the group has its ack and has not released it."""
        return (group, index) in self.held

    def do(self, actions: Iterable[Action]) -> None:
        """Take the engine's actions, checking each."""
        for action in actions:
            match action:
                case Darken():
                    self.check_dark(action)
                    self.dark.append(action)
                case Ack():
                    self.acked(action)
                case Note():
                    self.notes.append(action)
                case Refuse():
                    self.refused.append(action)
                case _:
                    self.others.append(action)

    def check_dark(self, action: Darken) -> None:
        assert not action.ports & {p for d in self.dark if d.switch == action.switch for p in d.ports & d.after.ports}
        torn = action.before.circuits - action.after.circuits
        assert not torn & self.used(action.switch), f"{action} tears what is held"

    def acked(self, ack: Ack) -> None:
        self.waiting[ack.group, ack.index].discard(ack.rank)
        self.held.setdefault((ack.group, ack.index), set()).add(ack.rank)
        for rank, lane, peer, far in ack.paths:
            switch = self.engine.plan.rail_of(rank)
            here, there = switch.port(rank, lane).number, switch.port(peer, far).number
            assert self.standing(switch.name).peer(here) == there, f"{ack} without its light"

    def used(self, switch: str) -> set[Circuit]:
        """The circuits in use on a switch, by the wiring of Opus."""
        plan = self.engine.plan.rail_of
        groups = [self.groups[name] for name, _ in self.held if plan(self.groups[name].members[0]).name == switch]
        return {c for group in groups for c in path_circuits(plan(group.members[0]), group_paths(group))}

    def standing(self, switch: str = "rail0") -> Matching:
        """The circuits that pass light."""
        return self.engine.optical.circuits_up()[switch]


@dataclass
class Turner(Player):
    """Groups rotate: who was told of which slot."""

    acks: dict[tuple[int, str], list[Ack]] = field(default_factory=dict)
    blinked: set[tuple[str, int]] = field(default_factory=set)
    """Every (switch, port) that went dark since the job was registered."""

    def start(self, job: Job, policy: Policy) -> None:
        super().start(job, policy)
        self.blinked.clear()

    def moved(self, group: str, *ranks: int, idle: bool = False, index: int = 0, slot: int | None = None) -> None:
        """These have sent what they have for a slot (by default the one that each was told of last)."""
        for rank in ranks or self.groups[group].members:
            slot_window = self.acks[rank, group][-1].slot_window
            assert slot_window is not None
            self.do(self.engine.moved(rank, group, index, slot_window.number if slot is None else slot, idle, self.now))

    def over(self, ends: SlotEnds) -> None:
        """The time of a slot is over (or a call for a slot that ended before comes late)."""
        self.now = max(self.now, ends.at)
        self.do(self.engine.end_slot(ends, self.now))

    @property
    def ends(self) -> list[SlotEnds]:
        return [action for action in self.others if isinstance(action, SlotEnds)]

    def check_dark(self, action: Darken) -> None:
        super().check_dark(action)
        self.blinked |= {(action.switch, port) for port in action.ports}

    def acked(self, ack: Ack) -> None:
        super().acked(ack)
        self.acks.setdefault((ack.rank, ack.group), []).append(ack)

    def used(self, switch: str) -> set[Circuit]:
        return set()

    def told(self, rank: int, group: str) -> list[int]:
        """The slots that ``rank`` was told of."""
        return [ack.slot_window.number for ack in self.acks.get((rank, group), ()) if ack.slot_window is not None]

    def slots(self) -> list[dict[str, Any]]:
        """The slots that the timeline has, in order."""
        return [note.fields | {"began": note.t, "ended": note.end} for note in self.notes if note.kind == "slot"]
