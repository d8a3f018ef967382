"""One edge run on packets: who takes part, where, and by which rules; and its processes, which are given all this.

Names of processes: ``control`` (job manager, scheduler, load balancer), ``manager0``, ... (client managers), ``root``,
``jobs``, ``trunk`` (the arbiter of an optical trunk), ``leaf0``, ... (leaf server of a region, topology ``tree`` only),
``clients0``, ... (all clients of a region). They are started together, watched, killed and restarted by name, stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from experiments.propius.control.policies import EdgePolicy, Sees, load_edge_policy, partition, random_selection_timers
from experiments.propius.control.trunk import TrunkPolicy
from experiments.propius.data.clients import ClientProfile, DeviceTimers
from experiments.propius.data.endpoint import PATIENCE_S, Address, Server, serve
from experiments.propius.data.jobs import EdgeJob, WriteEvent
from experiments.propius.data.messages import Frame, Mode, Reply, perform
from railyard.errors import AgentError, ConfigError, MachineError, RailyardError
from railyard.ownership import make_folder, open_binary
from railyard.plugin import absolute_name
from railyard.process.child import Child
from railyard.process.parent import Parent
from railyard.reading import Tail
from railyard.timeline import Event, NumberedLog, events_in
from railyard.validation import from_plain
from topos.edge_plan import CONTROL, ROOT, EdgePlan

CONTROL_PORT, FIRST_MANAGER_PORT, DATA_PORT, TRUNK_PORT = 7000, 7001, 7100, 7200
EVERYWHERE, HERE = "0.0.0.0", "127.0.0.1"
IDLE_S = 10.0
"""Real seconds after its last update at which a leaf server flushes."""
_PATIENCE_FACTOR = 3.0
"""A transfer may take so many times what it takes at its rate."""


@dataclass(frozen=True)
class TrunkTurns:
    """How the regions take turns on an optical trunk (``experiments.propius.control.trunk``), in seconds of the run.

    ``channel`` is the socket of the controller's job channel. ``delay_s`` is the reconfiguration delay and ``slot_s``
    the length of a slot of the policy ``rotor``. Before a reconfiguration the circuit stays up for ``guard_s`` without
    transfers, so that what is on its way over the trunk, such as the acknowledgement of the last segment, arrives: at
    least the one-way delay of the trunk.
    """

    channel: str
    policy: TrunkPolicy
    delay_s: float
    slot_s: float = 0.0
    guard_s: float = 0.0


@dataclass(frozen=True)
class Vanishing:
    """A client that goes for ever before it delivers its update of ``round``, of any job."""

    client: int
    round: int


@dataclass(frozen=True)
class EdgeRun:
    """One edge run on packets.

    ``netns_fds`` are the namespaces of the hosts by rank of ``plan`` (None: that of this process); the processes write
    to ``folder``. ``size`` is that of a model on the emulated wire, in bytes. ``time`` is emulated seconds per real
    second, ``idle_s`` the real seconds after which a leaf flushes. In the topology ``star`` clients reach the root
    without leaf servers. With ``verify`` updates are float32 numbers that are added, otherwise zeros that are counted.
    ``turns`` are those on an optical trunk; None: the trunk is electrical.
    """

    plan: EdgePlan
    netns_fds: tuple[int | None, ...]
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
    idle_s: float = IDLE_S
    vanishing: tuple[Vanishing, ...] = ()
    turns: TrunkTurns | None = None

    def plain(self) -> dict[str, Any]:
        """The run as JSON data, for processes that start in another folder."""
        return {**asdict(self), "folder": str(self.folder.absolute()), "policy": absolute_name(self.policy)}

    @property
    def data_servers(self) -> tuple[str, ...]:
        """The names of the processes of the data plane: of the root server, of the leaf servers and of the trunk."""
        leaves = [f"leaf{region}" for region in range(len(self.plan.regions))] if self.topology == "tree" else []
        return ("root", *([] if self.turns is None else ["trunk"]), *leaves)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all processes, those that others connect to first."""
        managers = [f"manager{number}" for number in range(self.managers)]
        clients = [f"clients{region}" for region in range(len(self.plan.regions))]
        return ("control", *managers, *self.data_servers, "jobs", *clients)

    def ranks(self, name: str) -> tuple[int, ...]:
        role, number = split_name(name)
        if role == "leaf":
            return (self.plan.leaf_rank(number),)
        if role == "clients":
            return tuple(self.plan.client_rank(client) for client in self.plan.regions[number].clients)
        return (ROOT if role in ("root", "jobs") else CONTROL,)

    def client_fd(self, client: int) -> int | None:
        return self.netns_fds[self.plan.client_rank(client)]

    def data_address(self, region: int) -> Address:
        """The server that the clients of ``region`` get models from and push updates to."""
        return (self.plan.regions[region].leaf_ip if self.topology == "tree" else self.plan.root_ip, DATA_PORT)

    @property
    def manager_ports(self) -> tuple[int, ...]:
        return tuple(range(FIRST_MANAGER_PORT, FIRST_MANAGER_PORT + self.managers))

    @property
    def sees(self) -> Sees:
        return "first" if self.mode == "authors" else "all"

    @cached_property
    def assigned(self) -> dict[int, str]:
        """The job of each client under the policy ``static`` or one derived from it; empty under others."""
        return partition(self.clients, self.jobs, self.seed) if self._loaded.name == "static" else {}

    @cached_property
    def client_timers(self) -> DeviceTimers:
        """The timers of the clients, in seconds of the run."""
        timers = random_selection_timers(DeviceTimers()) if self._loaded.blind else DeviceTimers()
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


