from __future__ import annotations

from pathlib import Path

import pytest

from railyard.errors import AgentError
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan
from workloads.agent.checkpoint import Store, fetch
from workloads.agent.transport.connection import PeerConnection
from workloads.agent.transport.connections import Transport
from workloads.agent.transport.message import Header


class NoInbox:
    def may_receive(self, connection: PeerConnection, header: Header) -> bool:
        raise AssertionError

    def expect(self, connection: PeerConnection, header: Header) -> memoryview | None:
        raise AssertionError

    def arrived(self, connection: PeerConnection, header: Header) -> None:
        raise AssertionError

    def written(self, connection: PeerConnection, token: object) -> None:
        raise AssertionError


def switch(rank: int) -> SwitchPlan:
    port = HostPort(1, f"g{rank}", rank, 0, "nowhere0", f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}/24", 50.0)
    return SwitchPlan(f"n{rank}", 0x40000 + rank, "electrical", "rail", (port,))


def plan(links: tuple[SwitchLink, ...]) -> FabricPlan:
    return FabricPlan("electrical-torus", 3, 1, 1, 9000, tuple(switch(r) for r in range(3)), links)


def connect(fabric: FabricPlan) -> str:
    """What becomes of a connection to a rank behind another switch (the interface does not exist)."""
    try:
        Transport(fabric, 0, NoInbox()).connection(("scale-out", 0, 2, 0), 0.0)
    except (AgentError, OSError) as error:
        return str(error)
    return ""


def test_ranks_behind_other_switches_are_reached_where_links_join_them() -> None:
    assert "which this fabric does not have" in connect(plan(()))
    joined = connect(plan((SwitchLink("n0", 2, "n1", 3, 50.0),)))
    assert joined and "which this fabric does not have" not in joined, "only the interface is missing"


def test_a_copy_needs_a_front_end(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="rank 0 is to copy a checkpoint over the front-end network, but the fabric"):
        fetch(plan(()), 0, 1, Store(tmp_path, "job"), "job", 4, 0.1)
