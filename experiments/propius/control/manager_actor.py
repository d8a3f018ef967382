"""The process of one client manager: ``python -m experiments.propius.control.manager_actor``.

All it knows is soft: a manager that is started again has no clients and no jobs until it hears of them.
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import TypeAdapter

from experiments.propius.control import messages
from experiments.propius.control.catalog import load_edge_policy
from experiments.propius.control.client_manager import STORE_S, TEMPORARY_STORE_S, ClientManager
from experiments.propius.control.control_actor import HOLD_S, plans
from experiments.propius.control.policy import OpenJob
from experiments.propius.data import wire
from experiments.propius.data.actor import Orders, connect_when_up, run_actor
from experiments.propius.data.attributes import Attributes
from experiments.propius.data.endpoint import Address, Pool, Reply, serve
from experiments.propius.data.wire import EdgeRefused, Frame
from railyard.validation import from_plain

MOST_CLIENTS = 16384
_ACCEPTS_AT_ONCE = 8
_JOBS: TypeAdapter[list[OpenJob]] = TypeAdapter(list[OpenJob])


@dataclass(frozen=True)
class ManagerSettings:
    """What the process needs: its namespace, its address, that of the control actor, and its number of ``managers``.

    ``time`` is emulated seconds per real second; ``first_id``: ``ClientManager``.
    """

    netns_fd: int | None
    address: Address
    control: Address
    number: int
    managers: int
    policy: str
    seed: int
    time: float
    first_id: int = 0


class ManagerServer:
    """Answers check-ins by the pure client manager, and forwards accepts to the job manager.

    ``failed`` has the error of the policy, if it fails.
    """

    def __init__(self, settings: ManagerSettings) -> None:
        self._settings = settings
        self._policy = load_edge_policy(settings.policy, settings.seed, settings.number)
        self._refresh_s = self._policy.refresh_s * settings.time
        self._manager = ClientManager(
            settings.number,
            settings.managers,
            self._policy,
            store_s=STORE_S * settings.time,
            temporary_s=TEMPORARY_STORE_S * settings.time,
            refresh_s=self._refresh_s,
            first_id=settings.first_id,
        )
        self._control = Pool(settings.netns_fd, settings.control)
        self._accepts = asyncio.Semaphore(_ACCEPTS_AT_ONCE)
        self.has_jobs = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, frame: Frame) -> Reply:
        """Answer one request; ``EdgeRefused`` for one that is wrong."""
        request = wire.read(messages.ManagerRequest, frame)
        if isinstance(request, messages.CheckInRequest):
            return Reply(self._check_in(request))
        if isinstance(request, messages.AcceptRequest):
            async with self._accepts:
                return await self._control.call("bind", job=request.job, device=request.device)
        return Reply({})

    def _check_in(self, request: messages.CheckInRequest) -> dict[str, Any]:
        try:
            known = self._manager.check_in(request.client, Attributes(*request.attributes), time.monotonic())
        except Exception as error:  # of the policy, which a user may have written
            if not self.failed.done():
                self.failed.set_exception(error)
            raise EdgeRefused("the policy of the client manager has failed") from error
        offers = [(offer.job, offer.private_bound, offer.name) for offer in known.offers]
        return {"client": known.client, "offers": offers}

    async def follow(self) -> None:
        """Keep jobs and plan as new as the control actor's, for ever. ``EdgeError`` if the control actor is gone."""
        control = await connect_when_up(self._settings.netns_fd, self._settings.control, patience_s=2 * HOLD_S)
        seen = -1
        try:
            while True:
                news = (await control.call("watch", seen=seen)).fields
                if news["jobs"] is not None:
                    self._manager.update(_JOBS.validate_python(news["jobs"]), news["plan"], time.monotonic())
                seen = news["version"]
                self.has_jobs.set()
        finally:
            await control.close()

    async def report(self) -> None:
        """Tell the scheduler which clients are known, whenever that has changed, for ever."""
        last: object = None
        while plans(self._policy):
            known = self._manager.known(time.monotonic())
            if known is not last:
                last, newest = known, known[-messages.MOST_KNOWN :]
                packed = struct.pack(f"<{len(Attributes._fields) * len(newest)}d", *chain.from_iterable(newest))
                await self._control.call("known", packed, manager=self._settings.number)
            await asyncio.sleep(self._refresh_s)

    async def close(self) -> None:
        """Close the connections to the control actor."""
        await self._control.close()


async def _work(plain: dict[str, Any], orders: Orders) -> None:
    settings = from_plain(ManagerSettings, plain, "a client manager")
    manager = ManagerServer(settings)
    following = asyncio.ensure_future(manager.follow())
    waiting = asyncio.ensure_future(manager.has_jobs.wait())
    await asyncio.wait((following, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if following.done():
        following.result()
    server = await serve(settings.netns_fd, settings.address, manager.handle, most_connections=MOST_CLIENTS)
    try:
        orders.ready()
        await asyncio.gather(following, manager.report(), manager.failed)
    finally:
        following.cancel()
        await server.close()
        await manager.close()


if __name__ == "__main__":
    run_actor(_work)
