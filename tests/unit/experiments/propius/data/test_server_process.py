"""The actors of the leaf server and the root in one process, over the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from edge.loopback import loopback_run

from experiments.propius.data.client_process import DataClient, Retries
from experiments.propius.data.endpoint import Address, Server, serve
from experiments.propius.data.messages import EdgeRefused, RoundAttempt, UpdateId
from experiments.propius.data.server_process import DataActor, LeafActor, RootActor
from experiments.propius.data.servers import as_bytes, check_sum, draw
from experiments.propius.run import DATA_PORT, EdgeRun, EventFile
from railyard.errors import MachineError
from railyard.timeline import Event, read_events

SIZE, SEED, JOB = 40_000, 5, 3
FIRST = RoundAttempt(0, 0)
MODEL = bytes(SIZE)


class Tree:
    """A root, one leaf server, and connections to both."""

    def __init__(self, run: EdgeRun) -> None:
        self.run = run
        self.servers: list[Server] = []
        self.clients: list[DataClient] = []

    async def __aenter__(self) -> Tree:
        self.root_address = (self.run.plan.root_ip, DATA_PORT)
        self.root = RootActor(self.run, EventFile(self.run.folder / "root.jsonl"))
        await self._listen(self.root, self.root_address)
        await self.start_leaf()
        return self

    async def start_leaf(self) -> None:
        self.leaf_address = self.run.data_address(0)
        self.leaf = LeafActor(self.run, 0, EventFile(self.run.folder / "leaf.jsonl"))
        self.leaf.start()
        await self._listen(self.leaf, self.leaf_address)

    async def _listen(self, actor: DataActor, address: Address) -> None:
        self.servers.append(await serve(None, address, actor.handle, most_payload=SIZE))

    def client(self, address: Address) -> DataClient:
        self.clients.append(DataClient(None, address, SIZE, retries=Retries(0.01, 3), patience_s=5))
        return self.clients[-1]

    async def push(self, client: DataClient, number: int, stage: RoundAttempt = FIRST) -> str:
        update = as_bytes(draw(SEED, JOB, stage.round, number, SIZE))
        return await client.push(UpdateId(JOB, stage, number), update)

    async def sum(self, client: DataClient, round: int = 0) -> Event:
        while (await client.job_get(JOB, round))[1] is None:
            await asyncio.sleep(0.01)
        (event,) = [event for event in self.events("root") if event.kind == "sum" and event["round"] == round]
        return event

    def events(self, name: str) -> list[Event]:
        return read_events(self.run.folder / f"{name}.jsonl")

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()
        for server in self.servers:
            await server.close()
        await self.leaf.end()
        await self.root.end()


def in_a_tree(folder: Path, test: Callable[[Tree], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Tree(loopback_run(folder, SIZE, verify=True, time=0.02, idle_s=2.5)) as tree:
            await test(tree)

    asyncio.run(run())


def test_an_acknowledged_update_outlives_its_leaf_server(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        job, client = tree.client(tree.root_address), tree.client(tree.leaf_address)
        await job.put(JOB, FIRST, 2, MODEL)
        assert await tree.push(client, 8) == "acknowledged"
        await tree.servers.pop().close()
        await tree.leaf.end()
        await tree.start_leaf()
        client = tree.client(tree.leaf_address)
        assert [await tree.push(client, number) for number in (8, 4)] == ["acknowledged"] * 2
        event = await tree.sum(job)
        assert [number for part in event["order"] for number in part] == [8, 4], "in two sums if this machine is slow"
        check_sum(event, SEED, SIZE)

    in_a_tree(tmp_path, test)


def test_a_leaf_server_whose_journal_is_full_ends_and_acknowledges_nothing(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        assert tree.leaf._journal is not None
        pushing = asyncio.create_task(tree.push(tree.client(tree.leaf_address), 8))

        def full(record: Any) -> None:
            raise MachineError("the journal is full")

        tree.leaf._journal.write = full  # type: ignore[method-assign]
        with pytest.raises(MachineError, match="the journal is full"):
            await tree.leaf.failed
        await asyncio.sleep(0.02)
        assert not pushing.done()
        await tree.servers.pop().close()
        assert await pushing == "lost"

    in_a_tree(tmp_path, test)


def test_a_flush_that_the_root_does_not_answer_is_sent_again(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        job, client = tree.client(tree.root_address), tree.client(tree.leaf_address)
        await job.put(JOB, FIRST, 1, MODEL)
        push_sum = tree.root._server.push_sum
        lost: list[Any] = []

        def forgetful(*given: Any) -> Any:
            actions = push_sum(*given)
            if not lost:
                lost.append(actions)
                raise EdgeRefused("the answer is lost")
            return actions

        tree.root._server.push_sum = forgetful  # type: ignore[assignment,method-assign]
        assert await tree.push(client, 8) == "acknowledged"
        while not tree.events("leaf"):
            await asyncio.sleep(0.01)
        assert (await tree.sum(job))["order"] == [[8]]
        assert len(lost) == 1

    in_a_tree(tmp_path, test)


def test_what_is_no_update_of_the_run_is_refused(tmp_path: Path) -> None:
    async def test(tree: Tree) -> None:
        small = tree.client(tree.leaf_address)
        assert await small.push(UpdateId(JOB, FIRST, 1), b"1234") == "refused"
        job = tree.client(tree.root_address)
        with pytest.raises(EdgeRefused, match="the payload has 3 bytes; models and updates of this run have 40000"):
            await job.put(JOB, FIRST, 1, b"123")
        await job.put(JOB, RoundAttempt(1, 0), 1, MODEL)
        with pytest.raises(EdgeRefused, match="round 0 of job 3 is over"):
            await tree.client(tree.leaf_address).get(JOB, 0)

    in_a_tree(tmp_path, test)