def split_name(name: str) -> tuple[str, int]:
    """(role, number) of a process; the number is 0 where there is one of the role only."""
    role = name.rstrip("0123456789")
    return role, int(name[len(role) :] or 0)


_STOP_WITHIN_S = 0.3
"""All processes of a run are told to stop at once, so an error shortly before that is the end of another process."""


class EventFile(NumberedLog):
    """The events of one process, each written as it happens, so that they outlive the process if it is killed."""

    def note(self, kind: str, t: float | None = None, end: float | None = None, **fields: Any) -> None:
        """Write an event at ``t`` (default: now) until ``end``, if it lasts, in monotonic seconds.

        Raises ``MachineError`` if it cannot be written.
        """
        try:
            self.add(Event(time.monotonic() if t is None else t, "edge", kind, end, fields))
        except OSError as error:
            raise MachineError(f"events cannot be written to {error.filename}: {error.strerror}; make room") from None

    def write(self, event: WriteEvent) -> None:
        """Write an event that ends now, or is now."""
        now = time.monotonic()
        self.note(event.kind, now if event.began is None else event.began, event.began and now, **event.fields)


class Orders:
    """The orders that the parent gives: ``go``, and ``stop`` or its end. ``ready`` tells it that this process works."""

    def __init__(self, parent: Parent) -> None:
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        self.ready = parent.ready
        parent.operations = {"go": self.go.set}
        parent.on_stop(self.stop.set)


class Actor:
    """The work of a process: it answers frames by its operations, has tasks and one timer, and writes ``events``.

    ``failed`` raises the first error of a task or of ``fail``.
    """

    def __init__(self, events: EventFile) -> None:
        self.events = events
        self.loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def serve(
        self, netns_fd: int | None, port: int, ready: Callable[[], None] = lambda: None, **bounds: Any
    ) -> None:
        """Answer at ``port`` within ``bounds`` (``endpoint.serve``), tell so by ``ready``, until ``failed`` raises."""
        listener = await serve(netns_fd, (EVERYWHERE, port), self.handle, **bounds)
        try:
            self.start()
            ready()
            await self.failed
        finally:
            leaving = self.loop.create_task(self._leave(listener))
            with suppress(asyncio.CancelledError):  # the parent says stop while an error ends this process
                await asyncio.shield(leaving)
            await leaving

    async def _leave(self, listener: Server) -> None:
        await listener.close()
        self.stop()
        await self.end()

    async def handle(self, frame: Frame) -> Reply:
        return await perform(self, frame)

    def start(self) -> None:
        """Begin; what has nothing to begin with does nothing."""

    def stop(self) -> None:
        """Note what is left at the end of the run; ``end`` is next."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def call_at(self, due: float | None, call: Callable[[], None]) -> None:
        """Call at the time ``due`` (None: never), in place of what the timer was to call before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self.loop.call_at(due, call)

    async def end(self) -> None:
        """Give up what has not ended, and close the file of events."""
        await self.give_up()
        self.events.close()

    async def give_up(self) -> None:
        self.call_at(None, self.stop)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


MODULE = "experiments.propius.run"
_WORK = {
    "control": "experiments.propius.control.servers:control_work",
    "manager": "experiments.propius.control.servers:manager_work",
    "trunk": "experiments.propius.control.trunk_server:trunk_work",
    "root": "experiments.propius.data.server_process:root_work",
    "leaf": "experiments.propius.data.server_process:leaf_work",
    "clients": "experiments.propius.data.client_process:clients_work",
    "jobs": "experiments.propius.data.client_process:jobs_work",
}


@dataclass(frozen=True)
class Role:
    """The part of a process in a run: number ``number`` of its ``kind``, in its ``incarnation``; both count from 0.

    It appends its events to the file ``events``.
    """

    kind: str
    number: int
    incarnation: int
    events: str


def main() -> None:
    """Take the role in the run that the parent names in the settings of this process, which is a ``Child``."""
    parent = Parent()
    run = from_plain(EdgeRun, parent.settings["run"], "an edge run")
    role = from_plain(Role, parent.settings["role"], "a process of an edge run")
    module, _, work = _WORK[role.kind].partition(":")
    run_actor(parent, partial(getattr(import_module(module), work), run, role))


def run_actor(parent: Parent, work: Callable[[Orders], Awaitable[None]]) -> None:
    """Do ``work`` until it returns or the parent says stop.

    An error of Railyard's own is printed as one sentence, and the exit status is its.
    """
    try:
        asyncio.run(_until_stopped(parent, work))
    except RailyardError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)


