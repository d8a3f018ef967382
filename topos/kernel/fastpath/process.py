"""The offload of a run, a child process of the emulation.

It stands between the bridges of a private Open vSwitch and their clients, follows the flow tables, and keeps the rules
of the fast path equal to them. Its parent is ``offload.Offload``.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from typing import Any

from railyard.errors import MachineError
from railyard.loop import Loop
from railyard.priority import set_priority, set_real_time
from railyard.process.parent import Parent
from railyard.process.start import die_with_parent
from topos.kernel import namespaces
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.carrier import Carrier
from topos.kernel.fastpath.monitor import FeaturesWatch, Monitor
from topos.kernel.fastpath.relays import Listener, tcp, unix
from topos.kernel.fastpath.rules import Forwarder, KernelPort, by_switch
from topos.kernel.fastpath.tables import FlowTables

_NICE = -20


def make_forwarder(asked: str, netns_fd: int, ports: int, flows: int) -> tuple[Forwarder | None, dict[str, str]]:
    """(forwarder, its name and why it is not a faster one) for the datapath ``asked`` (``auto`` or ``bpf``).

    The forwarder is None where the kernel refuses and ``auto`` is asked for. ``MachineError`` if ``bpf`` is.
    """
    try:
        return BpfForwarder(netns_fd, ports, flows), {"datapath": "bpf", "why": ""}
    except MachineError as error:
        if asked == "bpf":
            raise MachineError(f"datapath bpf is refused: {error}; auto would take ovs") from None
        return None, {"datapath": "ovs", "why": f"bpf: {error}"}


class OffloadServer:
    """The listeners, monitors and rules of all bridges."""

    def __init__(self, parent: Parent, forwarder: Forwarder) -> None:
        settings, self._parent = parent.settings, parent
        self._loop = Loop()
        self._forwarder = forwarder
        self._netns_fd = int(settings["netns_fd"])
        self._run_dir = Path(settings["run_dir"])
        self._own = Path(settings["own_dir"])
        self._monitors: dict[str, Monitor] = {}
        openflow = settings["openflow"]
        for bridge in settings["bridges"]:
            monitor = partial(self._monitors.get, bridge)
            place = self._run_dir / f"{bridge}.mgmt"
            Listener(self._loop, place, unix(self._own / f"{bridge}.mgmt"), "client", monitor)
            if openflow is not None:
                target = self._own / f"{bridge}.controller"  # Open vSwitch connects to sockets of its own folder only
                Listener(self._loop, target, tcp((openflow[0], openflow[1])), "bridge", monitor)
        parent.operations = {"attach": self._attach, "counts": self._port_counts, "keep_dark": self._keep_dark}
        self._loop.watch(parent, self._commanded)

    def run(self, found: dict[str, str]) -> None:
        """Serve until the parent process asks to stop; ``found`` is what the kernel has."""
        self._parent.ready(**found)
        self._loop.run()

    def _commanded(self, _: int) -> None:
        self._parent.take()
        self._loop.ended = self._loop.ended or self._parent.stopping

    def _attach(self, ports: list[list[Any]], names: dict[str, str], speeds: dict[str, int], exchanged: bool) -> None:
        """Attach the fast path to all ports; tells the parent when the rules of all of them hold."""
        kernel_ports = [KernelPort(*port) for port in ports]
        self._forwarder.add(kernel_ports)
        self._carrier = Carrier(self._netns_fd, kernel_ports)
        self._loop.watch(self._carrier, lambda _: self._carrier.run())
        switches = by_switch(kernel_ports)
        waiting = set(switches)

        def hold(switch: str) -> None:
            waiting.discard(switch)
            if not waiting:
                self._parent.tell("attached")

        for switch, some in switches.items():
            tables = FlowTables(switch, (port.number for port in some), self._forwarder, names)
            tables.port_speeds, tables.counts_exchanged = speeds, exchanged
            self._monitors[switch] = Monitor(self._loop, tables, self._own / f"{switch}.mgmt", self._fail)
        FeaturesWatch(self._loop, self._run_dir / "db.sock", self._suspend, self._fail)
        for switch in switches:
            self._monitors[switch].when_current(partial(hold, switch))

    def _suspend(self, bridges: set[str]) -> None:
        """Let Open vSwitch forward all packets of ``bridges``, and the fast path those of all others."""
        for name, monitor in self._monitors.items():
            monitor.tables.suspend(name in bridges)
            monitor.commit()

    def _keep_dark(self, seconds: float, switches: list[str]) -> None:
        for switch in switches:
            self._monitors[switch].keep_dark(seconds)

    def _port_counts(self) -> dict[str, dict[int, list[int]]]:
        """Packets and bytes received, sent, and dropped by a rule, at each port of each switch."""
        return {
            switch: {port: [n for counts in found for n in counts] for port, found in ports.items()}
            for switch, ports in ((name, self._forwarder.port_counts(name)) for name in self._monitors)
        }

    def _fail(self, sentence: str) -> None:
        if not self._loop.ended:
            print(f"fast path: {sentence}", file=sys.stderr)
            self._loop.ended = True


def main() -> None:
    die_with_parent()
    parent = Parent()
    settings = parent.settings
    set_priority(_NICE)
    set_real_time()
    gc.disable()  # what ends refers to itself no more (streams.Stream.close), and a collection would delay replies
    namespaces.enter(settings["netns_fd"])
    try:
        forwarder, found = make_forwarder(
            settings["datapath"], settings["netns_fd"], settings["ports"], settings["flows"]
        )
        if forwarder is None:
            parent.ready(**found)
            return
        offload = OffloadServer(parent, forwarder)
    except (MachineError, OSError) as error:
        parent.tell("error", error=str(error))
        return
    try:
        offload.run(found)
    except MachineError as error:
        sys.exit(f"fast path: {error}")
    forwarder.close()
