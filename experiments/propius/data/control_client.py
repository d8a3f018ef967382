"""The control plane as a client and as a job see it: check-in and accept, register, request and finish."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from experiments.propius.data.attributes import Attributes
from experiments.propius.data.device import Binding, Offer
from experiments.propius.data.endpoint import PATIENCE_S, Address, Client, Pool
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.wire import EdgeError

_T = TypeVar("_T", bound=BaseModel)
_REGISTERED = "name", "demand", "bounds", "private_bound", "rounds", "over_selection"
"""What a job tells the job manager about itself."""
_Number = Annotated[int, Field(ge=0)]


class _Nothing(BaseModel):
    pass


class _Balanced(BaseModel):
    port: Annotated[int, Field(ge=1, le=65535)]


class _CheckedIn(BaseModel):
    client: _Number
    offers: Annotated[list[tuple[_Number, float, str]], Field(max_length=20)]


class _Bound(BaseModel):
    bound: bool
    round: _Number = 0
    attempt: _Number = 0


class _Registered(BaseModel):
    job: _Number


class _Known(BaseModel):
    known: bool


class _Clients(BaseModel):
    bound: _Number | None
    open: bool = False


class ControlClient:
    """The control plane as client ``device`` in the namespace ``netns_fd`` sees it.

    The load balancer at ``address`` names a client manager, which the client stays with. If that one is gone, a call
    raises ``EdgeError``, and the next check-in begins at the load balancer, without an id.
    """

    def __init__(self, netns_fd: int | None, address: Address, device: int, *, patience_s: float = PATIENCE_S) -> None:
        self._netns_fd = netns_fd
        self._address = address
        self._device = device
        self._patience_s = patience_s
        self._manager: Client | None = None
        self._id: int | None = None

    async def check_in(self, attributes: Attributes) -> Sequence[Offer]:
        """Check in; what the client manager offers, best first."""
        manager = self._manager or await self._balanced()
        reply = await self._call(_CheckedIn, manager, "checkin", client=self._id, attributes=attributes)
        self._id = reply.client
        return [Offer(*offer) for offer in reply.offers]

    async def accept(self, job: int) -> Binding | None:
        """Accept an offer; None if the client is refused, since the round has all its clients or has ended."""
        client, manager = self._checked_in()
        reply = await self._call(_Bound, manager, "accept", job=job, client=client, device=self._device)
        return Binding(client, job, reply.round, reply.attempt) if reply.bound else None

    async def nack(self, jobs: Sequence[int]) -> None:
        """Decline offers."""
        client, manager = self._checked_in()
        await self._call(_Nothing, manager, "nack", client=client, jobs=jobs)

    async def close(self) -> None:
        """Close the connection to the client manager."""
        manager, self._manager, self._id = self._manager, None, None
        if manager is not None:
            with suppress(EdgeError):
                await manager.close()

    def _checked_in(self) -> tuple[int, Client]:
        if self._id is None or self._manager is None:
            raise EdgeError("a client accepts or declines what it was never offered")
        return self._id, self._manager

    async def _balanced(self) -> Client:
        """Connect to the client manager that the load balancer names."""
        balancer = await Client.connect(self._netns_fd, self._address, patience_s=self._patience_s)
        try:
            port = _read(_Balanced, (await balancer.call("balance", client=self._id)).fields).port
        finally:
            await balancer.close()
        address = (self._address[0], port)
        self._manager = await Client.connect(self._netns_fd, address, patience_s=self._patience_s)
        return self._manager

    async def _call(self, kind: type[_T], manager: Client, op: str, **fields: Any) -> _T:
        try:
            return _read(kind, (await manager.call(op, **fields)).fields)
        finally:
            if not manager.is_open:
                self._manager = self._id = None


class JobClient:
    """The job manager at ``address`` as the jobs in the namespace ``netns_fd`` see it; ``EdgeError`` if it is gone."""

    def __init__(self, netns_fd: int | None, address: Address) -> None:
        self._manager = Pool(netns_fd, address)
        self._registering = asyncio.Lock()

    async def register(self, job: EdgeJob) -> int:
        """Enter a job; its number. Jobs are numbered in the order of the calls."""
        fields = {key: getattr(job, key) for key in _REGISTERED}
        async with self._registering:
            reply = await self._manager.call("register", **fields)
        return _read(_Registered, reply.fields).job

    async def request(self, job: int, round: int, demand: int, attempt: int) -> bool:
        """Ask for clients; False if the job is not known (any more)."""
        reply = await self._manager.call("request", job=job, round=round, demand=demand, attempt=attempt)
        return _read(_Known, reply.fields).known

    async def end_request(self, job: int) -> int | None:
        """Close the round to more clients; how many it has, None if the job is not known (any more)."""
        return _read(_Clients, (await self._manager.call("end_request", job=job)).fields).bound

    async def bound(self, job: int, *, wait: bool) -> tuple[int | None, bool]:
        """(clients of the round, whether it takes more), if ``wait`` after a change or some seconds."""
        reply = _read(_Clients, (await self._manager.call("bound", job=job, wait=wait)).fields)
        return reply.bound, reply.open

    async def finish(self, job: int) -> None:
        """The job is complete."""
        await self._manager.call("finish", job=job)

    async def close(self) -> None:
        """Close the connections."""
        await self._manager.close()


def _read(kind: type[_T], fields: Mapping[str, Any]) -> _T:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise EdgeError(
            f"the control plane answered something else: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