async def _until_stopped(parent: Parent, work: Callable[[Orders], Awaitable[None]]) -> None:
    orders = Orders(parent)
    working = asyncio.ensure_future(work(orders))
    stopping = asyncio.ensure_future(orders.stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    if working.done() and not stopping.done():
        await asyncio.wait((stopping,), timeout=_STOP_WITHIN_S)
    if stopping.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    else:
        stopping.cancel()
        working.result()


_PATIENCE_S = 2.0
_LOOK_EVERY_S = 0.05
_STARTING_AT_ONCE = 16
"""More would share the cores for so long that the last ones are not ready in time."""
_TOLD = "jobs", "clients"
"""Beginnings of the names of the processes that wait for the start."""


@dataclass
class _Process:
    child: Child
    incarnation: int = 0
    killed: bool = False


class EdgeProcesses:
    """The processes of ``run``, or those in ``names``. A context manager; otherwise call ``start`` and ``stop``."""

    def __init__(self, run: EdgeRun, names: Sequence[str] | None = None) -> None:
        self.run = run
        self._names = run.names if names is None else tuple(names)
        self._processes: dict[str, _Process] = {}
        self._progress: Tail | None = None
        self._rounds: Counter[int] = Counter()
        """How many rounds of each job are complete."""

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.child.pid for name, process in self._processes.items() if not process.killed}

    def start(self) -> EdgeProcesses:
        """Start the processes, many at a time; returns when each works. ``MachineError`` if one does not start."""
        make_folder(self.run.folder)
        if any(self.run.folder.glob("edge-*.jsonl")):
            raise ConfigError(f"{self.run.folder} holds the events of another edge run; name a new one", key="folder")
        try:
            for name in self._names:
                self._processes[name] = self._made(name, 0)
            if "jobs" in self._names:
                self._progress = Tail.of(self._events_file("jobs", 0))
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
        self,
        timeout_s: float,
        on_round: Callable[[int], None] = lambda done: None,
        check: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Wait until all jobs are complete, ``timeout_s`` seconds at most; the numbers of the jobs that are not.

        ``on_round`` is called with the number of complete rounds of all jobs. Raises ``AgentError`` if a process ended
        by itself, or what ``check`` raises, which is called often. The jobs' numbers are their places in ``run.jobs``
        if they arrive in that order.
        """
        end = time.monotonic() + timeout_s
        while (unfinished := self._look(on_round)) and time.monotonic() < end:
            check()
            self.check()
            time.sleep(_LOOK_EVERY_S)
        return unfinished

    def _look(self, on_round: Callable[[int], None]) -> list[int]:
        """Read what the jobs have noted; the jobs that are not complete."""
        assert self._progress is not None, "the processes are started before they are waited for"
        in_order = sorted(self.run.jobs, key=lambda job: job.arrival_s)
        for event in events_in(line.decode(errors="replace") for line in self._progress.lines()):
            if event.kind == "round":
                self._rounds[event["job"]] += 1
                on_round(self._rounds.total())
        return [number for number, job in enumerate(in_order) if self._rounds[number] < job.rounds]

    def check(self) -> None:
        """Raise ``AgentError`` if a process ended by itself."""
        for name, process in self._processes.items():
            if not process.killed and process.child.has_ended:
                raise AgentError(f"the process {name} of the edge run has ended by itself; its message is above")

    def kill(self, name: str) -> float:
        """End a process by SIGKILL, as a failure of its machine would; the time, in monotonic seconds."""
        process = self._processes[name]
        process.killed = True
        os.kill(process.child.pid, signal.SIGKILL)
        now = time.monotonic()
        process.child.close()
        return now

    def restart(self, name: str) -> float:
        """Start a process again that was killed; the time when it works, in monotonic seconds.

        It keeps nothing but what it wrote to its journal. The clients of a region begin anew.
        """
        process = self._processes[name]
        if not process.killed:
            self.kill(name)
        again = self._processes[name] = self._made(name, process.incarnation + 1)
        again.child.start()
        if name.startswith(_TOLD):
            again.child.tell("go")
        return time.monotonic()

    def stop(self) -> None:
        running = [process for process in self._processes.values() if not process.killed]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(lambda process: process.child.close(), running))
        for process in running:
            process.killed = True
        if self._progress is not None:
            self._progress.close()

    def _made(self, name: str, incarnation: int) -> _Process:
        path = self._events_file(name, incarnation)
        open_binary(path, "ab").close()
        kind, number = split_name(name)
        role = {"kind": kind, "number": number, "incarnation": incarnation, "events": str(path.absolute())}
        fds = [fd for rank in self.run.ranks(name) if (fd := self.run.netns_fds[rank]) is not None]
        settings = {"run": self.run.plain(), "role": role}
        child = Child(MODULE, settings, fds, f"the process {name} of the edge run", patience_s=_PATIENCE_S)
        return _Process(child, incarnation)

    def _events_file(self, name: str, incarnation: int) -> Path:
        return self.run.folder / f"edge-{name}-{incarnation}.jsonl"

    def __enter__(self) -> EdgeProcesses:
        return self if self._processes else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
