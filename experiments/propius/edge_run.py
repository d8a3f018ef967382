"""One edge run on packets: what it consists of, and its processes, started together, watched, killed and restarted.

Names: ``control`` (job manager, scheduler, load balancer), ``manager0``, ... (client managers), ``root``, ``jobs``,
``trunk`` (the arbiter of an optical trunk), ``leaf0``, ... (leaf server of a region, topology ``tree`` only),
``clients0``, ... (all clients of a region).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from experiments.propius.control.policies import EdgePolicy, Sees, load_edge_policy, partition, random_selection_timers
from experiments.propius.control.servers import ControlSettings, ManagerSettings
from experiments.propius.control.trunk_server import TrunkSettings
from experiments.propius.data.client_process import ClientSettings, JobSettings, Vanishing
from experiments.propius.data.clients import ClientProfile, DeviceTimers
from experiments.propius.data.endpoint import PATIENCE_S
from experiments.propius.data.jobs import EdgeJob
from experiments.propius.data.messages import Mode
from experiments.propius.data.server_process import LeafSettings, RootSettings
from experiments.propius.process import MODULE
from railyard.child import Child
from railyard.errors import AgentError, ConfigError, RailyardError
from railyard.ownership import make_folder, open_binary
from railyard.plugin import absolute_name
from railyard.scale import goodput_share
from railyard.timeline import Event, read_events
from topos.edge_plan import CONTROL, ROOT, EdgePlan

CONTROL_PORT, FIRST_MANAGER_PORT, DATA_PORT, TRUNK_PORT = 7000, 7001, 7100, 7200
MOST_MANAGERS = 64
_IDS_OF_AN_INCARNATION = 1_000_000
_RETRY_S = 1.0
"""Real seconds after which a leaf sends a sum again whose answer was lost."""
_PATIENCE_FACTOR = 3.0
"""A transfer may take so many times what it takes at its rate."""
_EVERYWHERE, _HERE = "0.0.0.0", "127.0.0.1"

Settings = (
    TrunkSettings | ControlSettings | ManagerSettings | RootSettings | LeafSettings | ClientSettings | JobSettings
)


@dataclass(frozen=True)
class TrunkTurns:
    """How the regions take turns on an optical trunk (``experiments.propius.control.trunk``), in emulated seconds.

    ``channel`` is the path of the job channel of the session, ``mtu`` that of the links.
    """

    channel: str
    policy: str
    delay_s: float
    slot_s: float = 0.0
    guard_s: float = 0.0
    mtu: int = 1500


@dataclass(frozen=True)
class EdgeRun:
    """One edge run on packets.

    ``netns_fds`` are the namespaces of the hosts by rank of ``plan``; the processes write to ``folder``. ``size`` is
    that of a model on the emulated wire, in bytes. ``time`` is emulated seconds per real second; in real seconds are
    ``device_timers``, ``idle_s``, after which a leaf flushes, and ``poll_s``, between two questions of a job for its
    sum. In the topology ``star`` clients reach the root without leaf servers. ``sees``: which client managers the
    scheduler sees; None: the first in the mode ``authors``, else all. ``turns`` are those on an optical trunk;
    None: the trunk is electrical.
    """

    plan: EdgePlan
    netns_fds: tuple[int, ...]
    folder: Path
    jobs: tuple[EdgeJob, ...]
    clients: tuple[ClientProfile, ...]
    size: int
    policy: str = "irs"
    mode: Mode = "fixed"
    topology: Literal["tree", "star"] = "tree"
    managers: int = 1
    time: float = 0.1
    seed: int = 1
    verify: bool = False
    sees: Sees | None = None
    idle_s: float = 10.0
    poll_s: float = 5.0
    device_timers: DeviceTimers = DeviceTimers()
    vanishing: tuple[Vanishing, ...] = ()
    turns: TrunkTurns | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.managers <= MOST_MANAGERS:
            raise ConfigError(f"must be from 1 to {MOST_MANAGERS}, not {self.managers}", key="managers")
        if len(self.clients) != self.plan.clients:
            raise ConfigError(
                f"must be {self.plan.clients}, as many as the network has, not {len(self.clients)}", key="clients"
            )
        for fault in self.vanishing:
            if fault.client >= len(self.clients):
                raise ConfigError(
                    f"there is no client {fault.client}; name one below {len(self.clients)}", key="vanishing"
                )

        if (self.turns is not None) != (self.plan.trunk == "ocs"):
            raise ConfigError(
                f"are for an optical trunk, which needs them; the trunk is {self.plan.trunk}", key="turns"
            )
        if self.turns is not None and self.topology == "star":
            raise ConfigError("must be tree with an optical trunk: only leaf servers ask for a turn", key="topology")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the processes, those that others connect to first."""
        regions = range(len(self.plan.regions))
        leaves = [f"leaf{region}" for region in regions] if self.topology == "tree" else []
        managers = [f"manager{number}" for number in range(self.managers)]
        trunk = [] if self.turns is None else ["trunk"]
        return ("control", "root", *trunk, *managers, *leaves, "jobs", *(f"clients{region}" for region in regions))

    @cached_property
    def assigned(self) -> dict[int, str] | None:
        """The job of each client under the policy ``static`` or one derived from it; None under others."""
        return partition(self.clients, self.jobs, self.seed) if self._loaded.name == "static" else None

    @cached_property
    def client_timers(self) -> DeviceTimers:
        """The timers of the clients, in seconds of the run."""
        own = self.device_timers
        timers = random_selection_timers(own) if self._loaded.blind else own
        return timers.scaled(self.time)

    @cached_property
    def _loaded(self) -> EdgePolicy:
        return load_edge_policy(self.policy, self.seed)

    def patience_s(self, region: int | None = None) -> float:
        """How long a client of ``region`` waits for a transfer, or a leaf or a job (None), in seconds of the run.

        That is three times what a model takes at the rate of the slowest client, or at a fair share of the trunk.
        """
        sharers = len(self.plan.regions) if self.topology == "tree" else len(self.clients)
        rates = [self.plan.trunk_mbps / sharers]
        if region is not None:
            rates += [self.clients[client].rate_mbps for client in self.plan.regions[region].clients]
        return max(PATIENCE_S, _PATIENCE_FACTOR * self.size * 8 / (min(rates) * 1e6))


