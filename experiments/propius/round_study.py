"""The studies of one round of one job: star and tree with all clients starting together, and an optical trunk.

Star and tree: what they put on the root's link. Trunk: one root port, the regions take turns; the time of a round
against the delay.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.job_point import Fabric
from experiments.propius.control.trunk import TrunkPolicy
from experiments.propius.data.client_process import DataClient, update_of
from experiments.propius.data.messages import Mode, RoundAttempt, UpdateId
from experiments.propius.model.formulas import (
    crossing_delay_s,
    root_bytes,
    rotor_round_s,
    shared_round_s,
    transfer_s,
    turns_round_s,
)
from experiments.propius.packet_run import (
    PacketStudy,
    RootBytes,
    edge_links,
    edge_run,
    emulated_size,
    read_root,
    recorded,
)
from experiments.propius.row import PropiusRow
from experiments.propius.run import IDLE_S, EdgeProcesses, EdgeRun, EventFile, TrunkTurns
from experiments.propius.settings import PropiusSettings, edge_fabric
from experiments.propius.verdict import Expected, judge_edge
from experiments.runner import Runner
from experiments.session import Session
from railyard.errors import AgentError
from railyard.timeline import Event
from topos.client_rates import client_rates
from topos.edge_plan import ROOT

JOB = 0
_POLL_S = 0.02
_LONGEST_S = 300.0


class DirectClients:
    """The clients of ``run`` and one job, which ask the servers by themselves, without a control plane."""

    def __init__(self, run: EdgeRun) -> None:
        self._run = run
        self._job, *self._clients = [DataClient.of(run, number) for number in (None, *range(len(run.clients)))]
        self._events = EventFile(run.folder / "clients.jsonl")

    async def __aenter__(self) -> DirectClients:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in (self._job, *self._clients):
            await client.close()
        self._events.close()

    async def connect(self) -> None:
        await asyncio.gather(*(client.connect() for client in self._clients))

    async def serve(self, round: int, serve: Callable[[int, RoundAttempt], Awaitable[object]]) -> None:
        """Put the model of a round, and let each client ``serve`` it."""
        stage = RoundAttempt(round, 0)
        await self._job.put(JOB, stage, len(self._clients), bytes(self._run.size))
        await asyncio.gather(*(serve(number, stage) for number in range(len(self._clients))))

    async def get(self, number: int, stage: RoundAttempt) -> float:
        """Get the model; the time when the client has it. ``EdgeError`` if the server does not answer."""
        began = time.monotonic()
        hit, _ = await self._clients[number].get(JOB, stage.round)
        return self._note("get", began, number, stage, hit=hit)

    async def push(self, number: int, stage: RoundAttempt) -> None:
        payload, began = update_of(self._run, JOB, stage.round, number), time.monotonic()
        outcome = await self._clients[number].push(UpdateId(JOB, stage, number), payload)
        self._note("push", began, number, stage, outcome=outcome)

    def _note(self, kind: str, began: float, client: int, stage: RoundAttempt, **more: object) -> float:
        now, size = time.monotonic(), self._run.size
        self._events.note(kind, began, now, client=client, job=JOB, round=stage.round, bytes=size, **more)
        return now

    async def complete(self, round: int, longest_s: float, poll_s: float = _POLL_S) -> bool:
        """Wait until the root has all updates of the round; False if it has not within ``longest_s`` seconds."""
        end = time.monotonic() + longest_s
        while (await self._job.job_get(JOB, round))[1] is None:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(poll_s)
        return True


@dataclass(frozen=True)
class OneRound:
    """Seconds from ``began`` until every client had the model, and until the root had every update.

    ``root`` are bytes on the root's link.
    """

    root: RootBytes
    began: float
    hand_out_s: float
    round_s: float


def one_round(run: EdgeRun, *, train_s: float = 0.0, delays_s: Sequence[float] = (), together: bool = True) -> OneRound:
    """One round with the root server and the leaf servers of ``run``, without jobs and a control plane.

    A client asks for the model at once, or ``delays_s`` (one a client) after the start, and trains for ``train_s``, in
    seconds of the run. With ``together`` no client uploads before all have the model. Raises ``AgentError`` if the
    round does not complete, ``EdgeError`` if a server does not answer.
    """
    root_fd = run.netns_fds[ROOT]
    assert root_fd is not None
    with EdgeProcesses(run, run.data_servers):
        before = read_root(root_fd)
        began, got, ended = asyncio.run(_one_round(run, train_s, delays_s, together))
        return OneRound(read_root(root_fd).since(before), began, got - began, ended - began)


async def _one_round(
    run: EdgeRun, train_s: float, delays_s: Sequence[float], together: bool
) -> tuple[float, float, float]:
    """When the round began, when the last client had the model, and when the root had every update."""
    began, got, all_got = math.inf, list[float](), asyncio.Event()

    async def serve(number: int, stage: RoundAttempt) -> None:
        nonlocal began
        began = min(began, time.monotonic())
        if delays_s:
            await asyncio.sleep(delays_s[number])
        got.append(await clients.get(number, stage))
        if len(got) == len(run.clients):
            all_got.set()
        if together:
            await all_got.wait()
        await asyncio.sleep(train_s)
        await clients.push(number, stage)

    async with DirectClients(run) as clients:
        await clients.connect()
        await clients.serve(0, serve)
        if not await clients.complete(0, _LONGEST_S):
            raise AgentError(f"the root server did not get all updates within {_LONGEST_S:g} s")
        return began, max(got), time.monotonic()


LAW_SHARE = 0.02
"""How far the bytes on the root's link may be from the law."""


