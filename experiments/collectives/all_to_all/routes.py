"""Round trips over the circuits of a rotor on a photonic mesh, beside the gates that each circuit's light crosses.

Law: a round trip takes twice the latency of a gate for every gate of the path (loss and latency of a path are
proportional to its gates: PIP, arXiv 2501.18136). Where the kernel has netem, the controller delays the packets of a
circuit; elsewhere the links of both its ports hold them, each for half the latency of the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from controllers.circuits.rotation import Slot
from controllers.mesh.switch import PipSwitch
from experiments.collectives.trial import TrialFabric
from experiments.job_point import Fabric
from measure.metrics.checks import Limits, Verdict
from measure.metrics.fidelity import link_delay
from measure.metrics.load import interference_checks
from measure.results.row import MeasuredRow
from railyard.scale import Scale
from topos.plan import SwitchPlan

if TYPE_CHECKING:
    from experiments.runner import Runner
    from experiments.session import Session

ROUTE = "route"
FRAMES, INTERVAL_S = 40, 0.002
"""Frames from each port of a slot, and the time between two of them."""
LEAST_MS = 0.1
"""The delay of a link when the fabric comes up; a link that is made without one can get none later."""


@dataclass(frozen=True)
class RouteTrial:
    """The circuits of all ``slots`` on a mesh whose gates take ``gate_us`` each (on the emulated wire)."""

    fabric: TrialFabric
    slots: Sequence[Slot]
    gate_us: float
    gate_loss_db: float

    @property
    def on_the_wire(self) -> Fabric:
        """The fabric with links that can hold packets."""
        made = replace(self.fabric, gate_latency_us=self.gate_us, link_delay_ms=LEAST_MS)
        return Fabric(f"mesh-{self.fabric.ranks}", made, lambda: made.topology(Scale(1.0)))


@dataclass(kw_only=True)
class RouteRow(MeasuredRow):
    """The round trip over one circuit in one slot of a rotor on a mesh, on the emulated wire."""

    main: ClassVar[tuple[str, ...]] = ("round_trip_ms",)

    study: Annotated[str, "study of the row"] = ROUTE
    n: Annotated[int, "number of ranks"]
    slot: Annotated[int, "number of the slot"]
    pair: Annotated[Sequence[int], "the ranks that the circuit joins"]
    gates: Annotated[int, "gates that the light of the circuit crosses"]
    loss_db: Annotated[float, "loss of the path"]
    predicted_round_trip_ms: Annotated[float, "twice the gates, times the latency of one"]
    round_trip_ms: Annotated[float | None, "median round trip of a frame"] = None
    over_law: Annotated[float | None, "round trip over what is predicted"] = None


def rows_of(trial: RouteTrial) -> Iterator[RouteRow]:
    """A row for each circuit, without what is measured, on the paths that a switch lays slot after slot."""
    plan = trial.fabric.plan(Scale(1.0)).network("rail")[0]
    device = PipSwitch(plan)
    layout, rank = device.layout, {port.number: port.rank for port in plan.ports}
    for number, slot in enumerate(trial.slots):
        layout = device.layouts.find(slot.wiring[plan.name], layout)
        for circuit in sorted(layout.matching):
            gates = len(layout.path(circuit))
            yield _row(trial, number, sorted(rank[port] for port in circuit.ports), gates)


def _row(trial: RouteTrial, slot: int, pair: Sequence[int], gates: int) -> RouteRow:
    loss_db, law_ms = gates * trial.gate_loss_db, 2 * gates * trial.gate_us / 1e3
    n = trial.fabric.ranks
    return RouteRow(n=n, slot=slot, pair=pair, gates=gates, loss_db=loss_db, predicted_round_trip_ms=law_ms)


def measure_routes(runner: Runner, trial: RouteTrial, *, seed: int) -> list[RouteRow]:
    """Set the slots one after another and send frames both ways over each circuit; the gates are the controller's."""
    rows, title = list[RouteRow](), f"round trips between {trial.fabric.ranks} ranks"
    runner.progress.begin(title)
    with runner.recording(trial.on_the_wire, ROUTE, title) as run, run.counting():
        switch = run.session.plan.network("rail")[0]
        for number, slot in enumerate(trial.slots):
            for path in _laid(run.session, switch, slot):
                a, b = (port.rank for port in switch.ports if port.number in path["circuit"])
                rows.append(_row(trial, number, (a, b), len(path["gates"])))
            _measure(run.session, switch, [row for row in rows if row.slot == number])
    limits = Limits()
    checks = (*interference_checks(run.recorded, limits), link_delay(True, run.recorded, limits))
    for row in rows:
        row.at(runner.scale, seed)
        row.point = run.number
        row.count(run.counted.delivered)
        row.judge(Verdict(all(check.ok for check in checks), checks))
    return rows


def _laid(session: Session, switch: SwitchPlan, slot: Slot) -> list[dict[str, Any]]:
    """Set the circuits of a slot and delay their packets by their paths, which are returned."""
    from controllers.openflow.latency import EMULATED  # here and below: a prediction does without the emulator

    circuits = [list(circuit.ports) for circuit in slot.wiring[switch.name]]
    session.call("rewire", switch=switch.name, circuits=circuits, update="overwrite", delay_s=0.0)
    (mesh,) = (known["mesh"] for known in session.call("circuits")["switches"] if known["name"] == switch.name)
    interface = {port.number: port.interface for port in switch.ports}
    for path in mesh["paths"]:
        held_ms = 0.0 if mesh["latency"].startswith(EMULATED) else path["latency_us"] / 2e3
        for port in path["circuit"]:
            session.net.set_link(interface[port], delay_ms=held_ms)
    paths: list[dict[str, Any]] = mesh["paths"]
    return paths


def _measure(session: Session, switch: SwitchPlan, rows: Sequence[RouteRow]) -> None:
    """Send frames from every port of the slot in turn; a round trip is the median way there and that back."""
    from measure.live.probes import ProbeTrain
    from topos.kernel.packet_sockets import Tap

    fds, ports = session.netns_fds(), {port.rank: port for port in switch.ports}
    ranks = [rank for row in rows for rank in row.pair]
    taps = {str(rank): Tap(fds[rank], ports[rank].interface) for rank in ranks}
    macs = [ports[rank].mac for row in rows for rank in (row.pair[1], row.pair[0])]
    count = FRAMES * len(ranks)
    with ProbeTrain([*taps.values()], macs, taps, count=count, interval_s=INTERVAL_S, spin=False) as train:
        found = train.frames().delays_s
    for row in rows:
        ways = [found[str(rank)] for rank in row.pair]
        if all(ways):
            row.round_trip_ms = sum(map(median, ways)) * 1e3
            row.over_law = row.round_trip_ms / row.predicted_round_trip_ms
