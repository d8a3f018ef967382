"""The process on each machine of a fabric that spreads over several.

It makes its part of the fabric, starts the agents of its ranks, reads and samples its counters, and passes on what its
agents report, all as the head asks for it over standard input and output (``railyard.remote``). It ends, and all that
it started, with that connection.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.spread.parts import part_from_plain, topology_from_plain
from measure.live.readings import Readings
from measure.live.sampler import Sampler
from measure.live.underlay.probe import Echo, probe
from measure.metrics.underlay import Underlay
from railyard.errors import RailyardError
from railyard.process.connection import FOLDER_VARIABLE, Connection
from railyard.process.parent import Parent
from railyard.process.start import die_with_parent
from railyard.remote.time_namespace import enter_time_offset
from railyard.signals import stop_on_signals
from railyard.validation import from_plain
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.relay import Relay, connect_unix, listener_in
from topos.kernel.run_registry import RegisteredRun
from topos.plan import FabricPlan
from workloads.agent.config import configs_from_json
from workloads.agent.launcher import AgentLauncher

_CHUNK_BYTES = 8 << 20


class Reporter:
    """Passes what a launcher reports about the agents of one team to the head."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def update(self, message: dict[str, Any]) -> None:
        self._connection.tell("agent", message=message)


class MachineServer:
    """Carries out the orders of the head."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._connection = parent, parent.connection
        self._folder = Path(os.environ[FOLDER_VARIABLE])
        self._fabric = ExitStack()
        self._net: Emulation | None = None
        self._launcher: AgentLauncher | None = None
        self._reporter = Reporter(parent.connection)
        self._readings: Readings | None = None
        self._sampler: Sampler | None = None
        self._watched: dict[int, int] = {}
        """Processes that must not end: process id -> descriptor, readable once it has ended."""
        self._echo: Echo | None = None
        self._given: dict[str, int] = {}
        """How many bytes of each file of events were given to the head."""

    @property
    def operations(self) -> dict[str, Callable[..., Any]]:
        named = (
            *(self.facts, self.clock, self.set_clock, self.up, self.down, self.check, self.launch, self.order),
            *(self.begin_echo, self.end_echo, self.probe),
            *(self.begin_readings, self.read, self.begin_sampling, self.end_sampling, self.events),
        )
        return {each.__name__: each for each in named}

    def sources(self) -> Mapping[int, Callable[[], None]]:
        """Descriptors to watch beside the connection."""
        launcher = self._launcher
        heard = {} if launcher is None else {launcher.fileno(): lambda: _hear(launcher)}
        return heard | {fd: partial(self._ended, pid) for pid, fd in self._watched.items()}

    def _watch(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # it has ended already, which the next check says
                self._watched[pid] = os.pidfd_open(pid)

    def _unwatch(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid in self._watched:
                os.close(self._watched.pop(pid))

    def _ended(self, pid: int) -> None:
        """Tell the head at once that a process has ended."""
        self._unwatch([pid])
        try:
            self.check()
        except RailyardError as error:
            self._connection.tell("error", of="check", error=str(error))

    # ---- the machine -------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Tell the address by which the head reached this machine and that of the head (None without ssh), and more."""
        words = os.environ.get("SSH_CONNECTION", "").split()
        head, here = (words[0], words[2]) if len(words) == 4 else (None, None)
        network = os.stat("/proc/self/ns/net").st_ino
        identity = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {network}"
        found = {"address": here, "head": head, "identity": identity}
        return {**found, "kernel": os.uname().release, "cores": os.cpu_count()}

    def clock(self) -> list[float]:
        """The monotonic time at receipt and at the answer."""
        return [time.monotonic(), time.monotonic()]

    def set_clock(self, ahead_s: float) -> None:
        """Set the monotonic clock of this process, and of those that it starts, ahead by ``ahead_s`` seconds."""
        enter_time_offset(ahead_s)
        parent, child = os.getpid(), os.fork()
        if child:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            _, status = os.waitpid(child, 0)
            os._exit(abs(os.waitstatus_to_exitcode(status)))
        self._parent.pid = parent
        die_with_parent(parent, signal.SIGTERM)

    # ---- the network between machines --------------------------------------------------------------------------------

    def begin_echo(self, address: str, token: str, seconds: float) -> int:
        """Answer the probes of another machine at ``address``; returns the port."""
        self.end_echo()
        self._echo = Echo(address, bytes.fromhex(token), seconds).start()
        return self._echo.port

    def end_echo(self) -> None:
        if self._echo is not None:
            echo, self._echo = self._echo, None
            echo.close()

    def probe(self, address: str, port: int, token: str, packet_bytes: int) -> Underlay:
        return probe(address, port, bytes.fromhex(token), packet_bytes)

    # ---- the fabric --------------------------------------------------------------------------------------------------

    def up(
        self, topology: dict[str, Any], plan: dict[str, Any], part: dict[str, Any], datapath: Any, controlled: bool
    ) -> dict[str, str]:
        """Make this machine's part of a fabric; how it forwards packets.

        ``controlled``: its switches reach their controller by the socket ``openflow`` of this process's folder.
        """
        if self._launcher is None:
            self._launcher = AgentLauncher.start()  # before the fabric is up, so that it holds none of its descriptors
        with ExitStack() as stack:
            run = stack.enter_context(RegisteredRun.open())
            openflow = OPENFLOW if controlled else None
            topo = topology_from_plain(topology)
            net = Emulation(topo, run.path, datapath, openflow, part=part_from_plain(part), packet_ins=False)
            stack.callback(net.stop)
            if controlled:
                listener = listener_in(net.yard.netns_fd, OPENFLOW)
                stack.enter_context(Relay(listener, lambda: connect_unix(self._folder / "openflow")))
            net.start()
            self._net, self._plan = net, from_plain(FabricPlan, plan, "a fabric plan")
            self._watch(net.pids)
            self._fabric = stack.pop_all()
        return net.forwarding

    def down(self) -> None:
        self._unwatch([*self._watched])
        self._net = self._readings = None
        self._fabric.close()

    def check(self) -> None:
        """Raise ``MachineError`` if a process of this part of the fabric, or the sampler, has ended."""
        if self._net is not None:
            self._net.check()
        if self._sampler is not None:
            self._sampler.check()

    # ---- agents ------------------------------------------------------------------------------------------------------

    def launch(self, team: int, configs: str) -> None:
        """Fork the agents of team ``team`` that are on this machine; what they report is passed on."""
        assert self._net is not None and self._launcher is not None
        own = [
            replace(
                config,
                events=str(self._folder / Path(config.events).name),
                channel=None if config.channel is None else str(self._folder / "channel"),
            )
            for config in configs_from_json(configs.encode())
        ]
        fds = [self._net.netns_fd(config.plan.hosts[config.rank]) for config in own]
        self._launcher.fork(team, self._reporter, own, fds)

    def order(self, message: dict[str, Any]) -> None:
        assert self._launcher is not None
        self._launcher.send(message)

    # ---- counters and events -----------------------------------------------------------------------------------------

    def begin_readings(self) -> None:
        assert self._net is not None
        self._readings = Readings(self._net, self._plan)

    def read(self) -> dict[str, Any]:
        """Read all counters of this part of the fabric: ``events`` as lines, ``ports`` as [rank, lane, counters]."""
        assert self._readings is not None
        events, ports = self._readings.read()
        return {
            "events": [event.to_line() for event in events],
            "ports": [[*port, asdict(counters)] for port, counters in ports.items()],
        }

    def begin_sampling(self) -> None:
        assert self._readings is not None
        self._sampler = self._readings.sampler(self._folder / "sampler.jsonl").start()
        self._watch([self._sampler.pid])

    def end_sampling(self) -> None:
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            self._unwatch(sampler.pids)
            sampler.close()

    def events(self) -> list[str] | None:
        """The name of a file of events on this machine and its next lines; None when all have been given.

        Each is given once: its file is removed.
        """
        for path in sorted(self._folder.glob("*.jsonl")):
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                file.seek(self._given.get(path.name, 0))
                text = file.read(_CHUNK_BYTES)
                text += file.readline()
                self._given[path.name] = file.tell()
            if not text:
                path.unlink()
                self._given.pop(path.name)
            else:
                return [path.name, text.decode(errors="replace")]
        return None

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._fabric.close)
            if self._launcher is not None:
                stack.callback(self._launcher.close)
            stack.callback(self.end_sampling)
            stack.callback(self.end_echo)


def _hear(launcher: AgentLauncher) -> None:
    while launcher.listen(0):
        pass


def main() -> int:
    stop_on_signals()
    parent = Parent()
    server = MachineServer(parent)
    parent.operations = server.operations
    try:
        parent.ready()
        parent.serve(server.sources)
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
    return 0
