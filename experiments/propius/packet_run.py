"""One run on packets: the processes of an edge run on a fabric that is up, its events, metrics and verdict.

And the policy studies: five jobs share the clients under each policy, for each number of clients and seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.job_point import Fabric
from experiments.point_run import PointRun, note_circuits
from experiments.propius import virtual
from experiments.propius.data.clients import stratified
from experiments.propius.data.jobs import EdgeJob
from experiments.propius.data.servers import check_sum
from experiments.propius.metrics import EdgeMetrics, edge_metrics
from experiments.propius.row import PropiusRow
from experiments.propius.run import EdgeProcesses, EdgeRun
from experiments.propius.settings import PropiusSettings, Study, edge_fabric
from experiments.propius.verdict import EdgeLinks, Expected, judge_edge
from experiments.runner import Runner
from experiments.session import Session
from measure.live.counters import Counters
from measure.metrics.checks import Check
from railyard.errors import VerifyError
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from railyard.timeline import Event
from topos.edge_plan import ROOT
from topos.plan import FabricPlan

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
class PacketResult:
    """The result of a run: ``sums`` are (wrong, checked) with ``--verify``."""

    run: EdgeRun
    plan: FabricPlan
    events: Sequence[Event]
    metrics: EdgeMetrics
    root: RootBytes
    sums: tuple[int, int] | None


def play(
    runner: Runner,
    settings: PropiusSettings,
    fabric: Fabric,
    title: str,
    beside: Beside = lambda session, processes: nullcontext(),
    *,
    jobs: tuple[EdgeJob, ...],
    **fields: Any,
) -> PacketResult:
    """Run all processes on ``fabric`` until the jobs have finished or the time is over.

    ``fields`` of the run are others than the settings give (``edge_run``).
    """
    scale = settings.scale.scale()
    with recorded(runner, fabric, title, sum(job.rounds for job in jobs)) as measured:
        session = measured.session
        run = edge_run(settings, session, measured.folder, jobs=jobs, verify=settings.verify, **fields)
        with EdgeProcesses(run) as processes, measured.counting():
            before = read_root(session.netns_fds()[ROOT])
            with beside(session, processes):
                processes.go()
                processes.wait(
                    scale.emulated_s(settings.longest_s),
                    runner.progress.step,
                    measured.counted.check,
                )
            time.sleep(scale.emulated_s(_DRAIN_REAL_S))
            root = read_root(session.netns_fds()[ROOT]).since(before)
    events = measured.recorded
    sums = checked_sums(run, events) if settings.verify else None
    return PacketResult(run, session.plan, events, edge_metrics(events), root, sums)


@contextmanager
def recorded(runner: Runner, fabric: Fabric, title: str, rounds: int | None = None) -> Iterator[PointRun]:
    """A point on ``fabric`` while the block runs, named ``title``; its processes write to its folder."""
    runner.progress.begin(title, None, rounds)
    with runner.recording(fabric, title, title, steps=rounds) as run:
        note_circuits(run.session, run.folder)
        yield run


def checked_sums(run: EdgeRun, events: Sequence[Event]) -> tuple[int, int]:
    """(wrong, checked) sums of the root, each computed again bit by bit."""
    sums = [event for event in events if event.source == "edge" and event.kind == "sum"]
    wrong = 0
    for event in sums:
        try:
            check_sum(event, run.seed, run.size)
        except VerifyError:
            wrong += 1
    return wrong, len(sums)


def edge_run(settings: PropiusSettings, session: Session, folder: Path, **more: Any) -> EdgeRun:
    """A run on a session that is up: ``more`` fields than the settings give; the processes write to ``folder``."""
    plan = session.plan.edge
    assert plan is not None, "the fabric is an edge network"
    fields = {
        "jobs": (),
        "clients": tuple(stratified(plan.clients, len(plan.regions), more.get("seed", settings.seed))),
        "size": emulated_size(settings),
        "time": settings.scale.time,
        "seed": settings.seed,
        "managers": settings.managers,
    }
    return EdgeRun(plan, tuple(session.netns_fds()), folder, **{**fields, **more})


def emulated_size(settings: PropiusSettings) -> int:
    """Bytes of a model on the emulated wire: a whole number of float32 values."""
    return max(4, settings.scale.scale().emulated_bytes(settings.object_bytes) // 4 * 4)


def edge_links(settings: PropiusSettings, rates_mbps: Sequence[float], **more: bool) -> EdgeLinks:
    """The links of clients whose own have these rates; ``more`` are other fields than the settings give."""
    lossy = bool(settings.access_loss or settings.trunk_loss)
    round_trip_s = settings.scale.scale().emulated_s(2 * settings.access_delay_ms / 1e3)
    return EdgeLinks(rates_mbps, round_trip_s, **{"lossy": lossy, **more})


def conclude(
    row: PropiusRow,
    settings: PropiusSettings,
    found: PacketResult,
    expected: Sequence[Expected] = (),
    more: Sequence[Check] = (),
    **links: bool,
) -> None:
    """Set what was counted in a run, and its verdict; ``expected`` and ``more`` are those of ``judge_edge``.

    ``links`` are fields of ``edge_links``.
    """
    row.root_bytes, row.root_received_bytes = found.root
    if found.sums is not None:
        row.wrong_sums, row.sums_checked = found.sums
    of_clients = edge_links(settings, [client.rate_mbps for client in found.run.clients], **links)
    row.judge(judge_edge(found.events, of_clients, expected, plan=found.plan, sums=found.sums, more=more))


@dataclass(frozen=True)
class PacketStudy:
    """A study beside those of the policies: its points, and the row of a measured or, by ``predict``, predicted one."""

    name: Study
    points: Callable[[PropiusSettings], Iterable[tuple[Any, ...]]]
    measure: Callable[..., PropiusRow]
    predict: Callable[..., PropiusRow] | None = None


RESPONSE_SHARE = 0.25
"""How far the mean response time of a run may be from the model: which clients a round gets is a matter of moments."""


def measure_policy(runner: Runner, settings: PropiusSettings, policy: str, clients: int, seed: int) -> PropiusRow:
    """Run one policy on packets; its row, with the prediction in virtual time beside it."""
    jobs, title = settings.jobs(), f"{policy}, {clients} clients, seed {seed}"
    row = virtual.policy_row(settings, policy, clients, seed, jobs)
    virtual.predict_into(row, virtual.predicted(settings, policy, clients, seed).metrics)
    found = play(runner, settings, edge_fabric(settings, clients), title, jobs=jobs, policy=policy, seed=seed)
    virtual.fill(row, found.metrics, jobs, 1 / settings.scale.time)
    response = Expected("response time", row.response_time_s, row.predicted_response_time_s, RESPONSE_SHARE)
    conclude(row, settings, found, [response])
    return row