def tree_points(settings: PropiusSettings) -> Iterator[tuple[str, Mode]]:
    """(topology, mode) of the rounds of study ``tree``; a star has no leaf server, so its mode makes no difference."""
    yield "star", "fixed"
    yield from (("tree", mode) for mode in settings.modes)


def tree_row(settings: PropiusSettings, topology: str, mode: Mode) -> PropiusRow:
    """The row of a round, with the bytes that the law gives."""
    scale, clients, regions = settings.scale.scale(), settings.clients, settings.regions
    row = PropiusRow(study="tree", mode=mode, topology=topology, clients=clients, regions=regions)
    row.at(scale, settings.seed)
    sizes = [len(range(region, clients, regions)) for region in range(regions)]
    row.predicted_root_bytes = round(root_bytes(sizes, emulated_size(settings), topology, mode)[1])
    return row


def measure_tree(runner: Runner, settings: PropiusSettings, topology: str, mode: Mode) -> PropiusRow:
    fabric, title = edge_fabric(settings, settings.clients), f"{topology}, {mode}, {settings.clients} clients"
    with recorded(runner, fabric, title) as point, point.counting():
        found = one_round(edge_run(settings, point.session, point.folder, mode=mode, topology=topology))
    row = tree_row(settings, topology, mode)
    row.root_bytes, row.root_received_bytes = found.root
    row.time_s = settings.scale.scale().real_s(found.hand_out_s)
    law = Expected("bytes sent by the root", row.root_bytes, row.predicted_root_bytes, LAW_SHARE)
    links = edge_links(settings, client_rates(settings.clients, settings.regions), bottleneck=topology == "tree")
    # In mode authors a flush stops the leaf server, and how many clients find the model is a matter of moments.
    exact = [law] if mode == "fixed" else []
    row.judge(judge_edge(point.recorded, links, exact, trains=False, plan=point.session.plan))
    return row


TREE = PacketStudy("tree", tree_points, measure_tree, tree_row)


CLIENT_MBPS = 20.0
_MTU = 1500
CLIENTS_OF_A_REGION = 2
"""All clients are equal in this study, so that the formula needs no distribution, and few: the trunk is the subject."""
TRAIN_S = 5.0
"""Real seconds of training."""
SLOT_TRANSFERS = 1.2
"""Length of a slot of the rotor, in transfers of one model with their round trips."""
_FORMULA_SHARE = 0.05
_SHARED_SHARE = 0.12
"""How far the time of a round may be from the formula. TCP shares the electrical trunk unevenly, so that some regions
are served early: short transfers took up to a tenth less than the formula, which is an upper bound."""


@dataclass(frozen=True)
class TrunkModel:
    """The times of one round by the formulas of ``experiments.propius.model.formulas``, in real seconds.

    ``transfer_s`` is one model over the trunk with the request to the root; ``turn_s`` adds the messages to and from
    the arbiter. Before a reconfiguration a circuit stays up for ``guard_s``, for the last packets. ``work_s`` is what
    the clients of a region do between hand-out and flush, with the idle time of the leaf.
    """

    regions: int
    transfer_s: float
    turn_s: float
    guard_s: float
    work_s: float

    @staticmethod
    def of(settings: PropiusSettings) -> TrunkModel:
        size, trip_s = settings.object_bytes, 2 * settings.trunk_delay_ms / 1e3
        over_trunk = transfer_s(size, settings.slow_trunk_mbps, trip_s, _MTU)
        at_client = transfer_s(size, CLIENT_MBPS, 2 * settings.access_delay_ms / 1e3, _MTU)
        turn_s, guard_s = over_trunk + trip_s, settings.trunk_delay_ms / 1e3
        return TrunkModel(settings.regions, over_trunk, turn_s, guard_s, 2 * at_client + TRAIN_S + IDLE_S)

    @property
    def slot_s(self) -> float:
        return SLOT_TRANSFERS * self.turn_s

    def round_s(self, policy: str, delay_s: float, began_s: float = 0.0) -> float:
        """The time of a round; ``began_s`` is that of ``rotor_round_s``."""
        if policy == "electrical":
            return shared_round_s(self.regions, self.transfer_s, self.work_s)
        if policy == "rotor":
            gap_s = delay_s + self.guard_s
            return rotor_round_s(self.regions, self.turn_s, self.work_s, gap_s, self.slot_s, began_s)
        return turns_round_s(self.regions, self.turn_s, self.work_s, delay_s + self.guard_s)

    @property
    def crossing(self) -> str:
        """The delay up to which turns are faster than sharing, as a sentence."""
        delay_s = crossing_delay_s(self.regions, self.transfer_s, self.work_s)
        delay_s -= self.turn_s + self.guard_s - self.transfer_s  # what a turn costs beside the transfer
        return f"Turns on an optical trunk are faster than sharing an electrical one up to a delay of {delay_s:.2f} s"


