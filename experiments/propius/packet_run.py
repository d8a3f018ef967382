"""One run on packets: the processes of an edge run on a fabric that is up, its events, metrics and verdict.

And the policy studies: five jobs share the clients under each policy, for each number of clients and seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.job_point import Fabric
from experiments.point_run import Counted, counted, note_circuits
from experiments.propius import virtual
from experiments.propius.data.clients import ClientProfile, stratified
from experiments.propius.data.jobs import EdgeJob
from experiments.propius.data.messages import Mode
from experiments.propius.data.update import check_sum
from experiments.propius.metrics import EdgeMetrics, edge_metrics
from experiments.propius.processes import EdgeProcesses
from experiments.propius.row import PropiusRow
from experiments.propius.run import EdgeRun, Vanishing
from experiments.propius.settings import PropiusSettings, edge_fabric
from experiments.propius.verdict import EdgeLinks, Expected, judge_edge
from experiments.runner import Runner
from experiments.session import Session
from measure.live.counters import Counters
from measure.metrics.checks import Check, Verdict
from measure.metrics.point import point_event
from railyard.errors import VerifyError
from railyard.point_folder import events_of as events_in_point
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from railyard.timeline import Event
from topos.edge_plan import ROOT

INTERFACE = "root-trunk"
_HEADERS = ETHERNET_HEADER_BYTES + TCP_IP_HEADER_BYTES


class RootBytes(NamedTuple):
    """Bytes that the root's port sent and received, without the headers of Ethernet, IP and TCP.

    A TSO segment counts as one packet, so bytes with headers would depend on how the kernel cut the stream. Bytes that
    were sent twice count twice.
    """

    sent: int
    received: int

    def since(self, before: RootBytes) -> RootBytes:
        return RootBytes(self.sent - before.sent, self.received - before.received)


def read_root(root_fd: int) -> RootBytes:
    """The bytes so far; ``root_fd`` is the descriptor of the namespace of the root's host."""
    with Counters(root_fd) as counters:
        port = counters.links()[INTERFACE]
    return RootBytes(port.tx_bytes - port.tx_packets * _HEADERS, port.rx_bytes - port.rx_packets * _HEADERS)


_DRAIN_REAL_S = 15.0
"""After the last round leaves may still flush what came late: idle time and a transfer."""
Beside = Callable[[Session, EdgeProcesses], AbstractContextManager[object]]
"""What goes on beside a run: faults and other traffic."""


@dataclass(frozen=True)
class PacketPoint:
    """One run: ``policy`` on ``fabric`` with ``jobs`` and ``profiles``. ``lossy``: links lose packets on purpose.

    ``disturbed``: something fails, or other traffic uses the links, so rates say nothing about this machine.
    """

    fabric: Fabric
    jobs: tuple[EdgeJob, ...]
    profiles: Sequence[ClientProfile]
    policy: str
    seed: int
    mode: Mode = "fixed"
    lossy: bool = False
    disturbed: bool = False
    vanishing: tuple[Vanishing, ...] = ()


@dataclass(frozen=True)
class PacketResult:
    """The result of a run: ``sums`` are (wrong, checked) with ``--verify``."""

    events: tuple[Event, ...]
    metrics: EdgeMetrics
    root: RootBytes
    sums: tuple[int, int] | None
    counted: Counted


def play(
    runner: Runner,
    settings: PropiusSettings,
    point: PacketPoint,
    title: str,
    beside: Beside = lambda session, processes: nullcontext(),
) -> PacketResult:
    """Bring the fabric up if it is not, and run all processes until the jobs have finished or the time is over."""
    session = runner.session(point.fabric)
    number = runner.next_number()
    rounds = sum(job.rounds for job in point.jobs)
    folder = runner.record.point_folder(number, mode=title, plan=point.fabric.name, title=title, steps=rounds)
    run = edge_run(
        settings,
        session,
        folder,
        point.profiles,
        jobs=point.jobs,
        policy=point.policy,
        mode=point.mode,
        seed=point.seed,
        verify=settings.verify,
        vanishing=point.vanishing,
    )
    runner.progress.begin(title, None, rounds)
    counters = Counted(session)
    done = 0

    def on_round(*_: int) -> None:
        nonlocal done
        done += 1
        runner.progress.step(done)

    scale, processes, began, stopped = settings.scale.scale(), EdgeProcesses(run), time.monotonic(), True
    try:
        note_circuits(session, folder)
        with processes, counted(session, folder / "sampler.jsonl", counters):
            before = read_root(session.netns_fds()[ROOT])
            with beside(session, processes):
                processes.go()
                processes.wait(scale.emulated_s(settings.longest_s), on_round, counters.check)
            time.sleep(scale.emulated_s(_DRAIN_REAL_S))
            root = read_root(session.netns_fds()[ROOT]).since(before)
        stopped = False
    finally:
        events = events_of(folder, counters)
        interval = point_event(number, title, session.plan.fabric, began, time.monotonic(), stopped=stopped)
        runner.record.add_events([interval, *events], folder)
        runner.progress.done()
    return PacketResult(
        tuple(events),
        edge_metrics(events),
        root,
        checked_sums(settings, point.seed, run.size, events),
        counters,
    )


