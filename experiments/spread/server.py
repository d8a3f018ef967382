"""The process on each machine of a fabric that spreads over several.

It serves the machine's part of the fabric, starts the agents of its ranks and passes on what they report, all as the
head asks for it over standard input and output (``railyard.remote``). It ends, and all that it started, with that
connection.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.spread.part import FabricPart
from experiments.spread.parts import read_to_plain, topology_from_plain
from measure.live.underlay.probe import Echo, probe
from measure.metrics.underlay import Underlay
from railyard.errors import RailyardError
from railyard.process.connection import FOLDER_VARIABLE
from railyard.process.parent import Parent
from railyard.remote.time_namespace import enter_time_offset
from railyard.signals import stop_on_signals
from railyard.validation import from_plain
from topos.kernel.links import Part
from topos.plan import FabricPlan
from workloads.agent.config import configs_from_json
from workloads.agent.launcher import LauncherProcess


class MachineServer:
    """Carries out the orders of the head, on the machine's part of the fabric and on the machine."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._connection = parent, parent.connection
        self._part = FabricPart(Path(os.environ[FOLDER_VARIABLE]))
        self._agents: LauncherProcess | None = None
        self._watched: dict[int, int] = {}
        """Processes that must not end: process id -> descriptor, readable once it has ended; -1 once that was told."""
        self._echo: Echo | None = None

    @property
    def operations(self) -> dict[str, Callable[..., Any]]:
        part = self._part
        of_part = (
            *(part.down, part.check, part.begin_readings, part.begin_sampling, part.end_sampling, part.events),
            *(part.cut, part.read_disk, part.begin_iperf, part.iperf, part.end_iperf),
        )
        own = (self.facts, self.clock, self.set_clock, self.begin_echo, self.end_echo, self.probe)
        wire = (self.up, self.read, self.launch, self.order)
        return {operation.__name__: operation for operation in (*of_part, *own, *wire)}

    def sources(self) -> Mapping[int, Callable[[], None]]:
        """Descriptors to watch beside the connection: agents' reports, and the ends of processes of the part."""
        pids = set(self._part.pids)
        for pid in self._watched.keys() - pids:
            self._forget(self._watched.pop(pid))
        for pid in pids - self._watched.keys():
            with suppress(ProcessLookupError):  # it has ended already, which the next check says
                self._watched[pid] = os.pidfd_open(pid)
        heard = {} if self._agents is None else {self._agents.fileno(): self._pass_on}
        return heard | {fd: partial(self._ended, pid) for pid, fd in self._watched.items() if fd >= 0}

    @staticmethod
    def _forget(fd: int) -> None:
        if fd >= 0:
            os.close(fd)

    def _ended(self, pid: int) -> None:
        """Tell the head at once that a process has ended."""
        self._forget(self._watched[pid])
        self._watched[pid] = -1
        try:
            self._part.check()
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
        self._parent.go_on_in_child()

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

    # ---- what is no plain data ---------------------------------------------------------------------------------------

    def up(self, topology: dict[str, Any], plan: dict[str, Any], part: dict[str, Any], **more: Any) -> dict[str, str]:
        """Make this machine's part of a fabric; how it forwards packets."""
        if self._agents is None:
            self._agents = LauncherProcess.start()  # before the fabric is up, so that it holds none of its descriptors
        told, own = from_plain(FabricPlan, plan, "a fabric plan"), from_plain(Part, part, "a part of a fabric")
        return self._part.up(topology_from_plain(topology), told, own, **more)

    def read(self) -> dict[str, Any]:
        return read_to_plain(*self._part.read())

    def launch(self, team: int, configs: str) -> None:
        """Fork the agents of team ``team`` that are on this machine; what they report is passed on."""
        assert self._agents is not None
        part, found = self._part, []
        for config in configs_from_json(configs.encode()):
            life = config.incarnation
            config = replace(
                config,
                events=str(part.own(config.events)),
                channel=None if config.channel is None else str(part.own("channel")),
                incarnation=life and replace(life, store=str(part.disk(life.store))),
            )
            found.append(config)
        self._agents.fork(team, found, [part.netns_fd(config.plan.hosts[config.rank]) for config in found])

    def order(self, message: dict[str, Any]) -> None:
        assert self._agents is not None
        self._agents.send(message)

    def _pass_on(self) -> None:
        assert self._agents is not None
        while self._agents.pending:
            for message in self._agents.reports():
                self._connection.tell("agent", message=message)

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._part.down)
            if self._agents is not None:
                stack.callback(self._agents.close)
            stack.callback(self.end_echo)


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
