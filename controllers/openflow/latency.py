"""Emulates the latency of paths in a mesh on the ports of its switch; the timeline notes where that is impossible.

The delay is set when the ports of a circuit go dark, so that it applies from the first packet over the circuit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from controllers.circuits.ocs import OpticalSwitch
from controllers.engine.actions import Darken, Note
from controllers.mesh.switch import PipSwitch
from railyard.errors import MachineError
from topos.kernel.path_latency import LEAST_US, PathLatency, Probe

EMULATED = "emulated"
NOT_EMULATED = "not emulated"

Reach = Callable[[str], PathLatency]
"""A function from the name of a switch to its ports; ``MachineError`` if they cannot be accessed."""


class Latencies:
    """The switches of a fabric that are meshes, and the ports on which their packets are delayed.

    ``probe`` returns why this machine cannot delay packets, or None; it is called once, and only if a path takes time.
    """

    def __init__(self, switches: Mapping[str, OpticalSwitch], probe: Probe, reach: Reach) -> None:
        self._devices = {name: device for name, device in switches.items() if isinstance(device, PipSwitch)}
        self._ports: dict[str, PathLatency] = {}
        self._reach = reach
        missing = probe() if any(map(_takes_time, self._devices.values())) else None
        for name, device in self._devices.items():
            device.latency = self._begin(name, device, missing)

    def _begin(self, name: str, device: PipSwitch, missing: str | None) -> str:
        """Begin to delay packets of ``device`` where possible; the state of the emulation in words."""
        if not device.mesh.gate_latency_us:
            return f"{NOT_EMULATED}: light takes no time through a gate (gate_latency_us is 0)"
        if not _takes_time(device):
            return f"{NOT_EMULATED}: no path of this mesh takes {LEAST_US:g} us, the shortest delay of netem"
        if missing is not None:
            return f"{NOT_EMULATED}: {missing}"
        try:
            self._ports[name] = self._reach(name)
        except MachineError as error:
            return f"{NOT_EMULATED}: {error}"
        return f"{EMULATED} (by netem; paths below {LEAST_US:g} us pass at once)"

    def notes(self, now: float) -> list[Note]:
        return [
            Note("latency", now, fields={"rail": name, "gate_latency_us": d.mesh.gate_latency_us, "latency": d.latency})
            for name, d in self._devices.items()
        ]

    def darken(self, darken: Darken) -> None:
        """Delay packets on the ports of all circuits by the latency of their new paths; called when ports go dark."""
        ports, device = self._ports.get(darken.switch), self._devices.get(darken.switch)
        if ports is None or device is None:
            return
        delays = {port: device.latency_us(circuit) for circuit in device.target for port in circuit.ports}
        try:
            ports.set(delays)
        except MachineError as error:
            del self._ports[darken.switch]
            device.latency = f"{NOT_EMULATED}: {error}"
            print(f"controller: the latency of paths in {darken.switch} is {device.latency}", file=sys.stderr)


def _takes_time(device: PipSwitch) -> bool:
    """Whether any path can take ``LEAST_US``: a path crosses each gate at most twice."""
    return 2 * len(device.layouts.mesh.gates) * device.mesh.gate_latency_us >= LEAST_US
