"""The process of the clients of one region: ``python -m experiments.propius.data.client_actor``.

Each client is a ``Device`` with sockets in a namespace of its own. Training is a timer; models and updates are real
bytes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments.propius.data import update
from experiments.propius.data.actor import EventFile, Orders, run_actor
from experiments.propius.data.control_client import ControlClient
from experiments.propius.data.data_client import RETRIES, DataClient
from experiments.propius.data.data_requests import Mode, Stage, UpdateId
from experiments.propius.data.device import (
    Accept,
    Action,
    Binding,
    CheckIn,
    Device,
    DeviceTimers,
    Get,
    Nack,
    Push,
    Train,
    Wait,
)
from experiments.propius.data.endpoint import PATIENCE_S, Address
from experiments.propius.data.population import ClientProfile
from experiments.propius.data.wire import EdgeError, Payload
from railyard.validation import from_plain


@dataclass(frozen=True)
class Vanishing:
    """A client that goes for ever: before it delivers its update of ``round`` (of any job if ``job`` is None).

    With ``at_s``, so many seconds of the run after its start, whatever the client does then.
    """

    client: int
    job: int | None = None
    round: int | None = None
    at_s: float | None = None


@dataclass(frozen=True)
class ClientSettings:
    """What the process needs.

    ``clients`` are the profiles of its clients and ``netns_fds`` their namespaces; ``control`` is the address of the
    load balancer, ``data`` that of the server of models and updates, each of ``size`` bytes. ``timers`` are seconds of
    the run, ``time`` is emulated seconds per real second. ``assigned`` has the only job of each client of a fixed
    partition. With ``verify`` updates are numbers (``update.draw``), otherwise zeros. A transfer may take
    ``patience_s`` seconds of the run.
    """

    clients: tuple[ClientProfile, ...]
    netns_fds: tuple[int | None, ...]
    control: Address
    data: Address
    events: str
    size: int
    mode: Mode
    timers: DeviceTimers
    time: float
    seed: int
    verify: bool = False
    assigned: dict[int, str] | None = None
    vanishing: tuple[Vanishing, ...] = ()
    patience_s: float = PATIENCE_S

    @cached_property
    def zeros(self) -> bytes:
        """The update of every client without ``verify``."""
        return bytes(self.size)


class EdgeClient:
    """One client: does what its device decides and tells it what came of it."""

    def __init__(self, settings: ClientSettings, index: int, events: EventFile) -> None:
        profile, netns_fd = settings.clients[index], settings.netns_fds[index]
        self.number = profile.number
        self._settings = settings
        self._events = events
        self._device = Device(
            profile,
            settings.timers,
            settings.seed,
            train_s=profile.train_s() * settings.time,
            assigned=(settings.assigned or {}).get(profile.number),
        )
        self._control = ControlClient(netns_fd, settings.control, profile.number)
        retries = RETRIES[settings.mode].scaled(settings.time)
        self._data = DataClient(netns_fd, settings.data, settings.size, retries=retries, patience_s=settings.patience_s)
        self._vanishing = [fault for fault in settings.vanishing if fault.client == profile.number]

    async def run(self) -> None:
        """Work until the client vanishes."""
        at_s = min((fault.at_s for fault in self._vanishing if fault.at_s is not None), default=None)
        try:
            await asyncio.wait_for(self._work(), at_s)
            why = "vanished before its upload"
        except asyncio.TimeoutError:
            why = "vanished"
        finally:
            await self._data.close()
            await self._control.close()
        self._events.note("gone", client=self.number, why=why)

    async def _work(self) -> None:
        actions: list[Action] = list(self._device.start(time.monotonic()))
        while actions:
            action = actions.pop(0)
            if isinstance(action, Push) and self._vanishes(action):
                return
            try:
                actions += await self._do(action)
            except EdgeError:
                actions = list(self._device.failed(time.monotonic()))

    def _vanishes(self, push: Push) -> bool:
        return any(
            fault.at_s is None and fault.job in (None, push.job) and fault.round == push.round
            for fault in self._vanishing
        )

    async def _do(self, action: Action) -> tuple[Action, ...]:
        """Do one action; what comes next."""
        device, began = self._device, time.monotonic()
        if isinstance(action, CheckIn):
            offers = await self._control.check_in(device.profile.attributes)
            now = time.monotonic()
            self._events.note("checkin", now, client=self.number, offers=len(offers))
            return device.offered(offers, now)
        if isinstance(action, Accept):
            binding = await self._control.accept(action.job)
            now = time.monotonic()
            return device.refused(now) if binding is None else device.accepted(binding, now)
        if isinstance(action, Nack):
            await self._control.nack(action.jobs)
            return ()
        if isinstance(action, Get):
            return await self._get(action, began)
        if isinstance(action, Push):
            return await self._push(began)
        await asyncio.sleep(action.seconds)
        now = time.monotonic()
        if isinstance(action, Wait):
            return device.woke(now)
        return self._trained(action, began, now)

    async def _get(self, action: Get, began: float) -> tuple[Action, ...]:
        hit, model = await self._data.get(action.job, action.round)
        now = time.monotonic()
        if model is None:
            return self._device.absent(now)
        size = len(model)
        self._events.note(
            "get", began, now, client=self.number, job=action.job, round=action.round, bytes=size, hit=hit
        )
        return self._device.got(now)

    def _trained(self, action: Train, began: float, now: float) -> tuple[Action, ...]:
        binding = self._binding
        late = max(0.0, now - began - action.seconds)
        self._events.note(
            "train", began, now, client=self.number, job=binding.job, round=binding.round, late_s=round(late, 6)
        )
        return self._device.trained(now)

    async def _push(self, began: float) -> tuple[Action, ...]:
        binding = self._binding
        identity = UpdateId(binding.job, Stage(binding.round, binding.attempt), self.number)
        payload = self._payload(binding)
        outcome = await self._data.push(identity, payload)
        now = time.monotonic()
        self._events.note(
            "push",
            began,
            now,
            client=self.number,
            job=binding.job,
            round=binding.round,
            attempt=binding.attempt if self._settings.mode == "fixed" else 0,
            bytes=len(payload),
            outcome=outcome,
        )
        return self._device.pushed(outcome, now)

    def _payload(self, binding: Binding) -> Payload:
        settings = self._settings
        if not settings.verify:
            return settings.zeros
        return update.as_bytes(update.draw(settings.seed, binding.job, binding.round, self.number, settings.size))

    @property
    def _binding(self) -> Binding:
        assert self._device.binding is not None, "only a bound client trains and delivers"
        return self._device.binding


async def _work(plain: dict[str, Any], orders: Orders) -> None:
    settings = from_plain(ClientSettings, plain, "the clients of a region")
    events = EventFile(settings.events)
    clients = [EdgeClient(settings, index, events) for index in range(len(settings.clients))]
    orders.ready()
    await orders.go.wait()
    await asyncio.gather(*(client.run() for client in clients))
    await orders.stop.wait()


if __name__ == "__main__":
    run_actor(_work)
