"""The studies of one round of one job: star and tree with all clients starting together, and an optical trunk.

Star and tree: what they put on the root's link. Trunk: one root port, the regions take turns; the time of a round
against the delay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from experiments.job_point import Fabric
from experiments.propius.data.client_process import DataClient
from experiments.propius.data.messages import Mode, RoundAttempt, UpdateId
from experiments.propius.model.formulas import (
    crossing_delay_s,
    root_bytes,
    rotor_round_s,
    shared_round_s,
    transfer_s,
    turns_round_s,
)
from experiments.propius.packet_run import RootBytes, edge_run, emulated_size, read_root, recorded
from experiments.propius.processes import EdgeProcesses
from experiments.propius.row import PropiusRow
from experiments.propius.run import IDLE_S, EdgeRun, TrunkTurns
from experiments.propius.settings import PropiusSettings, edge_fabric
from experiments.propius.verdict import EdgeLinks, Expected, judge_edge
from experiments.runner import Runner
from experiments.session import Session
from railyard.errors import AgentError
from railyard.timeline import Event
from topos.client_rates import client_rates
from topos.edge_plan import ROOT

_JOB = 0
_STAGE = RoundAttempt(0, 0)
_POLL_S = 0.02
_LONGEST_S = 300.0


@dataclass(frozen=True)
class OneRound:
    """Seconds from ``began`` until every client had the model, and until the root had every update.

    ``events`` are those of the clients; the servers write theirs to files. ``root`` are bytes on the root's link.
    """

    root: RootBytes
    began: float
    hand_out_s: float
    round_s: float
    events: tuple[Event, ...]


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
        measured = asyncio.run(_Round(run, train_s, delays_s, together).run())
        return replace(measured, root=read_root(root_fd).since(before))


class _Round:
    def __init__(self, run: EdgeRun, train_s: float, delays_s: Sequence[float], together: bool) -> None:
        self._train_s, self._delays_s, self._together = train_s, delays_s, together
        self._job = DataClient.of(run, None)
        self._clients = [DataClient.of(run, client.number) for client in run.clients]
        self._update = bytes(run.size)
        self._events: list[Event] = []
        self._waiting = len(self._clients)
        self._all_got = asyncio.Event()

    async def run(self) -> OneRound:
        async with AsyncExitStack() as stack:
            for client in (self._job, *self._clients):
                stack.push_async_callback(client.close)
            await self._job.put(_JOB, _STAGE, len(self._clients), self._update)
            await asyncio.gather(*(client.connect() for client in self._clients))
            began = time.monotonic()
            await asyncio.gather(*(self._serve(number, client) for number, client in enumerate(self._clients)))
            await self._complete(began)
            ended = time.monotonic()
        got = max(event.end or event.t for event in self._events if event.kind == "get")
        return OneRound(RootBytes(0, 0), began, got - began, ended - began, tuple(self._events))

    async def _serve(self, number: int, client: DataClient) -> None:
        if self._delays_s:
            await asyncio.sleep(self._delays_s[number])
        await self._get(number, client)
        if self._together:
            self._waiting -= 1
            if not self._waiting:
                self._all_got.set()
            await self._all_got.wait()
        await asyncio.sleep(self._train_s)
        await self._push(number, client)

    async def _get(self, number: int, client: DataClient) -> None:
        began = time.monotonic()
        hit, _ = await client.get(_JOB, _STAGE.round)
        self._note("get", began, number, hit=hit)

    async def _push(self, number: int, client: DataClient) -> None:
        began = time.monotonic()
        outcome = await client.push(UpdateId(_JOB, _STAGE, number), self._update)
        self._note("push", began, number, outcome=outcome)

    def _note(self, kind: str, began: float, client: int, **more: object) -> None:
        fields = {"client": client, "job": _JOB, "round": 0, "bytes": len(self._update), **more}
        self._events.append(Event(began, "edge", kind, time.monotonic(), fields))

    async def _complete(self, began: float) -> None:
        while (await self._job.job_get(_JOB, _STAGE.round))[1] is None:
            if time.monotonic() > began + _LONGEST_S:
                raise AgentError(f"the root server did not get all updates within {_LONGEST_S:g} s")
            await asyncio.sleep(_POLL_S)


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


def measure_tree(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """One round of all clients at once, as a star and as a tree in each mode."""
    scale = settings.scale.scale()
    for topology, mode in tree_points(settings):
        session = runner.session(edge_fabric(settings, settings.clients))
        with recorded(runner, session, f"{topology}, {mode}, {settings.clients} clients") as (folder, events):
            found = one_round(edge_run(settings, session, folder, mode=mode, topology=topology))
            events += found.events
        row = tree_row(settings, topology, mode)
        row.root_bytes, row.root_received_bytes = found.root
        row.time_s = scale.real_s(found.hand_out_s)
        law = Expected("bytes sent by the root", row.root_bytes, row.predicted_root_bytes, LAW_SHARE)
        links = EdgeLinks(
            client_rates(settings.clients, settings.regions),
            scale.emulated_s(2 * settings.access_delay_ms / 1e3),
            bottleneck=topology == "tree",
            lossy=bool(settings.access_loss or settings.trunk_loss),
        )
        # In mode authors a flush stops the leaf server, and how many clients find the model is a matter of moments.
        exact = [law] if mode == "fixed" else []
        row.judge(judge_edge(events, links, exact, trains=False, plan=session.plan))
        yield row


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


def measure_trunk(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    for policy, delay_ms in trunk_points(settings):
        session = runner.session(trunk_fabric(settings, policy))
        yield _measure(runner, settings, session, policy, delay_ms)


def _measure(
    runner: Runner, settings: PropiusSettings, session: Session, policy: str, delay_ms: float | None
) -> PropiusRow:
    scale = settings.scale.scale()
    optical = delay_ms is not None
    turns = _turns(settings, session, policy, delay_ms) if delay_ms is not None else None
    title = f"trunk {policy}" + ("" if delay_ms is None else f", {delay_ms:g} ms")
    with recorded(runner, session, title) as (folder, events):
        run = edge_run(settings, session, folder, turns=turns)
        found = one_round(run, train_s=scale.emulated_s(TRAIN_S), together=False)
        events += found.events
    gap_s = scale.emulated_s((delay_ms or 0.0) / 1e3 + TrunkModel.of(settings).guard_s)
    began_s = scale.real_s(_into_rotation(found.began, events, gap_s))
    row = trunk_row(settings, policy, delay_ms, began_s if policy == "rotor" else 0.0)
    row.time_s = scale.real_s(found.round_s)
    row.root_bytes, row.root_received_bytes = found.root
    share = _FORMULA_SHARE if optical else _SHARED_SHARE
    expected = Expected("time of a round", row.time_s, row.predicted_time_s, share)
    trip_s = scale.emulated_s(2 * settings.access_delay_ms / 1e3)
    links = EdgeLinks([CLIENT_MBPS] * (settings.regions * CLIENTS_OF_A_REGION), trip_s)
    row.judge(judge_edge(events, links, [expected], plan=session.plan, trains=False))
    return row


def _turns(settings: PropiusSettings, session: Session, policy: str, delay_ms: float) -> TrunkTurns:
    """How the arbiter hands out the circuits."""
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
