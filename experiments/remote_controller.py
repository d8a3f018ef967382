"""An OpenFlow controller of the user's own, as a run sees it: how switches reach it, when it left, what it lacks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from controllers.circuits.circuits import Circuit
from controllers.policies.wiring import path_circuits
from railyard.errors import AgentError, ControlError, RailyardError
from railyard.process.start import run_program
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.relay import Relay
from topos.plan import FabricPlan
from workloads.program import Group
from workloads.rank.paths import wired_paths

_DUMP_S = 10.0
_NO_WAY = re.compile(r"drop|CONTROLLER:\d+")
_OUTPUTS = re.compile(r"output:\d+(,output:\d+)*")


class RemoteController:
    """The controller at ``address`` (host:port) of the switches of ``net``; ``ControlError`` if none answers there."""

    def __init__(self, net: Emulation, address: str) -> None:
        self._net, self._address = net, address
        self._ends: list[float] = []
        host, _, port = address.rpartition(":")
        self.relay = Relay.to_controller(net.yard.netns_fd, OPENFLOW, (host, int(port)), self._ended)
        self.close = self.relay.close

    def _ended(self) -> None:
        self._ends.append(time.monotonic())

    def wait_connected(self, timeout_s: float) -> None:
        """Wait until all switches are connected; ``ControlError`` if they are not within ``timeout_s`` seconds."""
        if not self._net.waitConnected(timeout_s):
            left = ", which left and did not come back" if self._ends else ""
            raise ControlError(f"not every switch reached the controller at {self._address}{left}")

    def left(self, since: float, began: float) -> tuple[float, str] | None:
        """When the controller first closed a connection after ``since``, and that in words, counted from ``began``."""
        end = next((t for t in self._ends if t >= since), None)
        return None if end is None else (end, f"your controller left at {max(0.0, end - began):.3g} s")

    def explain(self, error: RailyardError, plan: FabricPlan, groups: Iterable[Group]) -> None:
        """Raise a ``ControlError`` if agents failed since ports that ``groups`` use are not joined.

        ``groups`` are those of jobs that ask for no circuits. Only the ports of ranks that the error names count.
        """
        named = {int(rank) for rank in re.findall(r"\brank (\d+)", str(error))}
        flows: dict[str, str] = {}
        for switch, circuit in needed_circuits(plan, groups, named) if isinstance(error, AgentError) else ():
            if switch not in flows:
                place = f"unix:{self._net.run.path}/{switch}.mgmt"
                dump = run_program(["ovs-ofctl", "-O", "OpenFlow14", "--no-names", "dump-flows", place], _DUMP_S)
                if dump.status != 0:
                    return
                flows[switch] = dump.out
            a, b = sorted(circuit.ports)
            if not (leads(flows[switch], a, b) and leads(flows[switch], b, a)):
                raise ControlError(
                    f"{switch} has no flow between ports {a} and {b}; does your app install circuits? ({error})"
                ) from error


def needed_circuits(plan: FabricPlan, groups: Iterable[Group], ranks: set[int]) -> Iterator[tuple[str, Circuit]]:
    """The circuits that ``groups`` use without a request, each with its optical switch, where ``ranks`` have a part."""
    optical = [switch for switch in plan.network("rail") if switch.kind == "ocs"]
    for hop in (hop for group in groups if group.domain == "scale-out" for hop in wired_paths(group)):
        for switch in optical:
            ends = {(port.rank, port.lane) for port in switch.ports}
            if ranks & {hop[0], hop[2]} and ends.issuperset({hop[:2], hop[2:]}):
                yield switch.name, path_circuits(switch, [hop])[0]


def leads(flows: str, port: int, out: int) -> bool:
    """Whether one of ``flows`` (the output of ``ovs-ofctl``) may send packets of ``port`` out of port ``out``.

    A flow of which that cannot be told, as it sends to a group or another table, may do so.
    """
    for line in flows.splitlines():
        match, _, actions = line.strip().partition(" actions=")
        of = re.search(r"\bin_port=(\d+)", match)
        if not actions or _NO_WAY.fullmatch(actions) or (of and int(of[1]) != port):
            continue
        if not _OUTPUTS.fullmatch(actions) or f"output:{out}" in actions.split(","):
            return True
    return False
