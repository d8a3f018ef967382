"""Context of a run of training jobs: fabric, agent launcher, disks of hosts, dead hosts, and events of the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.point_run import note_circuits
from railyard.ownership import make_folder
from railyard.scale import Scale
from railyard.timeline import Event, events_in, read_events, with_gaps, write_events
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam

if TYPE_CHECKING:
    from experiments.session import Session


@dataclass
class RunContext:
    """Context of a run: ``folder`` holds events and disks of all hosts, ``dead`` are the ranks of killed hosts.

    ``notes`` are the events of the run itself, which are in ``folder`` too.

    ``clock`` is the clock of all events, in monotonic seconds.
    """

    session: Session
    launcher: AgentLauncher
    folder: Path
    scale: Scale
    dead: set[int] = field(default_factory=set)
    notes: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        make_folder(self.folder)

    def note(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Add an event of the run to the timeline, now or at ``t``."""
        self.notes.append(Event(self.clock() if t is None else t, "run", kind, None, fields))
        write_events(self.folder / "run.jsonl", self.notes[-1:])

    def note_circuits(self) -> None:
        """Note the circuits that stand now, and failed ports."""
        note_circuits(self.session, self.folder)

    def disk(self, rank: int) -> str:
        """The folder that represents the disk of a host."""
        path = self.folder / "disks" / f"g{rank}"
        make_folder(path)
        return str(path)

    def launch(self, configs: Sequence[AgentConfig]) -> AgentTeam:
        """Start the agents of hosts that are alive; dead hosts start none, as dead machines would."""
        living = [config for config in configs if config.rank not in self.dead]
        fds = [self.session.net.netns_fd(f"g{config.rank}") for config in living]
        return self.launcher.launch(living, fds)

    def kill(self, rank: int, job: str, team: AgentTeam | None) -> None:
        """Kill a chip: cut its links and end its agent, if there is one, at once."""
        self.dead.add(rank)
        began = self.clock()
        self.session.net.cut(f"g{rank}")
        if team is not None:
            team.kill(rank)
        self.note("fault", began, job=job, rank=rank, what="killed: links cut, agent ended")

    def events(self) -> list[Event]:
        """All events of agents, run and controller so far, in order of time."""
        controller = self.session.data / "controller.jsonl"
        found = [event for file in sorted(self.folder.glob("*.jsonl")) for event in read_events(file)]
        if controller.exists():
            with controller.open(encoding="utf-8", errors="replace") as lines:
                found += with_gaps(events_in(lines))
        return sorted(found, key=lambda event: event.t)
