"""The process of the root server: ``RootServer`` on a port of its host. A ``railyard.child``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from railyard.validation import from_plain
from workloads.edge.actor import EventFile, Orders, run_actor
from workloads.edge.data_actor import DataActor, Token
from workloads.edge.data_requests import GetRequest, JobGetRequest, Mode, PushRequest, PutRequest, RootRequest
from workloads.edge.endpoint import serve
from workloads.edge.leaf import Actions
from workloads.edge.root import RootServer
from workloads.edge.wire import EdgeRefused, Frame, read

MODULE = "workloads.edge.root_actor"


@dataclass(frozen=True)
class RootSettings:
    """``address`` is one of the namespace ``netns_fd`` (None: that of this process); models have ``size`` bytes.

    ``verify``: updates are float32 numbers that are added. ``events`` is the file to append events to.
    """

    netns_fd: int | None
    address: tuple[str, int]
    mode: Mode
    size: int
    events: str
    verify: bool = False
    most_connections: int = 512


def check_size(payload_size: int, size: int) -> None:
    """``EdgeRefused`` if a payload is not a model or an update of this run."""
    if payload_size != size:
        raise EdgeRefused(f"the payload has {payload_size} bytes; models and updates of this run have {size}")


def _decide(server: RootServer, size: int, token: Token, frame: Frame, now: float) -> Actions:
    request: Any = read(RootRequest, frame)
    if isinstance(request, GetRequest):
        return server.get(token, request.job, request.round, now)
    if isinstance(request, JobGetRequest):
        return server.job_get(token, request.job, request.round, now)
    check_size(len(frame.payload), size)
    if isinstance(request, PushRequest):
        return server.push(token, request.update, frame.payload, now)
    if isinstance(request, PutRequest):
        return server.put(token, request.job, request.stage, request.demand, frame.payload, now)
    return server.push_sum(token, request.sum_id, request.job, request.stage, request.clients, frame.payload, now)


def root_actor(server: RootServer, size: int, events: str) -> DataActor:
    """The actor of ``server``, for models of ``size`` bytes, that appends events to the file ``events``."""
    return DataActor(EventFile(events), lambda *request: _decide(server, size, *request))


async def work(settings: dict[str, Any], orders: Orders) -> None:
    """Serve until the parent says stop."""
    given = from_plain(RootSettings, settings, "a root server")
    server = RootServer(given.mode, verify=given.verify)
    actor = root_actor(server, given.size, given.events)
    listener = await serve(
        given.netns_fd,
        given.address,
        actor.answer,
        most_payload=given.size,
        most_connections=given.most_connections,
    )
    try:
        orders.ready()
        await actor.failed
    finally:
        await listener.close()
        actor.act(server.stop(time.monotonic()))
        await actor.end()


if __name__ == "__main__":
    run_actor(work)
