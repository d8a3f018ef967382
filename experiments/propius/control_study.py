"""The studies of the control plane: check-ins at saturation, and accepts in a rush, over sockets between hosts.

Both are in wall-clock time: they show what this control plane carries on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from controllers.edge.run import EdgeRun
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import PacketPoint, edge_run, recorded
from experiments.propius.row import PropiusRow
from experiments.propius.settings import PropiusSettings
from experiments.runner import Runner
from experiments.session import Session
from measure.live.edge.control_study import ControlLoad, accept_rush, control_load
from measure.metrics.checks import Check, Limits, Verdict
from measure.metrics.fidelity import link_delay
from measure.metrics.load import fast_path_check, interference_checks
from measure.metrics.records import fabric_checks, numbers_check
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.edge.population import stratified

MANAGERS = (1, 2, 4)
POLICY = "fifo"
GENERATORS = 2
BUSY_GENERATOR = 0.9
"""A process that makes the load and is busier than this may be the limit itself."""


def measure_control(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """Check-ins in closed loops of more and more clients, for 1, 2 and 4 client managers."""
    for managers in MANAGERS:
        session, run = _started(runner, settings, managers)
        with recorded(runner, session, f"check-ins, {managers} client managers") as (folder, events):
            loads = control_load(replace(run, folder=folder), settings.at_once, settings.load_s, GENERATORS)
        for found in loads:
            row = _row(settings, "control", managers)
            row.concurrency, row.checkins_per_s = found.clients, found.check_ins_per_s
            row.p50_wall_ms, row.p99_wall_ms = found.p50_ms, found.p99_ms
            row.checkin_bytes = found.bytes_per_check_in
            row.judge(_saturated(found, recorded_checks(events, session.plan)))
            yield row


def measure_accept(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """Many accepts at the same moment: no job gets more clients than it asked for."""
    session, run = _started(runner, settings, settings.managers)
    with recorded(runner, session, f"{settings.accepts} accepts at the same moment") as (folder, events):
        found = accept_rush(replace(run, folder=folder), settings.accepts)
    row = _row(settings, "accept", settings.managers)
    row.demand, row.accepted, row.refused = sum(found.demands.values()), sum(found.bound.values()), found.refused
    row.above_demand = sum(max(0, count - found.demands[job]) for job, count in found.bound.items())
    row.time_s = found.seconds
    says = f"{row.above_demand} clients above a demand, {found.failed} accepts without an answer"
    wrong = row.above_demand + found.failed + (1 if found.exceeds else 0)
    checks = (Check("accepts", wrong, 0, "accepts", wrong == 0, says), *recorded_checks(events, session.plan))
    row.judge(Verdict(all(check.ok for check in checks), checks))
    yield row


def recorded_checks(events: Sequence[Event], plan: FabricPlan) -> list[Check]:
    """The checks of the network under a load on the control plane, and of what was recorded of it.

    Rates, timers and busy processors say nothing here: the messages are short, and the load is to saturate.
    """
    limits = Limits()
    return [
        *interference_checks(events, limits),
        link_delay(plan.delayed, events, limits),
        fast_path_check(events, limits),
        numbers_check(events),
        *fabric_checks(events, plan, limits),
    ]


def _row(settings: PropiusSettings, study: str, managers: int) -> PropiusRow:
    row = PropiusRow(
        study=study, policy=POLICY, managers=managers, clients=settings.clients, jobs=len(settings.five_jobs())
    )
    row.at(settings.scale.scale(), settings.seed)
    return row


def _started(runner: Runner, settings: PropiusSettings, managers: int) -> tuple[Session, EdgeRun]:
    """A session, and the run of which only the control plane is started."""
    fabric = edge_fabric(settings, settings.clients)
    profiles = stratified(settings.clients, settings.regions, settings.seed)
    session = runner.session(fabric)
    point = PacketPoint(fabric, settings.five_jobs(), profiles, POLICY, settings.seed)
    run = edge_run(settings, session, point, runner.record.running)
    return session, replace(run, managers=managers)


def _saturated(found: ControlLoad, others: Sequence[Check]) -> Verdict:
    """The verdict of a closed loop: it looks for saturation, of which the generators of the load must not be the cause.

    Busy processors are no fault of it; the processor time of each part is said.
    """
    busy = found.cores["load"] / min(GENERATORS, found.clients)
    said = ", ".join(f"{name} {cores:.2f}" for name, cores in found.cores.items())
    says = f"a generator of the load was busy {busy:.0%} of the time (limit {BUSY_GENERATOR:.0%}); cores: {said}"
    check = Check("generators", busy, BUSY_GENERATOR, "of the time", busy <= BUSY_GENERATOR, says)
    checks = (check, *others)
    return Verdict(all(each.ok for each in checks), checks)