def events_of(folder: Path, counters: Counted) -> list[Event]:
    """The events that the processes of a run have left in ``folder`` and below, and those of sampler and counters.

    In order of time, with an event ``run lost`` where numbers are missing.
    """
    return sorted([*events_in_point(folder), *counters.events], key=lambda event: event.t)


@contextmanager
def recorded(runner: Runner, session: Session, title: str) -> Iterator[tuple[Path, list[Event]]]:
    """Count and sample while the block runs: (the folder of a new point for its processes, a list of events).

    ``title`` names the point. Afterwards the list has all events: those that the block put into it, and those of
    processes, sampler and counters. They are saved whatever happens.
    """
    number = runner.next_number()
    runner.progress.begin(title)
    folder = runner.record.point_folder(number, mode=title, plan=runner.fabric_name, title=title)
    counters, events, began, stopped = Counted(session), list[Event](), time.monotonic(), True
    try:
        note_circuits(session, folder)
        with counted(session, folder / "sampler.jsonl", counters):
            yield folder, events
        stopped = False
    finally:
        events += events_of(folder, counters)
        interval = point_event(number, title, session.plan.fabric, began, time.monotonic(), stopped=stopped)
        runner.record.add_events([interval, *events], folder)
        runner.progress.done()


def checked_sums(settings: PropiusSettings, seed: int, size: int, events: Sequence[Event]) -> tuple[int, int] | None:
    """(wrong, checked) sums of the root, each computed again bit by bit; None without ``--verify``."""
    if not settings.verify:
        return None
    sums = [event for event in events if event.source == "edge" and event.kind == "sum"]
    wrong = 0
    for event in sums:
        try:
            check_sum(event, seed, size)
        except VerifyError:
            wrong += 1
    return wrong, len(sums)


def edge_run(
    settings: PropiusSettings, session: Session, folder: Path, clients: Sequence[ClientProfile] = (), **more: Any
) -> EdgeRun:
    """A run on a session that is up: ``more`` fields than the settings give; the processes write to ``folder``.

    Without ``clients`` those of the settings' seed.
    """
    plan, jobs = session.plan.edge, more.pop("jobs", ())
    assert plan is not None, "the fabric is an edge network"
    clients = clients or stratified(plan.clients, len(plan.regions), settings.seed)
    own = {"time": settings.scale.time, "seed": settings.seed, "managers": settings.managers}
    fields = {"size": emulated_size(settings), **own, **more}
    return EdgeRun(plan, tuple(session.netns_fds()), folder, jobs, tuple(clients), **fields)


def emulated_size(settings: PropiusSettings) -> int:
    """Bytes of a model on the emulated wire: a whole number of float32 values."""
    return max(4, settings.scale.scale().emulated_bytes(settings.object_bytes) // 4 * 4)


def verdict_of(
    settings: PropiusSettings,
    point: PacketPoint,
    found: PacketResult,
    expected: Sequence[Expected] = (),
    more: Sequence[Check] = (),
) -> Verdict:
    """The verdict on a run; ``expected``: measured values beside those of the model, ``more``: further checks."""
    links = EdgeLinks(
        [profile.rate_mbps for profile in point.profiles],
        settings.scale.scale().emulated_s(2 * settings.access_delay_ms / 1e3),
        bottleneck=not point.disturbed,
        lossy=point.lossy,
    )
    plan = found.counted.session.plan
    return judge_edge(found.events, links, expected, plan=plan, sums=found.sums, more=more)


RESPONSE_SHARE = 0.25
"""How far the mean response time of a run may be from the model: which clients a round gets is a matter of moments."""


def measure_policy(runner: Runner, settings: PropiusSettings, policy: str, clients: int, seed: int) -> PropiusRow:
    """Run one policy on packets; its row, with the prediction in virtual time beside it."""
    point = PacketPoint(
        edge_fabric(settings, clients),
        settings.jobs(),
        stratified(clients, settings.regions, seed),
        policy,
        seed,
        lossy=bool(settings.access_loss or settings.trunk_loss),
    )
    row = virtual.policy_row(settings, policy, clients, seed, point.jobs)
    virtual.predict_into(row, virtual.predicted(settings, policy, clients, seed).metrics)
    found = play(runner, settings, point, f"{policy}, {clients} clients, seed {seed}")
    virtual.fill(row, found.metrics, point.jobs, 1 / settings.scale.time)
    row.root_bytes, row.root_received_bytes = found.root.sent, found.root.received
    row.sums_checked, row.wrong_sums = (None, None) if found.sums is None else (found.sums[1], found.sums[0])
    response = Expected("response time", row.response_time_s, row.predicted_response_time_s, RESPONSE_SHARE)
    row.judge(verdict_of(settings, point, found, [response]))
    return row
