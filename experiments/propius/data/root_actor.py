"""The process of the root server: ``RootServer`` on a port of its host. A ``railyard.child``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from experiments.propius.data.actor import EventFile, Orders, run_actor
from experiments.propius.data.data_actor import DataActor, Token
from experiments.propius.data.data_requests import GetRequest, JobGetRequest, Mode, PushRequest, PutRequest, RootRequest
from experiments.propius.data.leaf import Actions
from experiments.propius.data.root import RootServer
from experiments.propius.data.wire import EdgeRefused, Frame, read
from railyard.validation import from_plain

MODULE = "experiments.propius.data.root_actor"


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


class RootActor(DataActor):
    """The actor of ``server``, for models of ``size`` bytes; it appends events to the file ``events``."""

    def __init__(self, server: RootServer, size: int, events: str) -> None:
        super().__init__(EventFile(events), lambda *request: _decide(server, size, *request))
        self._server = server

    def stop(self) -> None:
        """Note what is left at the end of the run; ``end`` is next."""
        self.act(self._server.stop(time.monotonic()))


async def work(settings: dict[str, Any], orders: Orders) -> None:
    """Serve until the parent says stop."""
    given = from_plain(RootSettings, settings, "a root server")
    server = RootServer(given.mode, verify=given.verify)
    actor = RootActor(server, given.size, given.events)
    await actor.serve(given.netns_fd, given.address, given.size, given.most_connections, orders)


if __name__ == "__main__":
    run_actor(work)
