"""The arbiter's process with a real optical trunk: who sends when, and the time of a round beside its formula."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.propius.control.trunk_server import LONGEST_WAIT_S, TrunkGate
from experiments.propius.data.clients import stratified
from experiments.propius.data.endpoint import Pool, Reply, serve
from experiments.propius.data.messages import Frame
from experiments.propius.model.formulas import shared_round_s, turns_round_s
from experiments.propius.processes import EdgeProcesses
from experiments.propius.run import TRUNK_PORT, EdgeRun, TrunkTurns
from experiments.session import Session
from experiments.settings import PacketSettings
from measure.live.delivery import delivery, read_port_counters
from railyard.scale import goodput_share
from railyard.timeline import read_events
from topos.edge import EdgeTopo
from topos.edge_plan import ROOT, EdgePlan

pytestmark = pytest.mark.root
REGIONS, MBPS, MTU = 3, 50.0, 1500
SIZE = 925_000
TRANSFER_S = SIZE * 8 / (MBPS * 1e6) / goodput_share(MTU)
PORT = 7800


def network(trunk: str) -> EdgeTopo:
    return EdgeTopo(clients=REGIONS, regions=REGIONS, trunk=trunk, trunk_mbps=MBPS)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PacketSettings(), network("ocs")) as running:
        yield running


def edge_of(session: Session) -> EdgePlan:
    assert session.plan.edge is not None
    return session.plan.edge


@contextmanager
def arbiter(session: Session, policy: str, delay_s: float, slot_s: float = 0.0) -> Iterator[Path]:
    """The process of the arbiter while the block runs; its events."""
    edge, folder = edge_of(session), session.data / f"{policy}-{delay_s:g}"
    assert session.channel_path is not None
    turns = TrunkTurns(session.channel_path, policy, delay_s, slot_s)
    clients = tuple(stratified(REGIONS, REGIONS, 1))
    run = EdgeRun(edge, tuple(session.netns_fds()), folder, (), clients, SIZE, turns=turns)
    with EdgeProcesses(run, ["trunk"]):
        yield folder / "edge-trunk-0.jsonl"


async def _root(frame: Frame) -> Reply:
    return Reply({}, bytes(SIZE)) if frame.fields["op"] == "get" else Reply({})


def rounds_s(session: Session, work_s: float, count: int) -> list[float]:
    """Seconds of rounds in which each leaf fetches a model and, ``work_s`` later, flushes as much.

    Over an optical trunk the leaves ask for their turns.
    """
    edge, netns_fds = edge_of(session), session.netns_fds()

    async def leaf(root: Pool, turn: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        async with turn():
            assert len((await root.call("get")).payload) == SIZE
        await asyncio.sleep(work_s)
        async with turn():
            await root.call("push", bytes(SIZE))

    async def run() -> list[float]:
        server = await serve(netns_fds[ROOT], (edge.root_ip, PORT), _root, most_payload=SIZE)
        pools: list[Pool] = []
        leaves = []
        for number, region in enumerate(edge.regions):
            fd = netns_fds[edge.leaf_rank(number)]
            root = Pool(fd, (edge.root_ip, PORT), most_payload=SIZE)
            gate = Pool(fd, (region.control_ip, TRUNK_PORT), patience_s=LONGEST_WAIT_S)
            leaves.append((root, TrunkGate(gate, number, SIZE).turn if edge.trunk == "ocs" else nullcontext))
            pools += [root, gate]
        took = []
        for _ in range(count):
            began = time.monotonic()
            await asyncio.gather(*(leaf(*given) for given in leaves))
            took.append(time.monotonic() - began)
        for pool in pools:
            await pool.close()
        await server.close()
        return took

    return asyncio.run(run())


@pytest.mark.beside
@pytest.mark.parametrize("policy", ["rotor", "demand", "phase"])
def test_leaves_take_turns_on_an_optical_trunk(session: Session, policy: str) -> None:
    before = read_port_counters(session.plan, dict(enumerate(session.netns_fds())))
    with arbiter(session, policy, 0.02, slot_s=2 * TRANSFER_S) as file:
        rounds_s(session, 0.1, 2)
    moved = delivery(before, read_port_counters(session.plan, dict(enumerate(session.netns_fds()))))
    payload = 2 * REGIONS * SIZE
    assert payload < moved.sent_bytes < 1.15 * payload and payload < moved.received_bytes < 1.15 * payload
    circuits = [event for event in read_events(file) if event.kind == "trunk"]
    assert sum(circuit["bytes"] for circuit in circuits) == 2 * payload
    assert sum(circuit["transfers"] for circuit in circuits) == 4 * REGIONS
    assert {circuit["region"] for circuit in circuits} == set(range(REGIONS))
    for earlier, later in pairwise(circuits):
        assert earlier.end is not None and earlier.end + 0.02 <= later.t, "two circuits at once"


@pytest.mark.timed
@pytest.mark.parametrize("delay_s", [0.02, 0.1])
def test_a_round_of_turns_takes_what_the_formula_says(session: Session, delay_s: float) -> None:
    work_s = 0.8
    with arbiter(session, "phase", delay_s):
        (first, *_) = rounds_s(session, work_s, 1)
    assert first == pytest.approx(turns_round_s(REGIONS, TRANSFER_S, work_s, delay_s), rel=0.05)


@pytest.mark.timed
def test_a_round_over_an_electrical_trunk_is_between_turns_for_nothing_and_fair_shares() -> None:
    work_s = 0.8
    with Session(PacketSettings(), network("electrical")) as running:
        took = rounds_s(running, work_s, 2)
    assert min(took) > 0.97 * turns_round_s(REGIONS, TRANSFER_S, work_s, 0.0)
    assert max(took) < 1.05 * shared_round_s(REGIONS, TRANSFER_S, work_s)
