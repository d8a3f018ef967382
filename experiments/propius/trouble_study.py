"""The study of faults: what becomes of acknowledged updates, and of the jobs, when something fails.

In one case leaf servers are killed in the middle of rounds of one job without a control plane.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from experiments.propius import virtual
from experiments.propius.data.messages import EdgeError, Mode, RoundAttempt
from experiments.propius.metrics import UpdateCounts, Updates
from experiments.propius.packet_run import (
    PacketStudy,
    checked_sums,
    conclude,
    edge_links,
    edge_run,
    emulated_size,
    play,
    recorded,
)
from experiments.propius.round_study import JOB, DirectClients
from experiments.propius.row import PropiusRow
from experiments.propius.run import IDLE_S, EdgeProcesses, EdgeRun, Vanishing
from experiments.propius.settings import PropiusSettings, TroubleCase, edge_fabric
from experiments.propius.verdict import judge_edge
from experiments.runner import Runner
from experiments.session import Session
from measure.metrics.checks import Check
from railyard.timeline import Event
from topos.edge_plan import ROOT
from topos.kernel.namespaces import HostEnd
from workloads.stragglers.background import Background


def kill_leaves(run: EdgeRun, rounds: int, spread_s: float = 0.5, longest_s: float = 2.0) -> None:
    """One kill in each of ``rounds`` rounds of one job, at a random moment and of a random leaf server of ``run``.

    Each client gets the model, waits up to ``spread_s`` seconds and pushes an update of real numbers. A round is given
    up ``longest_s`` after its last answer to a client. ``MachineError`` if a server does not start.
    """
    with EdgeProcesses(run, run.data_servers) as servers:
        asyncio.run(_kill_leaves(run, servers, rounds, spread_s, longest_s))


async def _kill_leaves(run: EdgeRun, servers: EdgeProcesses, rounds: int, spread_s: float, longest_s: float) -> None:
    chance, idle_s = random.Random(run.seed), run.idle_s * run.time

    async def serve(number: int, stage: RoundAttempt) -> None:
        wait_s = chance.uniform(0, spread_s)
        with suppress(EdgeError):
            await clients.get(number, stage)
            await asyncio.sleep(wait_s)
            await clients.push(number, stage)

    async def kill() -> None:
        region = chance.randrange(len(run.plan.regions))
        await asyncio.sleep(chance.uniform(0, spread_s + 2 * idle_s))
        await asyncio.to_thread(servers.restart, f"leaf{region}")

    async with DirectClients(run) as clients:
        for round in range(rounds):
            await asyncio.gather(kill(), clients.serve(round, serve))
            await clients.complete(round, longest_s, idle_s / 4)


def fates(events: Iterable[Event], rounds: int) -> UpdateCounts:
    """The fate of the updates of ``kill_leaves``, where also a round that was given up is over."""
    updates = Updates()
    for event in events:
        updates.add(event)
    for round in range(rounds):
        updates.add(Event(0.0, "edge", "round", None, {"job": JOB, "round": round}))
    return updates.counts()


POLICY = "irs"
BACKGROUND_SHARE = 0.5
"""Other traffic from the first region to the root, as a share of the rate of the trunk."""
VANISHING_CLIENTS = 2
_DOWN_REAL_S = 5.0
_FIRST_KILL_REAL_S = 60.0
_SPREAD_REAL_S = 5.0
_LEAST_LONGEST_S = 2.0
"""In the case ``leaf-killed``: how long clients wait at most, and how long at least a round is waited for."""
_LONGEST_MB = 1.0
"""Largest update in the rounds of ``leaf-killed``, whose updates are real numbers, on the emulated wire."""


def trouble_points(settings: PropiusSettings) -> Iterator[tuple[TroubleCase, Mode, float]]:
    """(case, mode, loss of the trunk in percent) of every run of the study."""
    for case in settings.cases:
        for loss in settings.losses if case == "trunk-loss" else (settings.trunk_loss,):
            yield from ((case, mode, loss) for mode in settings.modes)


def measure_trouble(
    runner: Runner, settings: PropiusSettings, case: TroubleCase, mode: Mode, loss: float
) -> PropiusRow:
    if case == "leaf-killed":
        return measure_leaf_kills(runner, settings, mode)
    return measure_case(runner, settings, case, mode, loss)


TROUBLE = PacketStudy("trouble", trouble_points, measure_trouble)


def _row(settings: PropiusSettings, case: str, mode: Mode, loss: float = 0.0) -> PropiusRow:
    row = virtual.policy_row(settings, POLICY, settings.clients, settings.seed, settings.five_jobs(), mode)
    row.study, row.case, row.loss_percent = "trouble", case, loss or None
    return row


def measure_leaf_kills(runner: Runner, settings: PropiusSettings, mode: Mode) -> PropiusRow:
    """One kill of a random leaf server in each of many rounds of one job, each sum checked bit by bit."""
    size, scale = min(emulated_size(settings), round(_LONGEST_MB * 1e6) // 4 * 4), settings.scale.scale()
    longest_s = max(_LEAST_LONGEST_S, 2 * scale.emulated_s(IDLE_S))
    fabric, title = edge_fabric(settings, settings.clients), f"{settings.kills} leaf servers killed, {mode}"
    with recorded(runner, fabric, title) as point, point.counting():
        run = edge_run(settings, point.session, point.folder, mode=mode, verify=True, size=size)
        kill_leaves(run, settings.kills, scale.emulated_s(_SPREAD_REAL_S), longest_s)
    row = _row(settings, "leaf killed", mode)
    row.policy = row.jobs = row.rounds = row.managers = None
    row.kills = settings.kills
    virtual.count_updates(row, fates(point.recorded, settings.kills))
    sums = row.wrong_sums, row.sums_checked = checked_sums(run, point.recorded)
    links = edge_links(settings, [], bottleneck=False, lossy=True)
    kept = _kept(row, settings.kills, settings.kills)
    row.judge(judge_edge(point.recorded, links, plan=point.session.plan, sums=sums, trains=False, more=kept))
    return row


def _kept(row: PropiusRow, faults: int, happened: int) -> list[Check]:
    """Checks that each fault happened, and that mode ``fixed`` lost no acknowledged update and counted none twice."""
    says = f"{happened} of {faults} faults happened"
    checks = [Check("faults", happened, faults, "faults", happened == faults, says)] if faults else []
    if row.mode == "fixed":
        wrong = (row.updates_lost or 0) + (row.updates_twice or 0)
        says = f"{row.updates_lost} acknowledged updates lost, {row.updates_twice} counted twice"
        checks.append(Check("updates", wrong, 0, "updates", wrong == 0, says))
    return checks


def measure_case(runner: Runner, settings: PropiusSettings, case: TroubleCase, mode: Mode, loss: float) -> PropiusRow:
    """Run the five jobs while something fails; an undisturbed run is the case ``none``."""
    jobs, kills = settings.five_jobs(), list[str]()
    vanishing = _vanishing(settings) if case == "client-vanishes" else ()

    def beside(session: Session, processes: EdgeProcesses) -> AbstractContextManager[object]:
        if case == "manager-restarted":
            return _restarted(settings, processes, "manager0", kills.append)
        return _background(settings, session) if case == "background" else nullcontext()

    words = case.replace("-", " ") + (f" {loss:g} %" if case == "trunk-loss" else "")
    row = _row(settings, words, mode, loss)
    fabric, fields = edge_fabric(settings, settings.clients, trunk_loss=loss), {"mode": mode, "vanishing": vanishing}
    found = play(runner, settings, fabric, f"{words}, {mode}", beside, jobs=jobs, policy=POLICY, **fields)
    virtual.fill(row, found.metrics, jobs, 1 / settings.scale.time)
    row.kills = len(kills) or None
    faults = {"client-vanishes": VANISHING_CLIENTS, "manager-restarted": 1}.get(case, 0)
    checks = _kept(row, faults, len(kills) or found.metrics.gone)
    lossy = bool(loss or settings.access_loss)
    conclude(row, settings, found, more=checks, bottleneck=case != "background", lossy=lossy)
    return row


def _vanishing(settings: PropiusSettings) -> tuple[Vanishing, ...]:
    """Clients that go between their first accept and the upload, whichever round that is."""
    rounds = range(settings.rounds)
    return tuple(Vanishing(client, number) for client in range(VANISHING_CLIENTS) for number in rounds)


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

    with ThreadPoolExecutor(1) as thread:
        failing = thread.submit(fail)
        try:
            yield
        finally:
            over.set()
        failing.result()


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