def trunk_points(settings: PropiusSettings) -> Iterator[tuple[str, float | None]]:
    """(policy, reconfiguration delay in ms) of every round; the electrical trunk comes first."""
    yield "electrical", None
    yield from ((policy, delay) for policy in settings.turns for delay in settings.delays_ms)


def trunk_row(settings: PropiusSettings, policy: str, delay_ms: float | None, began_s: float = 0.0) -> PropiusRow:
    """The row of a round, with the time of the formula."""
    model = TrunkModel.of(settings)
    row = PropiusRow(study="trunk", policy=policy, mode="fixed", topology="tree", delay_ms=delay_ms)
    row.clients, row.regions = settings.regions * CLIENTS_OF_A_REGION, settings.regions
    row.finding = model.crossing
    row.predicted_time_s = model.round_s(policy, (delay_ms or 0.0) / 1e3, began_s)
    row.at(settings.scale.scale(), settings.seed)
    return row


def trunk_fabric(settings: PropiusSettings, policy: str) -> Fabric:
    return edge_fabric(
        settings,
        settings.regions * CLIENTS_OF_A_REGION,
        trunk="electrical" if policy == "electrical" else "ocs",
        trunk_mbps=settings.slow_trunk_mbps,
        client_mbps=CLIENT_MBPS,
    )


def measure_trunk(
    runner: Runner, settings: PropiusSettings, policy: TrunkPolicy | Literal["electrical"], delay_ms: float | None
) -> PropiusRow:
    scale = settings.scale.scale()
    title = f"trunk {policy}" + ("" if delay_ms is None else f", {delay_ms:g} ms")
    with recorded(runner, trunk_fabric(settings, policy), title) as point, point.counting():
        turns = None
        if policy != "electrical" and delay_ms is not None:
            turns = _turns(settings, point.session, policy, delay_ms)
        run = edge_run(settings, point.session, point.folder, turns=turns)
        found = one_round(run, train_s=scale.emulated_s(TRAIN_S), together=False)
    gap_s = scale.emulated_s((delay_ms or 0.0) / 1e3 + TrunkModel.of(settings).guard_s)
    began_s = scale.real_s(_into_rotation(found.began, point.recorded, gap_s))
    row = trunk_row(settings, policy, delay_ms, began_s if policy == "rotor" else 0.0)
    row.time_s = scale.real_s(found.round_s)
    row.root_bytes, row.root_received_bytes = found.root
    share = _SHARED_SHARE if delay_ms is None else _FORMULA_SHARE
    expected = Expected("time of a round", row.time_s, row.predicted_time_s, share)
    links = edge_links(settings, [CLIENT_MBPS] * len(run.clients), lossy=False)
    row.judge(judge_edge(point.recorded, links, [expected], plan=point.session.plan, trains=False))
    return row


TRUNK = PacketStudy("trunk", trunk_points, measure_trunk, trunk_row)


def _turns(settings: PropiusSettings, session: Session, policy: TrunkPolicy, delay_ms: float) -> TrunkTurns:
    scale, model = settings.scale.scale(), TrunkModel.of(settings)
    assert session.channel_path is not None
    slot_s = scale.emulated_s(model.slot_s) if policy == "rotor" else 0.0
    return TrunkTurns(
        session.channel_path, policy, scale.emulated_s(delay_ms / 1e3), slot_s, scale.emulated_s(model.guard_s)
    )


def _into_rotation(now: float, events: Sequence[Event], gap_s: float) -> float:
    """Seconds until ``now`` since the gap of ``gap_s`` before a slot of region 0 began for the last time."""
    circuits = [event for event in events if event.kind == "trunk" and event["region"] == 0]
    began = [event.t - gap_s for event in circuits if event.t - gap_s <= now]
    return now - max(began) if began else 0.0
