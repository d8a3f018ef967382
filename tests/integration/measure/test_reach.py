"""Who hears whom on live rails, matching by matching; and the ledger of what was delivered, also to the wrong host."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from echoes import answers
from raw_frames import forget_caches

from controllers.circuits.matchings import one_factorization
from experiments.session import Session
from experiments.settings import PacketSettings
from measure.live.delivery import Delivery, PortCounters, delivery, payload, read_port_counters
from measure.live.probes import PingMatrix
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.timeline import read_events
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import inside
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.program import Collective, Group, Program

pytestmark = [pytest.mark.root, pytest.mark.beside]

Pairs = Sequence[tuple[int, int]]
QUIET_S, LONGEST_S = 0.2, 2.0
"""A machine that is busy with other tests may take so long for a frame."""


def rail(ranks: int, ports: int = 1, fabric: str = "ocs") -> RailTopo:
    """GPUs that share one rail."""
    return RailTopo(servers=ranks, gpus=1, ports=ports, rate_mbps=100, fabric=fabric)


def matrix_of(session: Session) -> PingMatrix:
    return PingMatrix(session.plan, session.netns_fds(), quiet_s=QUIET_S, longest_s=LONGEST_S)


def both_ways(pairs: Pairs) -> frozenset[tuple[int, int]]:
    """Each pair in both orders."""
    return frozenset(pairs) | frozenset((b, a) for a, b in pairs)


def everybody(ranks: int) -> frozenset[tuple[int, int]]:
    """Every ordered pair."""
    return frozenset((a, b) for a in range(ranks) for b in range(ranks) if a != b)


def join(session: Session, pairs: Pairs, lanes: tuple[int, int] = (0, 0)) -> None:
    """Circuits between these ranks' ports of these lanes, and no others; returns when they stand."""
    switch = session.plan.rail_of(0)
    circuits = [(switch.port(a, lanes[0]).number, switch.port(b, lanes[1]).number) for a, b in pairs]
    session.call("rewire", switch=switch.name, circuits=circuits, update="overwrite", delay_s=0.0)
    forget_caches(session.net)


def test_in_every_matching_partners_hear_each_other_and_nobody_else_does() -> None:
    ranks = 8
    met: list[tuple[int, int]] = []
    with Session(PacketSettings(), rail(ranks)) as session, matrix_of(session) as matrix:
        for pairs in one_factorization(ranks):
            join(session, pairs)
            assert matrix.reach() == both_ways(pairs)
            assert answers(session.plan, session.netns_fds(), QUIET_S, LONGEST_S) == both_ways(pairs)
            met += both_ways(pairs)
        join(session, ())
        assert matrix.reach() == answers(session.plan, session.netns_fds(), QUIET_S, LONGEST_S) == frozenset()
    assert len(met) == ranks * (ranks - 1) and frozenset(met) == everybody(ranks)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PacketSettings(), rail(4, ports=2)) as running:
        yield running


def test_light_of_a_port_to_send_and_one_to_receive(session: Session) -> None:
    around = [(0, 1), (1, 2), (2, 3), (3, 0)]
    join(session, around, (1, 0))
    with matrix_of(session) as matrix:
        assert matrix.reach_ports((1,)) == {((a, 1), (b, 0)) for a, b in around}
        assert matrix.reach((0,)) == {(b, a) for a, b in around}, "light goes both ways"
        assert matrix.reach((0, 1)) == both_ways(around)
        with pytest.raises(ConfigError, match="no rail port has lane 2"):
            matrix.reach((2,))


def test_what_comes_out_at_the_wrong_host_is_counted_there(session: Session) -> None:
    join(session, [(0, 1), (2, 3)])
    right = account(session, [(0, 1), (3, 2)])
    assert (right.misdelivered, right.wrong_at, right.lost_packets) == (0, (), 0)
    assert right.sent_packets == right.received_packets >= 20
    assert right.sent_bytes == right.received_bytes >= 20 * 8042
    wrong = account(session, [(0, 3), (2, 3)])
    assert (wrong.misdelivered, wrong.wrong_at, wrong.lost_packets) == (10, ((1, 0),), 0)


def test_what_meets_no_circuit_is_lost(session: Session) -> None:
    join(session, [(0, 1)])
    found = account(session, [(0, 1), (2, 3)])
    assert (found.misdelivered, found.lost_packets, found.lost_bytes) == (0, 10, 10 * 8042)


def account(session: Session, streams: Pairs, count: int = 10) -> Delivery:
    """The ledger of UDP packets of 8,000 bytes, ``count`` from each first to each second."""
    fds = session.netns_fds()
    before = read_port_counters(session.plan, dict(enumerate(fds)))
    for a, b in streams:
        port = session.plan.rail_of(a).port(a, 0)
        with inside(fds[a]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port.interface.encode() + b"\0")
            for _ in range(count):
                out.sendto(bytes(8000), (_ip(session.plan, b), 9))
    return delivery(before, read_at_rest(session.plan, fds))


def read_at_rest(plan: FabricPlan, netns_fds: Sequence[int], longest_s: float = 0.5) -> PortCounters:
    """The counters of all rail ports once traffic has stopped: two readings 10 ms apart are equal."""
    end = time.monotonic() + longest_s
    last, now = None, read_port_counters(plan, dict(enumerate(netns_fds)))
    while now != last and time.monotonic() < end:
        time.sleep(0.01)
        last, now = now, read_port_counters(plan, dict(enumerate(netns_fds)))
    return now


def _ip(plan: FabricPlan, rank: int) -> str:
    return plan.rail_of(rank).port(rank, 0).ip.split("/")[0]


def test_an_electrical_rail_brings_each_frame_to_its_host_and_bytes_in_are_bytes_out(tmp_path: Path) -> None:
    ranks, size = 4, 400_000
    with Emulation(rail(ranks, fabric="electrical"), openflow=None) as net:
        fds = [net.netns_fd(f"g{rank}") for rank in range(ranks)]
        with PingMatrix(net.plan, fds, quiet_s=QUIET_S, longest_s=LONGEST_S) as matrix:
            assert answers(net.plan, fds, QUIET_S, LONGEST_S) == matrix.reach() == everybody(ranks)
        before = read_port_counters(net.plan, dict(enumerate(fds)))
        all_to_all(net, fds, size, tmp_path)
        found = delivery(before, read_at_rest(net.plan, fds))
    moved = payload([e for rank in range(ranks) for e in read_events(tmp_path / f"{rank}.jsonl")], ["ep0"])
    assert moved.conserved and moved.sent_bytes == ranks * (ranks - 1) * size // ranks
    assert (found.misdelivered, found.lost_packets, found.lost_bytes) == (0, 0, 0)
    assert 1 < found.sent_bytes / moved.sent_bytes < 1.05


def all_to_all(net: Emulation, fds: Sequence[int], size: int, folder: Path) -> None:
    """Agents send each other their share of ``size`` bytes."""
    group = Group("ep0", "ep", tuple(range(len(fds))))
    program = Program(
        "all-to-all", ((Collective(0, "a2a", "all_to_all", "ep0", size, (), "direct"),),) * len(fds), {"ep0": group}
    )
    configs = [
        AgentConfig(rank, "job", "native", program, Scale(1.0), net.plan, str(folder / f"{rank}.jsonl"), steps=1)
        for rank in range(len(fds))
    ]
    with AgentLauncher.start() as launcher:
        team = launcher.launch(configs, list(fds))
        try:
            team.wait_ready(10)
            team.go(time.monotonic() + 0.02)
            team.wait_done(30)
        finally:
            team.stop()
