"""The study of faults: what becomes of acknowledged updates, and of the jobs, when something fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from controllers.edge.processes import EdgeProcesses
from experiments.point_run import Counted, counted
from experiments.propius import virtual
from experiments.propius.data_study import IDLE_S
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import Beside, PacketPoint, emulated_size, events_of, play, verdict_of
from experiments.propius.row import PropiusRow
from experiments.propius.settings import Mode, PropiusSettings, TroubleCase
from experiments.runner import Runner
from experiments.session import Session
from measure.live.edge.data_plane import DataHosts
from measure.live.edge.leaf_kills import KillSettings, kill_leaves
from measure.metrics.edge.verdict import EdgeLinks, judge_edge
from topos.edge_plan import ROOT
from topos.kernel.namespaces import HostEnd
from workloads.edge.client_actor import Vanishing
from workloads.edge.population import stratified
from workloads.stragglers.background import Background

POLICY = "irs"
BACKGROUND_SHARE = 0.5
"""Other traffic from the first region to the root, as a share of the rate of the trunk."""
VANISHING_CLIENTS = 2
_DOWN_REAL_S = 5.0
_FIRST_KILL_REAL_S = 60.0
_LONGEST_MB = 1.0
"""Largest update in the rounds of ``leaf-killed``, whose updates are real numbers, on the emulated wire."""


def trouble_points(settings: PropiusSettings) -> Iterator[tuple[TroubleCase, Mode, float]]:
    """(case, mode, loss of the trunk in percent) of every run of the study."""
    for case in settings.cases:
        for loss in settings.losses if case == "trunk-loss" else (settings.trunk_loss,):
            yield from ((case, mode, loss) for mode in settings.modes)


def measure_trouble(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """Run every case in each mode."""
    for case, mode, loss in trouble_points(settings):
        if case == "leaf-killed":
            yield measure_leaf_kills(runner, settings, mode)
        else:
            yield measure_case(runner, settings, case, mode, loss)


def _row(settings: PropiusSettings, case: str, mode: Mode, loss: float = 0.0) -> PropiusRow:
    row = virtual.policy_row(settings, POLICY, settings.clients, settings.seed, settings.five_jobs(), mode)
    row.study, row.case, row.loss_percent = "trouble", case, loss or None
    return row


def measure_leaf_kills(runner: Runner, settings: PropiusSettings, mode: Mode) -> PropiusRow:
    """One kill of a random leaf server in each of many rounds of one job, each sum checked bit by bit."""
    session = runner.session(edge_fabric(settings, settings.clients))
    folder, counters = session.folder / f"kills{runner.next_number()}", Counted(session)
    folder.mkdir(mode=0o700)
    runner.progress.begin(f"{settings.kills} leaf servers killed, {mode}")
    size = min(emulated_size(settings), round(_LONGEST_MB * 1e6))
    given = KillSettings(mode, settings.kills, size, settings.seed, idle_s=settings.scale.scale().emulated_s(IDLE_S))
    assert session.plan.edge is not None
    with counted(session, folder / "sampler.jsonl", counters):
        found = kill_leaves(DataHosts.of(session.plan.edge, session.netns_fds()), given, folder)
    events = events_of(folder, counters)
    runner.record.add_events(events)
    row = _row(settings, "leaf killed", mode)
    row.policy = row.jobs = row.rounds = row.managers = None
    row.kills, row.updates_acknowledged, row.updates_late = found.kills, found.acknowledged, found.late
    row.updates_lost, row.updates_twice = found.lost, found.twice
    row.sums_checked, row.wrong_sums = found.sums_right, 0  # a wrong sum ends the run
    links = EdgeLinks([], 0.0, bottleneck=False, lossy=True)
    row.judge(judge_edge(events, links, sums=(0, found.sums_right), trains=False))
    return row


def measure_case(runner: Runner, settings: PropiusSettings, case: TroubleCase, mode: Mode, loss: float) -> PropiusRow:
    """Run the five jobs while something fails; an undisturbed run is the case ``none``."""
    point = PacketPoint(
        edge_fabric(settings, settings.clients, trunk_loss=loss),
        settings.five_jobs(),
        stratified(settings.clients, settings.regions, settings.seed),
        POLICY,
        settings.seed,
        mode,
        lossy=bool(loss or settings.access_loss),
        disturbed=case == "background",
    )
    beside: Beside = lambda session, processes: nullcontext()  # noqa: E731
    kills: list[str] = []
    if case == "client-vanishes":
        point = replace(point, vanishing=tuple(Vanishing(client, round=0) for client in range(VANISHING_CLIENTS)))
    elif case == "manager-restarted":
        beside = lambda session, processes: _restarted(settings, processes, "manager0", kills.append)  # noqa: E731
    elif case == "background":
        beside = lambda session, processes: _background(settings, session)  # noqa: E731
    words = case.replace("-", " ") + (f" {loss:g} %" if case == "trunk-loss" else "")
    row = _row(settings, words, mode, loss)
    found = play(runner, settings, point, f"{words}, {mode}", beside)
    virtual.fill(row, found.metrics, point.jobs, 1 / settings.scale.time)
    row.kills = len(kills) or None
    row.root_bytes, row.root_received_bytes = found.root.sent, found.root.received
    row.sums_checked, row.wrong_sums = (None, None) if found.sums is None else (found.sums[1], found.sums[0])
    row.judge(verdict_of(settings, point, found))
    return row


@contextmanager
def _restarted(
    settings: PropiusSettings, processes: EdgeProcesses, name: str, killed: Callable[[str], None]
) -> Iterator[None]:
    """Kill a process of the run after a while, and start it again, as its machine would."""
    scale, over = settings.scale.scale(), threading.Event()

    def fail() -> None:
        if over.wait(scale.emulated_s(_FIRST_KILL_REAL_S)):
            return
        processes.kill(name)
        killed(name)
        over.wait(scale.emulated_s(_DOWN_REAL_S))
        processes.restart(name)

    thread = threading.Thread(target=fail, name="fault")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _background(settings: PropiusSettings, session: Session) -> AbstractContextManager[object]:
    """Other traffic from the leaf of the first region to the root, over the trunk."""
    plan, fds = session.plan, session.netns_fds()
    assert plan.edge is not None
    leaf = plan.edge.leaf_rank(0)
    ends = []
    for rank in (leaf, ROOT):
        (_, port), *_ = plan.host_ports(rank)
        ends.append(HostEnd(fds[rank], port.interface, port.ip))
    return Background(ends[0], ends[1], BACKGROUND_SHARE * settings.trunk_mbps, plan.mtu)
