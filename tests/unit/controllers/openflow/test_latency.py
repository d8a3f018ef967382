"""The latency of paths: set as circuits are set up, and where it is not, said so."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from fabric_plans import pip_plan

from controllers.circuits.circuits import Circuit, Matching
from controllers.engine.optical_state import OpticalState
from controllers.mesh.switch import PipSwitch
from controllers.openflow.latency import Latencies
from railyard.errors import MachineError
from topos.kernel.path_latency import PathLatency


class Ports(PathLatency):
    """Remembers what was set."""

    def __init__(self) -> None:
        self.delays: dict[int, float] = {}
        self.broken = False

    def set(self, delays_us: Mapping[int, float]) -> None:
        if self.broken:
            raise MachineError("it failed (No such device)")
        self.delays.update(delays_us)


def asked_in_vain() -> str | None:
    raise AssertionError("no path takes any time, so nobody needs to know")


def make(gate_latency_us: float, missing: str | None = None) -> tuple[OpticalState, Latencies, Ports]:
    fabric, ports = OpticalState(pip_plan(4, gate_latency_us=gate_latency_us)), Ports()
    return fabric, Latencies(fabric.switches, lambda: missing, lambda name: ports), ports


def light(fabric: OpticalState, latencies: Latencies, *circuits: tuple[int, int]) -> PipSwitch:
    for name, change in fabric.changes({"rail0": Matching(circuits)}).items():
        darken = fabric.begin(name, change, None, 0.0, 0.0, 0.0)
        latencies.darken(darken)
        fabric.finish(darken.reconfiguration_id)
    switch = fabric.switch("rail0")
    assert isinstance(switch, PipSwitch)
    return switch


def test_both_ports_of_a_circuit_have_the_delay_of_its_path() -> None:
    fabric, latencies, ports = make(2.0)
    switch = light(fabric, latencies, (1, 2), (3, 4))
    short, long = (2.0 * len(switch.path(circuit)) for circuit in (Circuit(1, 2), Circuit(3, 4)))
    assert ports.delays == {1: short, 2: short, 3: long, 4: long} and short > 0 and long > 0
    switch = light(fabric, latencies, (1, 3), (2, 4))
    assert ports.delays[3] == 2.0 * len(switch.path(Circuit(1, 3))) == ports.delays[1]
    assert switch.latency == "emulated (by netem; paths below 1 us pass at once)"


def test_without_netem_it_is_said_once_and_nothing_is_set() -> None:
    fabric, latencies, ports = make(2.0, "this kernel has no netem")
    switch = light(fabric, latencies, (1, 2))
    assert ports.delays == {} and switch.latency == "not emulated: this kernel has no netem"
    (note,) = latencies.notes(7.0)
    assert (note.kind, note.t) == ("latency", 7.0)
    assert note.fields == {"rail": "rail0", "gate_latency_us": 2.0, "latency": switch.latency}


@pytest.mark.parametrize(
    ("gate_latency_us", "says"),
    [(0.0, "light takes no time through a gate (gate_latency_us is 0)"), (0.01, "no path of this mesh takes 1 us")],
)
def test_light_that_takes_no_time_or_too_little_for_netem_needs_none(gate_latency_us: float, says: str) -> None:
    fabric = OpticalState(pip_plan(4, gate_latency_us=gate_latency_us))
    latencies = Latencies(fabric.switches, asked_in_vain, lambda name: Ports())
    assert says in light(fabric, latencies, (1, 2)).latency


def test_ports_out_of_reach_are_said() -> None:
    def reach(name: str) -> PathLatency:
        raise MachineError(f"no interface of {name} is here")

    fabric = OpticalState(pip_plan(4))
    latencies = Latencies(fabric.switches, lambda: None, reach)
    assert light(fabric, latencies, (1, 2)).latency == "not emulated: no interface of rail0 is here"


def test_a_kernel_that_stops_doing_it_does_not_stop_the_circuits(capsys: pytest.CaptureFixture[str]) -> None:
    fabric, latencies, ports = make(2.0)
    ports.broken = True
    switch = light(fabric, latencies, (1, 2))
    assert switch.up == Matching([(1, 2)]) and switch.latency == "not emulated: it failed (No such device)"
    assert "latency of paths in rail0" in capsys.readouterr().err
