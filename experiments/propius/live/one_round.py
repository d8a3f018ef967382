"""One round of one job whose clients all start at the same moment: what star and tree put on the root's link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.propius.data.data_client import RETRIES, DataClient
from experiments.propius.data.data_requests import Mode, Stage, UpdateId
from experiments.propius.data.endpoint import Address
from experiments.propius.live.data_plane import DataHosts, DataPlane
from experiments.propius.live.root_link import RootBytes, read_root
from railyard.errors import AgentError
from railyard.timeline import Event

_JOB = 0
_STAGE = Stage(0, 0)
_POLL_S = 0.02


@dataclass(frozen=True)
class RoundSettings:
    """Parameter servers of ``mode``, with ``leaves`` or as a star; models and updates have ``size`` bytes.

    A client asks for the model at once, or ``delays_s`` (one a client) after the start, and trains for ``train_s``. A
    leaf server flushes ``idle_s`` after its last update, and ``longest_s`` ends a round that does not complete. These
    are seconds of the run, ``time`` is emulated seconds per real second. ``arbiters`` are those of ``DataPlane``. With
    ``together`` no client uploads before all have the model.
    """

    mode: Mode
    leaves: bool
    size: int
    idle_s: float
    time: float
    train_s: float = 0.0
    delays_s: Sequence[float] = ()
    arbiters: Sequence[Address] = ()
    together: bool = True
    longest_s: float = 300.0


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


def one_round(hosts: DataHosts, settings: RoundSettings, folder: Path) -> OneRound:
    """Run the round on the hosts of an edge network; the servers write their events to ``folder``.

    Raises ``AgentError`` if the round does not complete, ``EdgeError`` if a server does not answer.
    """
    plane = DataPlane(
        hosts,
        folder,
        mode=settings.mode,
        size=settings.size,
        idle_s=settings.idle_s,
        leaves=settings.leaves,
        arbiters=settings.arbiters,
    )
    with plane:
        before = read_root(hosts.root_fd)
        found = asyncio.run(_Round(plane, settings).run())
        return replace(found, root=read_root(hosts.root_fd).since(before))


class _Round:
    def __init__(self, plane: DataPlane, settings: RoundSettings) -> None:
        self._plane = plane
        self._settings = settings
        retries = RETRIES[settings.mode].scaled(settings.time)
        self._job = plane.to_root(None, retries)
        connect = plane.to_leaf if settings.leaves else plane.to_root
        self._clients = [connect(client, retries) for client in range(len(plane.hosts.regions))]
        self._update = bytes(settings.size)
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
        if self._settings.delays_s:
            await asyncio.sleep(self._settings.delays_s[number])
        await self._get(number, client)
        if self._settings.together:
            self._waiting -= 1
            if not self._waiting:
                self._all_got.set()
            await self._all_got.wait()
        await asyncio.sleep(self._settings.train_s)
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
        fields = {"client": client, "job": _JOB, "round": 0, "bytes": self._settings.size, **more}
        self._events.append(Event(began, "edge", kind, time.monotonic(), fields))

    async def _complete(self, began: float) -> None:
        """Wait until the root has all updates."""
        while (await self._job.job_get(_JOB, _STAGE.round))[1] is None:
            if time.monotonic() > began + self._settings.longest_s:
                raise AgentError(f"the root server did not get all updates within {self._settings.longest_s:g} s")
            await asyncio.sleep(_POLL_S)
