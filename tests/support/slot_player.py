"""Plays a rotation against the engine: what is dark, who was told what, and checks at every action."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controllers.circuits.circuits import Matching
from controllers.engine.actions import Ack, Action, Darken, Note, Refuse, Registered, RegisterRefused, SlotEnds
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from workloads.program import Group


@dataclass
class Turner:
    """The world around an engine whose groups rotate. Time passes only as the test says."""

    engine: Engine
    groups: dict[str, Group] = field(default_factory=dict)
    now: float = 0.0
    dark: list[Darken] = field(default_factory=list)
    acks: dict[tuple[int, str], list[Ack]] = field(default_factory=dict)
    ends: list[SlotEnds] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    refused: list[Refuse] = field(default_factory=list)
    others: list[Action] = field(default_factory=list)
    blinked: set[tuple[str, int]] = field(default_factory=set)
    """Every (switch, port) that went dark since the job was registered."""

    def start(self, job: Job, policy: Policy) -> None:
        """Register, light the starting circuits, check everybody in."""
        self.groups |= {group.name: group for group in job.groups}
        self.do(self.engine.register(job, policy, self.now))
        self.light()
        assert not [a for a in self.others if isinstance(a, RegisterRefused)]
        for group in job.groups:
            for rank in group.members:
                self.do(self.engine.check_in(rank, group.name, self.now))
        self.blinked.clear()
        self.others.clear()

    def ask(self, group: str, index: int = 0) -> None:
        """All members ask."""
        for rank in self.groups[group].members:
            self.do(self.engine.request(rank, group, index, self.now))

    def light(self) -> None:
        """End everything that is dark, the oldest first."""
        while self.dark:
            darken = self.dark.pop(0)
            self.now += darken.delay_s
            self.do(self.engine.reconfigured(darken.reconfiguration_id, self.now))

    def moved(self, group: str, *ranks: int, idle: bool = False, index: int = 0, slot: int | None = None) -> None:
        """These have sent what they have for a slot (by default the one that each was told of last)."""
        for rank in ranks or self.groups[group].members:
            number = self.slot(rank, group) if slot is None else slot
            self.do(self.engine.moved(rank, group, index, number, idle, self.now))

    def release(self, group: str, *ranks: int, index: int = 0) -> None:
        """These let go."""
        for rank in ranks or self.groups[group].members:
            self.do(self.engine.release(rank, group, index, self.now))

    def over(self, ends: SlotEnds) -> None:
        """The time of a slot is over (or a call for a slot that ended before comes late)."""
        self.now = max(self.now, ends.at)
        self.do(self.engine.end_slot(ends, self.now))

    def do(self, actions: list[Action]) -> None:
        """Take actions; nobody is told of a circuit without its light."""
        for action in actions:
            match action:
                case Darken():
                    self.dark.append(action)
                    self.blinked |= {(action.switch, port) for port in action.ports}
                case Ack():
                    self.check_light(action)
                    self.acks.setdefault((action.rank, action.group), []).append(action)
                case SlotEnds():
                    self.ends.append(action)
                case Note():
                    self.notes.append(action)
                case Refuse():
                    self.refused.append(action)
                case Registered():
                    pass
                case _:
                    self.others.append(action)

    def check_light(self, ack: Ack) -> None:
        for rank, lane, peer, far in ack.paths:
            switch = self.engine.plan.rail_of(rank)
            here, there = switch.port(rank, lane).number, switch.port(peer, far).number
            assert self.standing(switch.name).peer(here) == there, f"{ack} without its light"

    def standing(self, switch: str = "rail0") -> Matching:
        """The circuits that pass light."""
        return self.engine.optical.circuits_up()[switch]

    def slot(self, rank: int, group: str) -> int:
        """The slot that ``rank`` was told of last."""
        slot_window = self.acks[rank, group][-1].slot_window
        assert slot_window is not None
        return slot_window.number

    def told(self, rank: int, group: str) -> list[int]:
        """The slots that ``rank`` was told of."""
        return [ack.slot_window.number for ack in self.acks.get((rank, group), ()) if ack.slot_window is not None]

    def slots(self) -> list[dict[str, Any]]:
        """The slots that the timeline has, in order."""
        return [note.fields | {"began": note.t, "ended": note.end} for note in self.notes if note.kind == "slot"]
