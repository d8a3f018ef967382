"""The data plane as a client or a job sees it: GET and PUSH at a leaf server or the root, PUT and JOB_GET at the root.

A request whose connection broke is sent again. In mode ``fixed`` an update has an identity, so it is counted once
however often it is sent; in mode ``authors`` it is counted each time it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from experiments.propius.data.data_requests import Mode, Stage, UpdateId
from experiments.propius.data.endpoint import PATIENCE_S, Address, Client, Reply
from experiments.propius.data.wire import EdgeError, EdgeRefused, Payload

PushOutcome = Literal["acknowledged", "late", "lost", "refused"]
"""``late``: the round is over. ``lost``: no answer came, so nobody knows whether the update is counted."""


@dataclass(frozen=True)
class Retries:
    """A request is tried ``tries`` times in all, ``pause_s`` seconds after the last failure."""

    pause_s: float
    tries: int

    def scaled(self, time: float) -> Retries:
        """The same for a run of ``time`` emulated seconds per real second."""
        return Retries(self.pause_s * time, self.tries)


RETRIES: dict[Mode, Retries] = {"authors": Retries(5.0, 3), "fixed": Retries(1.0, 120)}
"""In real seconds; ``authors`` as in their client."""


class DataClient:
    """The connection from the namespace ``netns_fd`` (None: that of this process) to the server at ``address``.

    ``size`` is that of a model and of an update, in bytes, ``retries`` is in seconds of the run (``RETRIES``, scaled).
    The connection is made by the first request and stays open.
    """

    def __init__(
        self,
        netns_fd: int | None,
        address: Address,
        size: int,
        *,
        retries: Retries = Retries(0.1, 120),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._netns_fd, self._address, self._size = netns_fd, address, size
        self._patience_s = patience_s
        self._retries = retries
        self._client: Client | None = None

    async def connect(self) -> None:
        """Connect now, if there is no connection. ``EdgeError`` if the server does not answer."""
        if self._client is None or not self._client.is_open:
            self._client = await Client.connect(
                self._netns_fd, self._address, most_payload=self._size, patience_s=self._patience_s
            )

    async def get(self, job: int, round: int) -> tuple[bool, Payload | None]:
        """(whether the server had the model of the round, the model); the model is None before the job has put it.

        Raises ``EdgeRefused`` if the round is over, ``EdgeError`` if the server does not answer.
        """
        reply = await self._repeated(lambda client: client.call("get", job=job, round=round))
        return bool(reply.fields["hit"]), None if reply.fields.get("absent") else reply.payload

    async def push(self, update: UpdateId, payload: Payload) -> PushOutcome:
        """Deliver an update of ``size`` bytes; never raises ``EdgeError``."""
        fields = {"job": update.job, **update.stage._asdict(), "client": update.client}
        try:
            reply = await self._repeated(lambda client: client.call("push", payload, **fields))
        except EdgeRefused:
            return "refused"
        except EdgeError:
            return "lost"
        outcome: PushOutcome = reply.fields.get("outcome", "refused")
        return outcome

    async def put(self, job: int, stage: Stage, demand: int, model: Payload) -> None:
        """Put the model of an attempt of a round at the root. ``EdgeError`` if it fails."""
        fields = {"job": job, **stage._asdict(), "demand": demand}
        await self._repeated(lambda client: client.call("put", model, **fields))

    async def job_get(self, job: int, round: int) -> tuple[int, Payload | None]:
        """(updates in the sum of the round, the sum if there are as many as the demand). ``EdgeError`` if it fails."""
        reply = await self._repeated(lambda client: client.call("job_get", job=job, round=round))
        return int(reply.fields["count"]), reply.payload if reply.fields["ready"] else None

    async def _repeated(self, request: Callable[[Client], Awaitable[Reply]]) -> Reply:
        tries = self._retries.tries
        while True:
            try:
                await self.connect()
                assert self._client
                return await request(self._client)
            except EdgeRefused:
                raise
            except EdgeError:
                tries -= 1
                if tries <= 0:
                    raise
            await asyncio.sleep(self._retries.pause_s)

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(EdgeError):
                await client.close()
