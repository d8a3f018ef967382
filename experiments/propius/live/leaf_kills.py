"""Kills leaf servers in the middle of rounds and counts what became of the updates that they had acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from experiments.propius.data.data_client import RETRIES, DataClient, PushOutcome
from experiments.propius.data.data_requests import Mode, Stage, UpdateId
from experiments.propius.data.update import as_bytes, check_sum, draw
from experiments.propius.data.wire import EdgeError
from experiments.propius.live.data_plane import DataHosts, DataPlane
from railyard.timeline import Event

_JOB = 0


@dataclass(frozen=True)
class LeafKills:
    """What became of the updates; all but the first two are numbers of updates.

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


@dataclass(frozen=True)
class KillSettings:
    """One kill in each of ``rounds`` rounds, at a random moment and of a random leaf server.

    Each client gets the model, waits up to ``spread_s`` seconds and pushes an update of ``size`` bytes of real numbers.
    A leaf server is idle for ``idle_s`` before it flushes, ``time`` (emulated seconds per real second) scales how long
    clients wait before they try again, and a round is given up ``longest_s`` after its last answer to a client.
    """

    mode: Mode
    rounds: int
    size: int
    seed: int
    spread_s: float = 0.5
    idle_s: float = 0.3
    longest_s: float = 2.0
    time: float = 0.1


def kill_leaves(hosts: DataHosts, settings: KillSettings, folder: Path) -> LeafKills:
    """Run the rounds on the hosts of an edge network; events and journals are written to ``folder``.

    Every sum is checked bit by bit: ``VerifyError`` if one is wrong. ``MachineError`` if a server does not start.
    """
    plane = DataPlane(hosts, folder, mode=settings.mode, size=settings.size, idle_s=settings.idle_s, verify=True)
    with plane:
        told = asyncio.run(_Kills(plane, settings).run())
    return account(settings, told, plane.events())


Told = dict[UpdateId, PushOutcome]


class _Kills:
    def __init__(self, plane: DataPlane, settings: KillSettings) -> None:
        self._plane = plane
        self._settings = settings
        self._random = random.Random(settings.seed)
        retries = RETRIES[settings.mode].scaled(settings.time)
        self._job = plane.to_root(None, retries)
        self._clients = [plane.to_leaf(client, retries) for client in range(len(plane.hosts.regions))]
        self._told: Told = {}

    async def run(self) -> Told:
        async with AsyncExitStack() as stack:
            for client in (self._job, *self._clients):
                stack.push_async_callback(client.close)
            for round in range(self._settings.rounds):
                await self._round(round)
        return self._told

    async def _round(self, round: int) -> None:
        stage = Stage(round, 0)
        await self._job.put(_JOB, stage, len(self._clients), bytes(self._settings.size))
        serving = (self._serve(number, client, stage) for number, client in enumerate(self._clients))
        await asyncio.gather(self._kill(), *serving)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.longest_s
        while (await self._job.job_get(_JOB, round))[1] is None and loop.time() < end:
            await asyncio.sleep(self._settings.idle_s / 4)

    async def _kill(self) -> None:
        region = self._random.randrange(len(self._plane.hosts.leaf_ips))
        await asyncio.sleep(self._random.uniform(0, self._settings.spread_s + 2 * self._settings.idle_s))
        await self._plane.kill_leaf(region)

    async def _serve(self, number: int, client: DataClient, stage: Stage) -> None:
        wait = self._random.uniform(0, self._settings.spread_s)
        try:
            await client.get(_JOB, stage.round)
        except EdgeError:
            return
        await asyncio.sleep(wait)
        payload = as_bytes(draw(self._settings.seed, _JOB, stage.round, number, self._settings.size))
        update = UpdateId(_JOB, stage, number)
        self._told[update] = await client.push(update, payload)


def account(settings: KillSettings, told: Told, events: Iterable[Event]) -> LeafKills:
    """What became of the updates, from what the clients were told and from the events of the servers.

    What the root had of a round that was given up (``cleared``) has arrived there as well.
    """
    arrived: Counter[tuple[int, int]] = Counter()
    noted: set[tuple[int, int]] = set()
    sums = 0
    for event in events:
        if event.kind == "sum":
            check_sum(event, settings.seed, settings.size)
            sums += 1
            arrived.update((event["round"], client) for part in event["order"] for client in part)
        elif event.kind == "cleared":
            arrived.update((event["round"], client) for client in event["clients"])
        elif event.kind == "flush" and event["outcome"] == "late":
            noted.update((event["round"], client) for client in event["clients"])
    acknowledged = {(update.stage.round, update.client) for update, said in told.items() if said == "acknowledged"}
    return LeafKills(
        kills=settings.rounds,
        sums_right=sums,
        acknowledged=len(acknowledged),
        counted=len(acknowledged & arrived.keys()),
        late=len((acknowledged & noted) - arrived.keys()),
        lost=len(acknowledged - noted - arrived.keys()),
        twice=sum(count - 1 for count in arrived.values()),
        unanswered=sum(said == "lost" for said in told.values()),
    )
