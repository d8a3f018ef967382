"""Plays failures against the engine on a rack: keeps what is lit and routed, and checks every action.

The oracle asks where light goes and which way packets go, not which messages were sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from engine_player import Player

from controllers.engine.actions import Ack, Action, CheckedIn, Darken, MembersChanged, Note, Registered, Reroute
from controllers.engine.engine import Engine
from controllers.engine.jobs import Detection, Job
from controllers.policies.policy import Policy
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.racks import RackTopo
from workloads.program import Group

End = tuple[int, int]
"""(rank, lane)."""


@cache
def rack(**options: Any) -> FabricPlan:
    """A rack of 4 x 2 chips with 3 ports each, in servers of 2 x 1, tenants A and B in its two rows (unless told)."""
    return describe(RackTopo(**{"torus": "4x2", "server": "2x1", "tenants": "4x1@0,0/4x1@0,1", **options}))


def rented(plan: FabricPlan, tenant: str = "A", delay_s: float = 0.015, detection: Detection | None = None) -> Job:
    """The job of a tenant: one ring over its slice."""
    assert plan.rack is not None
    return Job(tenant, (Group(tenant, "dp", plan.rack.tenant(tenant).ranks),), "test", delay_s, detection=detection)


@dataclass
class RackPlayer(Player):
    """Chips fail. ``tables`` are what the switches of an electrical torus hold."""

    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    rerouting: list[Reroute] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def on(cls, plan: FabricPlan, policy: type[Policy], *jobs: Job) -> RackPlayer:
        """A world in which ``jobs`` run."""
        world = cls(Engine(plan))
        world.tables = {name: dict(table) for name, table in world.engine.routing.held.items()}
        for job in jobs:
            world.do(world.engine.register(job, policy(plan), 0.0))
            world.settle()
            assert Registered(job.name) in world.others
        return world

    def fail(self, rank: int, cause: str = "test") -> None:
        """A chip fails."""
        self.do(self.engine.chip_failed(rank, cause, self.now))

    def settle(self) -> None:
        """Everything that is under way ends well, the oldest first."""
        while self.dark or self.rerouting:
            if self.dark:
                self.light(0)
            else:
                self.route(0)

    def route(self, which: int) -> None:
        """The delay of a re-routing ends, and the switches do it."""
        action = self.rerouting.pop(which)
        self.now += action.delay_s
        for name, table in self.engine.routes_due(action.reconfiguration_id).tables.items():
            for mac, port in table.items():
                if port is None:
                    del self.tables[name][mac]
                else:
                    self.tables[name][mac] = port
        self.do(self.engine.rerouted(action.reconfiguration_id, self.now))

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            super().do([action])
            match action:
                case Reroute():
                    self.rerouting.append(action)
                case MembersChanged(job):
                    self.changed.append(job)
                    number = self.engine.registry.job(job).number
                    assert number > self.numbers.get(job, 0), "numbers increase"
                    self.numbers[job] = number

    def check_dark(self, action: Darken) -> None:
        """Only one job's circuits change, and only what differs."""
        super().check_dark(action)
        assert action.ports == action.before.changed_ports(action.after), "only what differs changes"
        owner = self.owners()
        touched = {owner[port] for port in action.ports if port in owner}
        assert len(touched) <= 1, f"{action} touches jobs {touched}"

    def acked(self, ack: Ack) -> None:
        """Tests of failures look at the light itself."""

    @property
    def told(self) -> list[CheckedIn]:
        return [action for action in self.others if isinstance(action, CheckedIn)]

    def owners(self) -> dict[int, str]:
        """The job that every port of the rack belongs to, by where circuits of jobs lead.

        A member that is being replaced is in its job until the change is done: its circuits must come to no harm if
        that fails. A spare is in no job before: while the splice waits, its ports have nothing but what a job that
        ended left on them, which the start of another job may remove; while they are dark, ``super().check_dark``
        watches them.
        """
        (switch,) = self.engine.plan.network("rail")
        jobs = self.engine.registry.jobs.items()
        return {p.number: name for name, member in jobs for p in switch.ports if p.rank in member.placed}

    # ---- what is seen --------------------------------------------------------------------------------------------

    def goes(self) -> dict[End, End]:
        """Where light goes that a chip sends, by rank and lane."""
        (switch,) = self.engine.plan.network("rail")
        end = {port.number: (port.rank, port.lane) for port in switch.ports}
        lit = self.engine.optical.circuits_up()[switch.name]
        return {end[a]: end[b] for c in lit for a, b in (c.ports, c.ports[::-1])}

    def light_at(self, *members: int) -> dict[End, End]:
        """Where light goes from ports of ``members``."""
        return {end: there for end, there in self.goes().items() if end[0] in members}

    def kinds(self, job: str | None = None) -> list[str]:
        """The kinds of all notes on failures."""
        wanted = ("failed", "replaced", "stranded")
        return [n.kind for n in self.notes if n.kind in wanted and job in (None, n.fields["job"])]

    def note(self, kind: str) -> Note:
        """The last note of this kind."""
        return [note for note in self.notes if note.kind == kind][-1]


def ranks(job: Job) -> set[int]:
    """All members of a job."""
    return {rank for group in job.groups for rank in group.members}


def ring(*members: int) -> dict[End, End]:
    """The light of a ring on a rack with 3 ports a chip: lane 1 to lane 0 of the next, and back."""
    following = [*members[1:], members[0]]
    pairs = {(a, 1): (b, 0) for a, b in zip(members, following, strict=True)}
    return pairs | {b: a for a, b in pairs.items()}
