"""Times of single requests of one client at a leaf server and at the root, over connections that are open and in use.

====== ============ ===============================================================================================
at     kind         what
====== ============ ===============================================================================================
leaf   get_cold     the leaf server fetches the whole model from the root, then sends it to the client
leaf   get_warm     the leaf server has the model
leaf   push_new     the first update of a round
leaf   push_add     another update of the round, which is added to the first
root   get          as in a star
root   push_new     as above, in a star
root   push_add     as above, in a star
====== ============ ===============================================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measure.live.edge.data_plane import DataHosts, DataPlane
from workloads.edge.data_client import DataClient, Retries
from workloads.edge.data_requests import Mode, Stage, UpdateId
from workloads.edge.wire import EdgeError

Place = Literal["leaf", "root"]
Kind = Literal["get", "get_cold", "get_warm", "push_new", "push_add"]
_JOB = 0
_ONE_TRY = Retries(0.0, 1)
_NEVER_IDLE_S = 3600.0
"""No flush is under way during a measurement."""


@dataclass(frozen=True)
class RequestTime:
    """One measured request: ``seconds`` of the run from sending it until its answer is complete."""

    at: Place
    kind: Kind
    repetition: int
    seconds: float


def request_times(
    hosts: DataHosts, folder: Path, *, size: int, client: int = 0, repetitions: int = 5, mode: Mode = "fixed"
) -> list[RequestTime]:
    """Time each kind of request ``repetitions`` times; ``folder`` gets the events of the servers.

    Each kind is repeated without a pause, and the first time, in which TCP finds the rate, does not count. Raises
    ``EdgeError`` if a server does not answer, ``MachineError`` if one does not start.
    """
    with DataPlane(hosts, folder, mode=mode, size=size, idle_s=_NEVER_IDLE_S) as plane:
        return asyncio.run(_Times(plane, client, repetitions).run())


class _Times:
    def __init__(self, plane: DataPlane, client: int, repetitions: int) -> None:
        self._size = plane.size
        self._repetitions = repetitions
        self._job = plane.to_root(None, _ONE_TRY)
        self._servers: dict[Place, DataClient] = {
            "leaf": plane.to_leaf(client, _ONE_TRY),
            "root": plane.to_root(client, _ONE_TRY),
        }
        self._round = -1
        self._found: list[RequestTime] = []

    async def run(self) -> list[RequestTime]:
        async with AsyncExitStack() as stack:
            for client in (self._job, *self._servers.values()):
                stack.push_async_callback(client.close)
            for place in ("leaf", "root"):
                await self._gets(place)
                await self._pushes(place, "push_new")
                await self._pushes(place, "push_add")
        return self._found

    async def _next_round(self) -> int:
        self._round += 1
        await self._job.put(_JOB, Stage(self._round, 0), 1 << 20, bytes(self._size))
        return self._round

    async def _gets(self, place: Place) -> None:
        server = self._servers[place]
        for repetition in range(-1, self._repetitions):
            round = await self._next_round()
            if place == "leaf":
                await self._time(place, "get_cold", repetition, server.get(_JOB, round))
                await self._time(place, "get_warm", repetition, server.get(_JOB, round))
            else:
                await self._time(place, "get", repetition, server.get(_JOB, round))

    async def _pushes(self, place: Place, kind: Kind) -> None:
        server, update = self._servers[place], bytes(self._size)
        if kind == "push_add":
            await self._next_round()
        for repetition in range(-2, self._repetitions):
            round = await self._next_round() if kind == "push_new" else self._round
            identity = UpdateId(_JOB, Stage(round, 0), repetition + 2)
            await self._time(place, kind, repetition, server.push(identity, update))

    async def _time(self, place: Place, kind: Kind, repetition: int, request: Awaitable[Any]) -> None:
        began = time.monotonic()
        answer = await request
        ended = time.monotonic()
        if kind.startswith("push") and answer != "acknowledged":
            raise EdgeError(f"the {place} server answered {answer} to an update")
        if repetition >= 0:
            self._found.append(RequestTime(place, kind, repetition, ended - began))