def settings_of(run: EdgeRun, name: str, incarnation: int, events: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """(role and settings, descriptors) of the process ``name`` that writes its events to ``events``."""
    kind = name.rstrip("0123456789")
    number = int(name[len(kind) :] or 0)
    settings, fds = _KINDS[kind](run, number, incarnation, str(events.absolute()))
    return {"role": kind, "settings": asdict(settings)}, fds


def _control(run: EdgeRun, _: int, __: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    ports = tuple(range(FIRST_MANAGER_PORT, FIRST_MANAGER_PORT + run.managers))
    sees = run.sees or ("first" if run.mode == "authors" else "all")
    address = (_EVERYWHERE, CONTROL_PORT)
    settings = ControlSettings(fd, address, events, absolute_name(run.policy), run.seed, sees, run.time, ports)
    return settings, (fd,)


def _trunk(run: EdgeRun, _: int, __: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    assert run.turns is not None
    return trunk_settings(run.plan, fd, run.turns, events), (fd,)


def trunk_settings(plan: EdgePlan, control_fd: int, turns: TrunkTurns, events: str) -> TrunkSettings:
    """The settings of the arbiter of an optical trunk, on the control host with the namespace ``control_fd``.

    It appends events to the file ``events``.
    """
    return TrunkSettings(
        control_fd,
        (_EVERYWHERE, TRUNK_PORT),
        events,
        turns.channel,
        tuple(region.trunk_port for region in plan.regions),
        turns.policy,
        plan.trunk_mbps * goodput_share(turns.mtu),
        turns.delay_s,
        turns.slot_s,
        turns.guard_s,
    )


def _manager(run: EdgeRun, number: int, incarnation: int, _: str) -> tuple[Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    settings = ManagerSettings(
        fd,
        (_EVERYWHERE, FIRST_MANAGER_PORT + number),
        (_HERE, CONTROL_PORT),
        number,
        run.managers,
        run.policy,
        run.seed,
        run.time,
        incarnation * _IDS_OF_AN_INCARNATION,
    )
    return settings, (fd,)


def _root(run: EdgeRun, _: int, __: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    fd = run.netns_fds[ROOT]
    settings = RootSettings(fd, (_EVERYWHERE, DATA_PORT), run.mode, run.size, events, run.verify)
    return settings, (fd,)


def _leaf(run: EdgeRun, number: int, _: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    fd, region = run.netns_fds[run.plan.leaf_rank(number)], run.plan.regions[number]
    settings = LeafSettings(
        number,
        fd,
        (region.leaf_ip, DATA_PORT),
        (run.plan.root_ip, DATA_PORT),
        run.mode,
        run.size,
        run.idle_s * run.time,
        events,
        journal=str(run.folder.absolute() / f"journal-leaf{number}"),
        retry_s=_RETRY_S * run.time,
        verify=run.verify,
        patience_s=run.patience_s(),
        arbiter=None if run.turns is None else (region.control_ip, TRUNK_PORT),
    )
    return settings, (fd,)


def _clients(run: EdgeRun, number: int, _: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    region = run.plan.regions[number]
    fds = tuple(run.netns_fds[run.plan.client_rank(client)] for client in region.clients)
    settings = ClientSettings(
        tuple(run.clients[client] for client in region.clients),
        fds,
        (region.control_ip, CONTROL_PORT),
        (region.leaf_ip if run.topology == "tree" else run.plan.root_ip, DATA_PORT),
        events,
        run.size,
        run.mode,
        run.client_timers,
        run.time,
        run.seed,
        run.verify,
        run.assigned,
        tuple(fault for fault in run.vanishing if fault.client in region.clients),
        run.patience_s(number),
    )
    return settings, fds


def _jobs(run: EdgeRun, _: int, __: int, events: str) -> tuple[Settings, tuple[int, ...]]:
    fd = run.netns_fds[ROOT]
    settings = JobSettings(
        fd,
        (run.plan.control_ip, CONTROL_PORT),
        (_HERE, DATA_PORT),
        events,
        run.jobs,
        run.size,
        run.mode,
        run.time,
        run.poll_s,
        run.patience_s(),
    )
    return settings, (fd,)


_KINDS = {
    "control": _control,
    "trunk": _trunk,
    "manager": _manager,
    "root": _root,
    "leaf": _leaf,
    "clients": _clients,
    "jobs": _jobs,
}


_PATIENCE_S = 2.0
_LOOK_EVERY_S = 0.05
_STARTING_AT_ONCE = 16
"""More would share the cores for so long that the last ones are not ready in time."""
_TOLD = "jobs", "clients"
"""Beginnings of the names of the processes that wait for the start."""

OnRound = Callable[[int, int, int], None]
"""Called with (number of the job, round, rounds of the job) when a round is complete."""


@dataclass
class _Process:
    child: Child
    incarnation: int = 0
    killed: bool = False


@dataclass
class _Progress:
    """What the events file of the jobs has told so far: the number of complete rounds of each job."""

    path: Path
    read: int = 0
    rounds: dict[int, int] = field(default_factory=dict)

    def new(self) -> list[Event]:
        """The events that were written since the last call."""
        with self.path.open("rb") as file:
            file.seek(self.read)
            lines = file.read().splitlines(keepends=True)
        complete = [line for line in lines if line.endswith(b"\n")]
        self.read += sum(map(len, complete))
        return [Event.from_line(line.decode()) for line in complete]


class EdgeProcesses:
    """The processes of ``run``, or those in ``names``. A context manager; otherwise call ``start`` and ``stop``."""

    def __init__(self, run: EdgeRun, names: Sequence[str] | None = None) -> None:
        self.run = run
        self._names = run.names if names is None else tuple(names)
        self._processes: dict[str, _Process] = {}
        self._files: list[Path] = []
        self._progress: _Progress | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all processes."""
        return self._names

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of those that were not killed."""
        return {name: process.child.pid for name, process in self._processes.items() if not process.killed}

    def start(self) -> EdgeProcesses:
        """Start the processes, many at a time; returns when each works. ``MachineError`` if one does not start."""
        make_folder(self.run.folder)
        if any(self.run.folder.glob("edge-*.jsonl")):
            raise ConfigError(f"{self.run.folder} holds the events of another edge run; name a new one", key="folder")
        try:
            for name in self._names:
                self._processes[name] = self._made(name, 0)
            self._progress = _Progress(self._events_file("jobs", 0))
            with ThreadPoolExecutor(_STARTING_AT_ONCE) as pool:
                list(pool.map(lambda process: process.child.start(), self._processes.values()))
        except BaseException:
            self.stop()
            raise
        return self

    def go(self) -> float:
        """Start the jobs and switch the clients on; the time before that, in monotonic seconds."""
        now = time.monotonic()
        for name, process in self._processes.items():
            if name.startswith(_TOLD):
                process.child.tell("go")
        return now

    def wait(
        self, timeout_s: float, on_round: OnRound | None = None, check: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Wait until all jobs are complete, ``timeout_s`` seconds at most; the numbers of the jobs that are not.

        Raises ``AgentError`` if a process ended by itself, or what ``check`` raises, which is called often. The jobs'
        numbers are their places in ``run.jobs`` if they arrive in that order.
        """
        end = time.monotonic() + timeout_s
        while (unfinished := self._look(on_round)) and time.monotonic() < end:
            check()
            self.check()
            time.sleep(_LOOK_EVERY_S)
        return unfinished

    def _look(self, on_round: OnRound | None) -> list[int]:
        """Read what the jobs have noted; the jobs that are not complete."""
        progress = self._progress
        assert progress is not None, "the processes are started before they are waited for"
        in_order = sorted(range(len(self.run.jobs)), key=lambda index: self.run.jobs[index].arrival_s)
        rounds = {number: self.run.jobs[index].rounds for number, index in enumerate(in_order)}
        for event in progress.new():
            if event.kind == "round":
                number = event["job"]
                progress.rounds[number] = progress.rounds.get(number, 0) + 1
                if on_round is not None:
                    on_round(number, event["round"], rounds[number])
        return [number for number, count in rounds.items() if progress.rounds.get(number, 0) < count]

    def check(self) -> None:
        """Raise ``AgentError`` if a process ended by itself."""
        for name, process in self._processes.items():
            if not process.killed and process.child.has_ended:
                raise AgentError(f"the process {name} of the edge run has ended by itself; its message is above")

    def kill(self, name: str) -> float:
        """End a process by SIGKILL, as a failure of its machine would; the time, in monotonic seconds."""
        process = self._process(name)
        process.killed = True
        os.kill(process.child.pid, signal.SIGKILL)
        now = time.monotonic()
        process.child.close()
        return now

    def restart(self, name: str) -> float:
        """Start a process again that was killed; the time when it works, in monotonic seconds.

        It keeps nothing but what it wrote to its journal. The clients of a region begin anew.
        """
        process = self._process(name)
        if not process.killed:
            self.kill(name)
        again = self._processes[name] = self._made(name, process.incarnation + 1)
        again.child.start()
        if name.startswith(_TOLD):
            again.child.tell("go")
        return time.monotonic()

    def stop(self) -> None:
        """Stop all processes; their events stay."""
        running = [process for process in self._processes.values() if not process.killed]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda process: process.child.close(), running))
        for process in running:
            process.killed = True

    def events(self) -> list[Event]:
        """What all processes have noted until now, in order of time."""
        noted: Iterable[Event] = (event for path in self._files if path.exists() for event in read_events(path))
        return sorted(noted, key=lambda event: event.t)

    def _made(self, name: str, incarnation: int) -> _Process:
        path = self._events_file(name, incarnation)
        self._files.append(path)
        open_binary(path, "ab").close()
        settings, fds = settings_of(self.run, name, incarnation, path)
        child = Child(MODULE, settings, fds, f"the process {name} of the edge run", patience_s=_PATIENCE_S)
        return _Process(child, incarnation)

    def _events_file(self, name: str, incarnation: int) -> Path:
        return self.run.folder / f"edge-{name}-{incarnation}.jsonl"

    def _process(self, name: str) -> _Process:
        try:
            return self._processes[name]
        except KeyError:
            raise RailyardError(
                f"an edge run has no process {name}; it has {', '.join(self._processes) or 'none'}"
            ) from None

    def __enter__(self) -> EdgeProcesses:
        return self if self._processes else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            self.stop()
