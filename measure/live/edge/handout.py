"""Hands one model out to all clients at once, and counts the bytes that leave the root and how long it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from measure.live.counters import Counters
from measure.live.edge.data_plane import DataHosts, DataPlane
from railyard.errors import VerifyError
from railyard.scale import ETHERNET_HEADER_BYTES, TCP_IP_HEADER_BYTES
from workloads.edge.data_client import DataClient, Retries
from workloads.edge.data_requests import Mode, Stage

_JOB = 0
_ONE_TRY = Retries(0.0, 1)
_NEVER_IDLE_S = 3600.0
_ROOT_INTERFACE = "root-trunk"


@dataclass(frozen=True)
class HandOut:
    """What it took to give every client the model; times are seconds of the run from the common start.

    ``root_bytes`` is what the root's port sent, without the headers of Ethernet, IP and TCP (a TSO segment has one, so
    bytes with headers would depend on how the kernel cut the stream), but with what was sent twice. ``copies``: how
    many models that is. ``hits``: clients whose leaf server had the model when they asked. ``client_s``: when each
    client had it.
    """

    root_bytes: int
    copies: float
    hits: int
    client_s: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """When the last client had the model."""
        return max(self.client_s)


def hand_out(
    hosts: DataHosts,
    folder: Path,
    *,
    mode: Mode,
    size: int,
    leaves: bool = True,
    delays_s: Sequence[float] | None = None,
) -> HandOut:
    """Every client asks for a model of ``size`` bytes: at once, or ``delays_s`` (one a client) after the start.

    ``leaves`` False: a star. The clients' connections are open before the start. ``folder`` gets the servers' events.
    Raises ``EdgeError`` if a server does not answer, ``VerifyError`` if a client gets another model.
    """
    plane = DataPlane(hosts, folder, mode=mode, size=size, idle_s=_NEVER_IDLE_S, leaves=leaves)
    with plane, Counters(hosts.root_fd) as counters:
        before = _sent(counters)
        got = asyncio.run(_all_get(plane, leaves, delays_s or [0.0] * len(hosts.regions)))
        sent = _sent(counters) - before
    return HandOut(
        root_bytes=sent,
        copies=sent / size,
        hits=sum(hit for hit, _ in got) if leaves else 0,
        client_s=tuple(seconds for _, seconds in got),
    )


def _sent(counters: Counters) -> int:
    """Bytes that the root's port sent, without headers."""
    port = counters.links()[_ROOT_INTERFACE]
    return port.tx_bytes - port.tx_packets * (ETHERNET_HEADER_BYTES + TCP_IP_HEADER_BYTES)


async def _all_get(plane: DataPlane, leaves: bool, delays_s: Sequence[float]) -> list[tuple[bool, float]]:
    job = plane.to_root(None, _ONE_TRY)
    connect = plane.to_leaf if leaves else plane.to_root
    clients = [connect(client, _ONE_TRY) for client in range(len(delays_s))]
    model = bytes(range(256)) * (plane.size // 256) + bytes(plane.size % 256)
    async with AsyncExitStack() as stack:
        for client in (job, *clients):
            await client.connect()
            stack.push_async_callback(client.close)
        await job.put(_JOB, Stage(0, 0), len(clients), model)
        start = time.monotonic()
        return await asyncio.gather(
            *(_get(client, model, start, delay) for client, delay in zip(clients, delays_s, strict=True))
        )


async def _get(client: DataClient, model: bytes, start: float, delay_s: float) -> tuple[bool, float]:
    await asyncio.sleep(delay_s)
    hit, got = await client.get(_JOB, 0)
    ended = time.monotonic()
    if got != model:
        raise VerifyError("a client got another model than the job had put")
    return hit, ended - start
