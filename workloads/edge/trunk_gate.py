"""A leaf server's access to an optical trunk: it asks for its region's circuit before a transfer and gives it back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType

from workloads.edge.endpoint import Pool
from workloads.edge.wire import EdgeError


class TrunkGate:
    """``async with gate`` around each transfer with the root; transfers at the same time share the circuit.

    ``arbiter`` is the server that hands the circuit out: it answers ``acquire`` (region) when the region has the
    circuit, and ``release`` (region) at once. Raises ``EdgeError`` if the arbiter is gone.
    """

    def __init__(self, arbiter: Pool, region: int) -> None:
        self._arbiter = arbiter
        self._region = region
        self._users = 0
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> None:
        async with self._turn:
            if not self._users:
                await self._arbiter.call("acquire", region=self._region)
            self._users += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._turn:
            self._users -= 1
            if not self._users:
                with suppress(EdgeError):
                    await self._arbiter.call("release", region=self._region)
