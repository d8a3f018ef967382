"""A process that puts load on the control plane by real sockets: ``python -m measure.live.edge.control_load``.

Each client is a connection from the namespace of one of the run's clients. In a closed loop a client checks in, and
again as soon as it is answered; in a rush all clients accept an offer at the same moment.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from railyard.validation import from_plain
from workloads.edge.actor import Orders, run_actor
from workloads.edge.attributes import Attributes
from workloads.edge.control_client import ControlClient
from workloads.edge.device import Offer
from workloads.edge.endpoint import Address
from workloads.edge.wire import EdgeError

_CONNECTING_AT_ONCE = 32
_PATIENCE_S = 60.0
_CHECK_INS, _ASK_AGAIN_S = 50, 0.1


@dataclass(frozen=True)
class LoadClient:
    """One client: its number, its namespace, its load balancer, and what it tells about itself."""

    number: int
    netns_fd: int | None
    control: Address
    attributes: Attributes


@dataclass(frozen=True)
class LoadSettings:
    """``seconds`` of the closed loop, of which the first ``warm_s`` do not count."""

    kind: Literal["check-ins", "accepts"]
    clients: tuple[LoadClient, ...]
    seconds: float = 0.0
    warm_s: float = 0.0


async def _all(work: Sequence[Coroutine[Any, Any, Any]], at_once: int) -> list[Any]:
    turns = asyncio.Semaphore(at_once)

    async def one(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async with turns:
            return await coroutine

    return await asyncio.gather(*(one(coroutine) for coroutine in work))


async def _offered(connection: ControlClient, attributes: Attributes) -> Sequence[Offer]:
    """Check in until there are offers: a policy may make a client wait for a batch."""
    for _ in range(_CHECK_INS):
        if offers := await connection.check_in(attributes):
            return offers
        await asyncio.sleep(_ASK_AGAIN_S)
    return ()


async def _closed_loop(
    connection: ControlClient, attributes: Attributes, settings: LoadSettings
) -> tuple[int, list[float]]:
    """Check in again and again: (how often, the seconds of each check-in that began after the warm-up)."""
    first = time.monotonic() + settings.warm_s
    end, count, latencies = first + settings.seconds, 0, []
    while (began := time.monotonic()) < end:
        await connection.check_in(attributes)
        count += 1
        if began >= first:
            latencies.append(time.monotonic() - began)
    return count, latencies


async def _accept(connection: ControlClient, offers: Sequence[Offer], number: int) -> tuple[str, int]:
    """Accept one of the offers: (bound, refused, failed or not offered; the job)."""
    if not offers:
        return "not offered", 0
    job = offers[number % len(offers)].job
    try:
        return ("refused" if await connection.accept(job) is None else "bound"), job
    except EdgeError:
        return "failed", job


async def _work(plain: dict[str, Any], orders: Orders) -> None:
    settings = from_plain(LoadSettings, plain, "a load on the control plane")
    clients = settings.clients
    connections = [
        ControlClient(client.netns_fd, client.control, client.number, patience_s=_PATIENCE_S) for client in clients
    ]
    orders.ready()
    pairs = list(zip(connections, clients, strict=True))
    prepare = _offered if settings.kind == "accepts" else ControlClient.check_in
    check_ins = [prepare(connection, client.attributes) for connection, client in pairs]
    offers: list[Sequence[Offer]] = await _all(check_ins, _CONNECTING_AT_ONCE)
    print("connected", flush=True)
    await orders.go.wait()
    began = time.monotonic()
    answer: dict[str, Any]
    if settings.kind == "check-ins":
        loops = [_closed_loop(connection, client.attributes, settings) for connection, client in pairs]
        done = await asyncio.gather(*loops)
        answer = {
            "check_ins": sum(count for count, _ in done),
            "latencies": [second for _, latencies in done for second in latencies],
            "lasted": settings.seconds,
        }
    else:
        accepts = [
            _accept(connection, offered, client.number)
            for (connection, client), offered in zip(pairs, offers, strict=True)
        ]
        outcomes = Counter(await asyncio.gather(*accepts))
        answer = {"outcomes": [(what, job, count) for (what, job), count in outcomes.items()]}
    print(json.dumps(answer | {"began": began, "ended": time.monotonic()}), flush=True)
    await orders.stop.wait()


if __name__ == "__main__":
    run_actor(_work)
