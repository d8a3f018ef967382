"""The control actor and a client manager over sockets of this machine, without namespaces and child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from edge.loopback import loopback_run

from experiments.propius.control.servers import ControlClient, ControlServer, ManagerServer
from experiments.propius.data.client_process import _REGISTERED
from experiments.propius.data.clients import Offer
from experiments.propius.data.endpoint import Client, Pool, Server, serve
from experiments.propius.data.jobs import Attributes, EdgeJob
from experiments.propius.data.messages import EdgeError, EdgeRefused
from experiments.propius.run import CONTROL_PORT, EventFile
from railyard.errors import ConfigError
from railyard.timeline import Event, read_events

WEAK, STRONG = Attributes(1, 1, 1, 1), Attributes(9, 9, 9, 9)
JOB = EdgeJob("a", 2, Attributes(5, 5, 5, 5), 100, 3)


class World:
    def __init__(self, folder: Path, policy: str) -> None:
        self.folder, self.policy = folder, policy
        self.open: list[ControlClient | Client | Pool] = []
        self.servers: list[Server] = []

    async def start(self) -> None:
        self.run = loopback_run(self.folder, policy=self.policy, time=0.01)
        self.control = ControlServer(self.run, EventFile(self.folder / "e"))
        self.address = (self.run.plan.control_ip, CONTROL_PORT)
        self.servers.append(await serve(None, self.address, self.control.handle, most_payload=4096))
        self.control.start()
        self.jobs = Pool(None, self.address)
        self.open.append(self.jobs)
        await self.start_manager(0)

    async def start_manager(self, first_id: int) -> None:
        self.manager = ManagerServer(self.run, 0, self.address, EventFile(self.folder / "m"), first_id)
        await self.manager.learn()
        self.manager.start()
        address = (self.run.plan.control_ip, self.run.manager_ports[0])
        self.servers.append(await serve(None, address, self.manager.handle))

    async def kill_manager(self) -> None:
        await self.manager.end()
        await self.servers.pop().close()

    async def stop(self) -> None:
        await self.manager.end()
        await self.control.end()
        for client in self.open:
            await client.close()
        for server in self.servers:
            await server.close()

    def client(self, device: int) -> ControlClient:
        client = ControlClient(None, self.address, device)
        self.open.append(client)
        return client

    async def job(self, op: str, **fields: Any) -> Any:
        """What the job manager answers to a job."""
        return (await self.jobs.call(op, **fields)).fields

    async def register(self) -> int:
        number: int = (await self.job("register", **{key: getattr(JOB, key) for key in _REGISTERED}))["job"]
        return number

    async def offers(self, client: ControlClient, attributes: Attributes) -> list[Offer]:
        """What the client is offered, once the manager knows what the job manager does."""
        for _ in range(200):
            if offers := await client.check_in(attributes):
                return list(offers)
            await asyncio.sleep(0.005)
        return []

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.folder / "e") if event.kind == kind]


def play(folder: Path, scene: Callable[[World], Awaitable[None]], policy: str = "fifo") -> World:
    async def run() -> World:
        world = World(folder, policy)
        await world.start()
        try:
            await asyncio.wait_for(scene(world), 20)
        finally:
            await world.stop()
        return world

    return asyncio.run(run())


@pytest.mark.parametrize("policy", ["fifo", "irs-strict", "random-client"])
def test_clients_are_bound_until_the_round_is_full(tmp_path: Path, policy: str) -> None:
    async def scene(world: World) -> None:
        number = await world.register()
        assert await world.job("request", job=number, round=0, demand=2) == {"known": True}
        full = asyncio.create_task(world.job("bound", job=number))
        clients = [world.client(device) for device in range(3)]
        for client in clients:
            assert await world.offers(client, STRONG) == [Offer(number, 100, "a")]
        bindings = [await client.accept(number) for client in clients]
        assert [None if binding is None else (binding.job, binding.round) for binding in bindings] == [
            (number, 0),
            (number, 0),
            None,
        ]
        assert await full == {"bound": 2, "open": False}
        assert await world.job("end_request", job=number) == {"bound": 2}
        assert await clients[2].check_in(WEAK) == []
        assert await world.job("finish", job=number) == {"known": True}
        assert await world.job("request", job=number, round=1, demand=2) == {"known": False}
        assert await world.job("end_request", job=number) == {"bound": None}

    world = play(tmp_path, scene, policy)
    assert [event.fields for event in world.events("bound")] == [
        {"client": 0, "job": 0, "round": 0, "n": 2},
        {"client": 1, "job": 0, "round": 0, "n": 3},
    ]
    assert [(event["client"], event["job"]) for event in world.events("refused")] == [(2, 0)]
    assert [len(world.events(kind)) for kind in ("registered", "request", "finished")] == [1, 1, 1]


def test_a_manager_that_starts_again_has_no_clients_and_they_check_in_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        client, number = world.client(7), await world.register()
        await world.job("request", job=number, round=0, demand=2)
        assert await world.offers(client, STRONG)
        assert len(world.manager._manager.known(0.0)) == 1
        await world.kill_manager()
        with pytest.raises(EdgeError):
            await client.check_in(STRONG)
        with pytest.raises(EdgeError, match="never offered"):
            await client.accept(number)
        await world.start_manager(1_000_000)
        assert world.manager._manager.known(0.0) == ()
        assert await world.offers(client, STRONG)
        assert client._id == 1_000_000
        assert await client.accept(number) is not None

    play(tmp_path, scene)


def test_wrong_requests_are_refused_in_one_sentence_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        client = Client(None, world.address)
        world.open.append(client)
        for fields, payload, sentence in (
            ({"op": "known", "manager": 1}, b"", "manager: must be below 1, not 1"),
            ({"op": "known", "manager": 0}, b"12345", "the payload must have 40 bytes for each client, not 5"),
            ({"op": "watch", "seen": "all"}, b"", "watch.seen"),
        ):
            with pytest.raises(EdgeRefused, match=sentence):
                await client.call(payload=payload, **fields)
        assert (await client.call("balance")).fields["manager"] == 0

    play(tmp_path, scene)


OWN = """
from experiments.propius.control.policies import EdgePolicy

class Twice(EdgePolicy):
    def order(self, client, jobs, plan):
        return [*jobs, *jobs]
"""


def test_a_policy_that_fails_ends_the_manager_and_the_client_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    async def scene(world: World) -> None:
        client = world.client(0)
        await world.job("request", job=await world.register(), round=0, demand=2)
        with pytest.raises(EdgeRefused, match="the policy of the client manager has failed"):
            while not await client.check_in(STRONG):
                await asyncio.sleep(0.005)
        with pytest.raises(ConfigError, match="Twice"):
            await world.manager.failed

    play(tmp_path, scene, f"{tmp_path / 'own.py'}:Twice")
