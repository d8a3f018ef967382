"""A leaf server's access to an optical trunk: it asks for its region's circuit before a transfer and gives it back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Literal

from pydantic import Field

from experiments.propius.data.endpoint import Pool
from experiments.propius.data.wire import EdgeError, Message

LONGEST_WAIT_S = 600.0
"""Patience of the pool of connections to the arbiter: a request is answered when its turn has come."""
_Whole = Annotated[int, Field(ge=0)]


class AcquireRequest(Message):
    """Leaf server of ``region`` wants to transfer ``bytes``; answered with a ``token`` when it may."""

    op: Literal["acquire"]
    region: _Whole
    bytes: _Whole


class ReleaseRequest(Message):
    """The transfer of ``token`` is over; answered at once."""

    op: Literal["release"]
    token: _Whole


TrunkRequest = Annotated[AcquireRequest | ReleaseRequest, Field(discriminator="op")]


class TrunkGate:
    """``async with gate.turn()`` around each transfer of ``size`` bytes with the root.

    ``arbiter`` leads to the server that hands the circuit out (``experiments.propius.control.trunk_actor``);
    its patience should     be ``LONGEST_WAIT_S``.
    """

    def __init__(self, arbiter: Pool, region: int, size: int) -> None:
        self._arbiter = arbiter
        self._region = region
        self._size = size

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn of the region, which ends with the block; ``EdgeError`` if the arbiter is gone."""
        granted = await self._arbiter.call("acquire", region=self._region, bytes=self._size)
        try:
            yield
        finally:
            with suppress(EdgeError):
                await self._arbiter.call("release", token=granted.fields["token"])
