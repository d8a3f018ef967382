"""One point on a fabric that is up: starts agents and sampler, reads counters, collects events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from experiments.script import RankPlace, ScriptTeam, UserScript, rendezvous_port
from experiments.session import CounterReader, Session
from measure.live.delivery import Delivery, PortCounters, delivery
from measure.live.interference import wait_for_quiet
from measure.results.results import SCRIPTS
from railyard.errors import ControlError
from railyard.ownership import make_folder
from railyard.point_folder import BESIDE, NOTES, events_of
from railyard.scale import Scale
from railyard.timeline import Event, write_events
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.pytorch.script_ranks import ScriptRanks

LAST_MESSAGES_S = 0.5
"""Longest time from the controller's sockets closing to its end, in seconds."""


@dataclass
class Counted:
    """Readings of all counters of a fabric: events of queues, switches and links, and counters of the rail ports."""

    session: Session
    events: list[Event] = field(default_factory=list)
    ports: list[PortCounters] = field(default_factory=list)

    @cached_property
    def reader(self) -> CounterReader:
        return self.session.counters()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network and of the sampler; ``check`` names one that has ended."""
        return self.reader.pids

    def check(self) -> None:
        """Raise ``MachineError`` if a process of the network, or the sampler, has ended."""
        self.reader.check()

    def read(self) -> None:
        """Read the counters of queues, switches and rails, and from the second time on the errors of delayed links."""
        events, ports = self.reader.read()
        self.events += events
        self.ports.append(ports)

    @property
    def delivered(self) -> Delivery | None:
        """Delivery of the rails between the first and the last reading; None without two readings."""
        first, last = self.ports[:1], self.ports[1:][-1:]
        return delivery(*first, *last, tunnels=self.reader.tunnels) if last else None


@contextmanager
def counted(session: Session, log: Path, into: Counted | None = None) -> Iterator[Counted]:
    """Read all counters at the start and at the end, and sample links and processors into the file ``log`` between.

    Before that, wait until the machine is quiet, for as long as the settings say.
    ``MachineError`` if a process of the network, or the sampler, has ended by then.
    """
    if waited := wait_for_quiet(session.settings.wait_quiet_s):
        session.say(f"  {waited}")
    found = into or Counted(session)
    found.read()
    with found.reader.sampler(log):
        yield found
        found.check()
    found.read()


def note_circuits(session: Session, folder: Path) -> None:
    """Note in the ``folder`` of a point the circuits and failed ports of every optical switch, as the controller says.

    One request; none where the fabric has no such switch, and nothing is noted without a controller of ours.
    """
    if all(switch.kind != "ocs" for switch in session.plan.switches):
        return
    switches, now = session.call("circuits").get("switches", []), time.monotonic()
    noted = [
        {
            "rail": switch["name"],
            "circuits": switch["circuits"],
            "failed": [int(port) for port, state in switch["ports"].items() if state == "failed"],
        }
        for switch in switches
        if switch["kind"] == "ocs"
    ]
    write_events(folder / NOTES, [Event(now, "controller", "circuits", None, fields) for fields in noted])


@dataclass
class PointRun:
    """A point while it is measured on a fabric that is up: its agents, its events and its dead hosts.

    ``folder`` holds the events, and the disks of all hosts. ``clock`` is that of all events, in monotonic seconds.
    """

    session: Session
    launcher: AgentLauncher
    folder: Path
    scale: Scale
    number: int | None = None
    """That of the folder among those of the session; the events of the controller are not recorded without it."""
    clock: Callable[[], float] = time.monotonic
    dead: set[int] = field(default_factory=set)
    """The ranks of killed hosts."""
    ended: float | None = None
    """When the point ended, if that is not the end of what records it (``Runner.recording``)."""
    recorded: Sequence[Event] = ()
    """All events of the point, when it is over."""
    scripts: ScriptRanks | None = None
    """What starts the ranks of a job that is a PyTorch script."""
    say: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        make_folder(self.folder)
        self.began = self.clock()
        self.counted = Counted(self.session)

    def note(self, kind: str, t: float | None = None, end: float | None = None, **fields: Any) -> None:
        """Add an event of the run to the timeline, now or at ``t``, or from then to ``end``."""
        write_events(self.folder / NOTES, [Event(self.clock() if t is None else t, "run", kind, end, fields)])

    def counting(self) -> AbstractContextManager[Counted]:
        return counted(self.session, self.folder / "sampler.jsonl", self.counted)

    def disk(self, rank: int) -> str:
        """The folder that represents the disk of a host."""
        return str(self.folder / "disks" / f"g{rank}")

    def launch(self, configs: Sequence[AgentConfig]) -> AgentTeam:
        """Start the agents of hosts that are alive; dead hosts start none, as dead machines would."""
        living, fds = [config for config in configs if config.rank not in self.dead], self.session.netns_fds()
        return self.launcher.launch(living, [fds[config.rank] for config in living])

    def script_socket(self, rank: int, incarnation: int) -> str:
        """The socket at which an agent listens for the process of a script that drives it."""
        folder = self.session.cluster.run.path / f"script-{self.folder.name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return str(folder / f"g{rank}-{incarnation}")

    def launch_script(self, script: UserScript, members: Sequence[int], incarnation: int) -> ScriptTeam:
        """Start the ranks of a script on the hosts ``members``, each to drive the agent there."""
        assert self.scripts is not None
        session, name = self.session, self.folder.name + (f"-restart{incarnation}" if incarnation else "")
        script = replace(script, rank=replace(script.rank, resumes=incarnation > 0))
        team = ScriptTeam(self.scripts, script, self.folder.parent.parent / SCRIPTS / name, self.say)
        (front_end,), fds = session.plan.network("front-end"), session.netns_fds()
        ports = [front_end.port(rank, 0) for rank in members]
        places = [
            RankPlace(port.rank, fds[port.rank], port.interface, self.script_socket(port.rank, incarnation))
            for port in ports
        ]
        team.launch(places, ports[0].ip.partition("/")[0], rendezvous_port(int(self.folder.name), incarnation))
        return team

    def kill(self, ranks: Sequence[int], job: str, team: AgentTeam | None) -> None:
        """Kill hosts at once: cut their links and end their agents; the noted fault is that of the first of ``ranks``.

        Agents stand still while links go down, one after the other: a dead machine closes no connection.
        """
        self.dead.update(ranks)
        began = self.clock()
        kills = [] if team is None else [partial(team.kill, rank) for rank in ranks if rank in team.ranks]
        for kill in kills:
            kill(halt=True)
        for rank in ranks:
            self.session.cut(rank)
        for kill in kills:
            kill()
        self.note("fault", began, job=job, rank=ranks[0], ranks=list(ranks), what="killed: links cut, agent ended")

    def fail_port(self, switch: str, port: int, rank: int, job: str) -> None:
        self.note("fault", job=job, rank=rank, what=f"port {port} of {switch} fails")
        self.session.call("fault", switch=switch, port=port, state="failed")

    def check(self) -> None:
        """Raise ``ControlError`` if the controller has ended, ``MachineError`` if a process of the network has."""
        self.session.check(LAST_MESSAGES_S)

    def left(self, began: float) -> tuple[float, str] | None:
        """When a remote controller left during the point, if it did, and that in words, counted from ``began``."""
        remote = self.session.remote
        return None if remote is None else remote.left(self.began, began)

    def record(self, since: float = 0.0) -> None:
        """Have the controller write its events to the folder of the point, with those from ``since`` on."""
        if self.number is not None:
            self.session.record(self.number, since)

    def record_no_more(self) -> None:
        if self.number is not None:
            with suppress(ControlError):
                self.session.record(None)

    def events(self) -> list[Event]:
        """All recorded events of the point in order of time, without those beside its jobs."""
        self.session.collect(self.folder)
        return sorted([*events_of(self.folder, without=BESIDE), *self.counted.events], key=lambda e: e.t)
