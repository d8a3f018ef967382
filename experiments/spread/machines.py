"""The machines of a cluster, as the head sees them: connections, clocks, agents, and the network between them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from secrets import token_hex
from typing import Any

from experiments.spread.part import FabricPart
from measure.live.underlay.echo import TOKEN_BYTES
from measure.metrics.underlay import (
    Underlay,
    UnderlayNeeds,
    ip_version,
    refusals,
    shared_refusals,
    underlay_event,
)
from railyard.errors import ConfigError, MachineError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.process.connection import Connection, raised_there
from railyard.remote.clock import Offset, offset_of, sampled, time_here
from railyard.remote.ssh import HERE, RemoteProcess
from railyard.timeline import Event, events_in
from topos.kernel.relay import Relay, open_listener
from topos.kernel.run_registry import RegisteredRun
from topos.placement import Placed
from topos.plan import FabricPlan, HostPort
from workloads.agent.config import AgentConfig, configs_to_json

_SERVER = "experiments.spread.server"
_SAMPLES = 32
"""Exchanges of time stamps with a machine; the one with the least round trip counts."""


@dataclass
class Machine:
    """A machine: its process, its ``address`` on the network between the machines, and its clock.

    ``clock`` is the last measurement of how far its clock, as the processes of the run see it, is ahead of this one.
    It starts the agents of its ranks (``workloads.agent.launcher.AgentStarter``).
    """

    name: str
    process: RemoteProcess
    address: str = ""
    clock: Offset | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        return self.process.connection

    def measure_clock(self) -> Offset:
        return offset_of(sampled(partial(self.connection.call, "clock"), time.monotonic, _SAMPLES))

    @property
    def pending(self) -> bool:
        return self.connection.pending

    def fileno(self) -> int:
        return self.connection.fileno()

    def fork(self, team: int, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> None:
        self.connection.tell("launch", team=team, configs=configs_to_json(configs).decode())

    def send(self, order: dict[str, Any]) -> None:
        self.connection.tell("order", message=order)

    def reports(self) -> Iterator[dict[str, Any]]:
        for message in self.connection.messages():
            if message["op"] == "error":
                raise raised_there(message, f"on machine {self.name}: ")
            yield message["message"]


class Cluster:
    """The machines that make a fabric: this one alone, or those of ``names`` with a process of Railyard on each.

    Leaving the context ends all processes. ``MachineError`` for a machine that cannot be reached, that has another
    version, or whose address is not known.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names) or HERE[:1]
        self.here = None if names else FabricPart()
        """The part of this machine, where it makes all of a fabric."""
        self.machines: dict[str, Machine] = {}
        self._openflow: Callable[[], socket.socket] | None = None
        self._stack = ExitStack()

    @property
    def run(self) -> RegisteredRun:
        """The run that the controller belongs to; of one machine that of the fabric that is up."""
        return self._run if self.here is None else self.here.run

    def __enter__(self) -> Cluster:
        if self.here is not None:
            return self
        allow_all_open_files()  # each agent on another machine has a connection to the controller through this process
        with self._stack:
            self._run = self._stack.enter_context(RegisteredRun.open())
            begun = []
            for name in self.names:
                begun.append(RemoteProcess(name, _SERVER))
                self._stack.callback(begun[-1].close)
                begun[-1].begin()
            for process in begun:
                self.machines[process.machine] = Machine(process.machine, process.ready())
            for machine in self.machines.values():
                self._forward(machine)
            self._take_facts()
            self._set_clocks()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def channel(self) -> Path:
        """Where the controller's job channel must be, which agents on all machines open as ``channel``.

        Its folder can be entered by root and the user who runs ``ssh`` only, and is removed with the first machine's
        process, also if this one is killed.
        """
        return self.machines[self.names[0]].process.folder / "channel.head"

    def lead(self, openflow: Callable[[], socket.socket]) -> None:
        """Lead the switches' connections to the controller to what ``openflow`` makes."""
        self._openflow = openflow

    def _forward(self, machine: Machine) -> None:
        """Let the machine reach the controller by two sockets in the folder of its process, through its connection."""
        path = machine.process.folder / "openflow.head"
        listener = open_listener(path)
        self._stack.enter_context(Relay(listener, self._to_controller))
        machine.process.forward(machine.process.remote_folder / "openflow", path)
        machine.process.forward(machine.process.remote_folder / "channel", self.channel)

    def _to_controller(self) -> socket.socket:
        if self._openflow is None:
            raise ConnectionRefusedError
        return self._openflow()

    def _take_facts(self) -> None:
        for name, facts in self.ask("facts").items():
            self.machines[name].facts = facts
        others = [machine for name, machine in self.machines.items() if name not in HERE]
        heads = [machine.facts["head"] for machine in others if machine.facts["head"]]
        for name, machine in self.machines.items():
            address = next(iter(heads), None) if name in HERE else machine.facts["address"]
            if address is None and len(self.names) > 1:
                raise MachineError(f"machine {name} does not say by which address the others reach it; name it by ssh")
            machine.address = address or "127.0.0.1"
        self._check_addresses()

    def _check_addresses(self) -> None:
        """Refuse one machine under two names, and addresses that tunnels cannot have between them."""
        seen: dict[str, str] = {}
        for name, machine in self.machines.items():
            other = seen.setdefault(str(machine.facts["identity"]), name)
            if other != name:
                raise ConfigError(f"{other} and {name} are one machine; name it once", key="cluster")
        addresses = [machine.address for machine in self.machines.values()]
        if len({ip_version(address) for address in addresses}) > 1 or any("%" in each for each in addresses):
            raise MachineError(
                f"ssh reaches the machines at {', '.join(addresses)}; tunnels between them need addresses of one "
                "version of IP without an interface: name the machines by such"
            )

    def _set_clocks(self) -> None:
        """Let the processes of every machine see the clock of this one."""
        ahead = {name: machine.measure_clock().offset_s for name, machine in self.machines.items()}
        for name, machine in self.machines.items():
            machine.connection.call("set_clock", ahead_s=-ahead[name])
            machine.clock = machine.measure_clock()

    def ask(
        self,
        op: str,
        fields: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> dict[str, Any]:
        """Let machines do ``op`` at the same time, each with its ``fields`` (None: all machines, without fields).

        Returns their results, or raises the first error after all have answered.
        """
        if self.here is not None:
            return {self.names[0]: getattr(self.here, op)(**(fields or {}).get(self.names[0], {}))}
        given: Mapping[str, Mapping[str, Any]] = {name: {} for name in self.names} if fields is None else fields
        asked = {name: self.machines[name].connection for name in given}
        numbers, found, errors = {}, {}, []
        for name, connection in asked.items():
            try:
                numbers[name] = connection.begin(op, **given[name])
            except RailyardError as error:
                errors.append(error)
        for name, number in numbers.items():
            try:
                found[name] = asked[name].answer(number, timeout_s)
            except RailyardError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def collect(self, take: Callable[[str, str, list[Event]], None]) -> list[Event]:
        """Give the events of every file of every machine to ``take``, and measure the clocks again.

        ``take`` gets the name of a machine, that of a file there, and events at the times of this machine's clock.
        """
        events = []
        for name, machine in self.machines.items():
            with suppress(MachineError):  # it is gone, which the run notices by itself
                before, machine.clock = machine.clock, machine.measure_clock()
                assert before is not None
                here = partial(time_here, before, machine.clock)
                events += [clock_event(name, clock) for clock in (before, machine.clock)]
                while (found := machine.connection.call("events", timeout_s=120.0)) is not None:
                    take(name, found[0], [_at(event, here) for event in events_in(found[1].splitlines(True))])
        return events


def clock_event(machine: str, clock: Offset) -> Event:
    """How far the clock of a machine is ahead, and how uncertain that is.

    ``uncertainty_s`` takes both directions of the network to be equally long, as PTP does (IEEE 1588); ``bound_s``
    holds for any directions.
    """
    fields = {"offset_s": clock.offset_s, "uncertainty_s": clock.jitter_s, "bound_s": clock.uncertainty_s}
    return Event(clock.at_s, "link", "clock", None, {"machine": machine, **fields})


def _at(event: Event, here: Callable[[float], float]) -> Event:
    return replace(event, t=here(event.t), end=None if event.end is None else here(event.end))


_LONGEST_S = 30.0
Pair = tuple[str, str]


def rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs in rounds in which each machine is in at most one pair; greedy, each pair as early as it can be."""
    found: list[list[Pair]] = []
    for pair in pairs:
        free = next((each for each in found if not any({*pair} & {*other} for other in each)), None)
        if free is None:
            found.append([pair])
        else:
            free.append(pair)
    return found


class UnderlayProbes:
    """The network between the machines of ``placed``, which carries the links that are cut, as it was last probed."""

    def __init__(self, cluster: Cluster, placed: Placed) -> None:
        self._cluster = cluster
        self._placed = placed
        self.found: dict[Pair, Underlay] = {}
        self._probed_at = 0.0
        self._needs = {
            (a, b): UnderlayNeeds(a, b, placed.plan.mtu, demand, ip_version(cluster.machines[a].address))
            for a, b in combinations(placed.machines, 2)
            if (demand := placed.demand_mbps(a, b))
        }

    def check(self) -> None:
        """Probe it; ``MachineError`` if it does not carry the links that are cut."""
        self._probe()
        both = [(need, self.found[pair]) for pair, need in self._needs.items()]
        for sentence in [*(one for need, under in both for one in refusals(need, under)), *shared_refusals(both)]:
            raise MachineError(sentence)

    def events(self, oldest_s: float) -> list[Event]:
        """The measurements as events, of a new probe if the last is older."""
        if time.monotonic() - self._probed_at > oldest_s:
            self._probe()
        return [underlay_event(self._probed_at, needs, self.found[pair]) for pair, needs in self._needs.items()]

    def _probe(self) -> None:
        """Probe the network between each pair, the pairs of a round at the same time; 1.1 s a round."""
        for pairs in rounds(self._needs):
            self.found |= self._probe_round({pair: token_hex(TOKEN_BYTES) for pair in pairs})
        self._probed_at = time.monotonic()

    def _probe_round(self, tokens: Mapping[Pair, str]) -> dict[Pair, Underlay]:
        ask, addresses = self._cluster.ask, {pair: self._cluster.machines[pair[1]].address for pair in tokens}
        shared = {pair: {"address": addresses[pair], "token": token} for pair, token in tokens.items()}
        ports = ask("begin_echo", {pair[1]: {**fields, "seconds": _LONGEST_S} for pair, fields in shared.items()})
        try:
            sizes = {pair: self._needs[pair].packet_bytes for pair in tokens}
            orders = {
                pair[0]: {**fields, "port": ports[pair[1]], "packet_bytes": sizes[pair]}
                for pair, fields in shared.items()
            }
            answers = ask("probe", orders, timeout_s=_LONGEST_S)
        finally:
            ask("end_echo", {pair[1]: {} for pair in tokens})
        return {pair: Underlay(**answers[pair[0]]) for pair in tokens}

    @property
    def delayed_plan(self) -> FabricPlan:
        """The plan with cut links as long as half of the round trip between their machines."""
        extra = {
            (cut.switch, cut.port): under.round_trip_ms / 2e3
            for cut in self._placed.cuts
            for pair, under in self.found.items()
            if set(pair) == {cut.switch_machine, cut.host_machine}
        }

        if not extra:
            return self._placed.plan

        def longer(switch: str, port: HostPort) -> HostPort:
            return replace(port, delay_s=port.delay_s + extra.get((switch, port.number), 0.0))

        plan = self._placed.plan
        switches = (replace(s, ports=tuple(longer(s.name, port) for port in s.ports)) for s in plan.switches)
        return replace(plan, switches=tuple(switches))
