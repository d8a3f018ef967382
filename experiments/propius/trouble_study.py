"""The study of faults: what becomes of acknowledged updates, and of the jobs, when something fails.

In one case leaf servers are killed in the middle of rounds of one job without a control plane.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from experiments.propius import virtual
from experiments.propius.data.client_process import DataClient, PushOutcome
from experiments.propius.data.clients import stratified
from experiments.propius.data.messages import EdgeError, Mode, RoundAttempt, UpdateId
from experiments.propius.data.update import as_bytes, check_sum, draw
from experiments.propius.packet_run import PacketPoint, edge_run, emulated_size, play, recorded, verdict_of
from experiments.propius.processes import EdgeProcesses
from experiments.propius.row import PropiusRow
from experiments.propius.run import IDLE_S, EdgeRun, Vanishing
from experiments.propius.settings import PropiusSettings, TroubleCase, edge_fabric
from experiments.propius.verdict import EdgeLinks, judge_edge
from experiments.runner import Runner
from experiments.session import Session
from measure.metrics.checks import Check
from railyard.timeline import Event
from topos.edge_plan import ROOT
from topos.kernel.namespaces import HostEnd
from workloads.stragglers.background import Background

_JOB = 0


@dataclass(frozen=True)
class LeafKills:
    """The fate of the updates; all but the first two are numbers of updates.

    ``acknowledged``: that clients were told are delivered, of which ``counted`` are in a sum of the root, ``late``
    were noted as late by a server, and of ``lost`` nobody knows. ``twice``: how often an update was in a sum beyond
    the first time. ``unanswered``: whose clients were told nothing.
    """

    kills: int
    sums_right: int
    acknowledged: int
    counted: int
    late: int
    lost: int
    twice: int
    unanswered: int


def kill_leaves(run: EdgeRun, rounds: int, spread_s: float = 0.5, longest_s: float = 2.0) -> LeafKills:
    """One kill in each of ``rounds`` rounds of one job, at a random moment and of a random leaf server of ``run``.

    Each client gets the model, waits up to ``spread_s`` seconds and pushes an update of real numbers. A round is given
    up ``longest_s`` after its last answer to a client. Every sum is checked bit by bit: ``VerifyError`` if one is
    wrong. ``MachineError`` if a server does not start.
    """
    with EdgeProcesses(run, run.data_servers) as servers:
        told = asyncio.run(_Kills(run, servers, spread_s, longest_s).run(rounds))
    return account(run, rounds, told, servers.events())


Told = dict[UpdateId, PushOutcome]


class _Kills:
    def __init__(self, run: EdgeRun, servers: EdgeProcesses, spread_s: float, longest_s: float) -> None:
        self._run, self._servers = run, servers
        self._spread_s, self._longest_s, self._idle_s = spread_s, longest_s, run.idle_s * run.time
        self._random = random.Random(run.seed)
        self._job = DataClient.of(run, None)
        self._clients = [DataClient.of(run, client.number) for client in run.clients]
        self._told: Told = {}

    async def run(self, rounds: int) -> Told:
        async with AsyncExitStack() as stack:
            for client in (self._job, *self._clients):
                stack.push_async_callback(client.close)
            for round in range(rounds):
                await self._round(round)
        return self._told

    async def _round(self, round: int) -> None:
        stage = RoundAttempt(round, 0)
        await self._job.put(_JOB, stage, len(self._clients), bytes(self._run.size))
        serving = (self._serve(number, client, stage) for number, client in enumerate(self._clients))
        await asyncio.gather(self._kill(), *serving)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._longest_s
        while (await self._job.job_get(_JOB, round))[1] is None and loop.time() < end:
            await asyncio.sleep(self._idle_s / 4)

    async def _kill(self) -> None:
        region = self._random.randrange(len(self._run.plan.regions))
        await asyncio.sleep(self._random.uniform(0, self._spread_s + 2 * self._idle_s))
        await asyncio.to_thread(self._servers.restart, f"leaf{region}")

    async def _serve(self, number: int, client: DataClient, stage: RoundAttempt) -> None:
        wait = self._random.uniform(0, self._spread_s)
        try:
            await client.get(_JOB, stage.round)
        except EdgeError:
            return
        await asyncio.sleep(wait)
        payload = as_bytes(draw(self._run.seed, _JOB, stage.round, number, self._run.size))
        update = UpdateId(_JOB, stage, number)
        self._told[update] = await client.push(update, payload)


def account(run: EdgeRun, rounds: int, told: Told, events: Iterable[Event]) -> LeafKills:
    """The fate of the updates, from what the clients were told and from the events of the servers.

    What the root had of a round that was given up (``cleared``) has arrived there as well.
    """
    arrived: Counter[tuple[int, int]] = Counter()
    noted: set[tuple[int, int]] = set()
    sums = 0
    for event in events:
        if event.kind == "sum":
            check_sum(event, run.seed, run.size)
            sums += 1
            arrived.update((event["round"], client) for part in event["order"] for client in part)
        elif event.kind == "cleared":
            arrived.update((event["round"], client) for client in event["clients"])
        elif event.kind == "flush" and event["outcome"] == "late":
            noted.update((event["round"], client) for client in event["clients"])
    acknowledged = {(update.stage.round, update.client) for update, said in told.items() if said == "acknowledged"}
    return LeafKills(
        kills=rounds,
        sums_right=sums,
        acknowledged=len(acknowledged),
        counted=len(acknowledged & arrived.keys()),
        late=len((acknowledged & noted) - arrived.keys()),
        lost=len(acknowledged - noted - arrived.keys()),
        twice=sum(count - 1 for count in arrived.values()),
        unanswered=sum(said == "lost" for said in told.values()),
    )


POLICY = "irs"
BACKGROUND_SHARE = 0.5
"""Other traffic from the first region to the root, as a share of the rate of the trunk."""
VANISHING_CLIENTS = 2
_DOWN_REAL_S = 5.0
_FIRST_KILL_REAL_S = 60.0
_SPREAD_REAL_S = 5.0
_LEAST_LONGEST_S = 2.0
"""Times of ``KillSettings``: over how long clients upload, and how long at least a round may be without an answer."""
_LONGEST_MB = 1.0
"""Largest update in the rounds of ``leaf-killed``, whose updates are real numbers, on the emulated wire."""


def trouble_points(settings: PropiusSettings) -> Iterator[tuple[TroubleCase, Mode, float]]:
    """(case, mode, loss of the trunk in percent) of every run of the study."""
    for case in settings.cases:
        for loss in settings.losses if case == "trunk-loss" else (settings.trunk_loss,):
            yield from ((case, mode, loss) for mode in settings.modes)


def measure_trouble(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
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
    size, scale = min(emulated_size(settings), round(_LONGEST_MB * 1e6) // 4 * 4), settings.scale.scale()
    idle_s = scale.emulated_s(IDLE_S)
    longest_s = max(_LEAST_LONGEST_S, 2 * idle_s)
    spread_s = scale.emulated_s(_SPREAD_REAL_S)
    with recorded(runner, session, f"{settings.kills} leaf servers killed, {mode}") as (folder, events):
        run = edge_run(settings, session, folder, mode=mode, verify=True, size=size)
        found = kill_leaves(run, settings.kills, spread_s, longest_s)
    row = _row(settings, "leaf killed", mode)
    row.policy = row.jobs = row.rounds = row.managers = None
    row.kills, row.updates_acknowledged, row.updates_late = found.kills, found.acknowledged, found.late
    row.updates_lost, row.updates_twice = found.lost, found.twice
    row.sums_checked, row.wrong_sums = found.sums_right, 0  # a wrong sum ends the run
    links = EdgeLinks([], 0.0, bottleneck=False, lossy=True)
    kept = _kept(row, settings.kills, found.kills)
    row.judge(judge_edge(events, links, plan=session.plan, sums=(0, found.sums_right), trains=False, more=kept))
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
    kills: list[str] = []
    if case == "client-vanishes":
        point = replace(point, vanishing=_vanishing(settings))

    def beside(session: Session, processes: EdgeProcesses) -> AbstractContextManager[object]:
        if case == "manager-restarted":
            return _restarted(settings, processes, "manager0", kills.append)
        return _background(settings, session) if case == "background" else nullcontext()

    words = case.replace("-", " ") + (f" {loss:g} %" if case == "trunk-loss" else "")
    row = _row(settings, words, mode, loss)
    found = play(runner, settings, point, f"{words}, {mode}", beside)
    virtual.fill(row, found.metrics, point.jobs, 1 / settings.scale.time)
    row.kills = len(kills) or None
    row.root_bytes, row.root_received_bytes = found.root.sent, found.root.received
    row.sums_checked, row.wrong_sums = (None, None) if found.sums is None else (found.sums[1], found.sums[0])
    faults = {"client-vanishes": VANISHING_CLIENTS, "manager-restarted": 1}.get(case, 0)
    checks = _kept(row, faults, len(kills) or found.metrics.gone)
    row.judge(verdict_of(settings, point, found, more=checks))
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
