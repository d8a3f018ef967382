"""Leaf servers and the root as processes on the hosts of an edge network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.propius.data.messages import Mode
from experiments.propius.data_plane import DataHosts
from experiments.propius.round_study import RoundSettings, one_round
from experiments.propius.trouble_study import KillSettings, kill_leaves
from topos.edge import EdgeTopo
from topos.kernel.emulation import Emulation

pytestmark = pytest.mark.root

SIZE, MTU = 400_000, 1500


@pytest.fixture(scope="module")
def hosts() -> Iterator[DataHosts]:
    with Emulation(EdgeTopo(clients=6, regions=2, client_mbps=20), openflow=None) as net:
        assert net.plan.edge is not None
        yield DataHosts.of(net.plan.edge, [net.netns_fd(host) for host in net.plan.hosts])


@pytest.mark.beside
@pytest.mark.thorough  # tests/integration/experiments/test_propius.py kills them in a study
def test_fixed_loses_nothing_that_killed_leaf_servers_had_acknowledged(hosts: DataHosts, tmp_path: Path) -> None:
    found = kill_leaves(hosts, KillSettings("fixed", rounds=4, size=SIZE, seed=1), tmp_path)
    assert (found.kills, found.lost, found.twice, found.unanswered) == (4, 0, 0, 0)
    assert found.acknowledged == 4 * 6 == found.counted + found.late
    assert found.sums_right >= 3


@pytest.mark.beside
def test_authors_lose_what_killed_leaf_servers_had_acknowledged(hosts: DataHosts, tmp_path: Path) -> None:
    found = kill_leaves(hosts, KillSettings("authors", rounds=4, size=SIZE, seed=1), tmp_path)
    assert found.lost > 0
    assert found.acknowledged == found.lost + found.counted


@pytest.mark.beside
def test_bytes_that_leave_the_root_for_a_model_that_all_clients_want(hosts: DataHosts, tmp_path: Path) -> None:
    first_alone = (0.0, 0.0, *[1.0] * 4)  # when the others ask, the leaf servers have the model
    cases: tuple[tuple[bool, Mode, tuple[float, ...], int, int], ...] = (
        (True, "fixed", (), 2, 0),
        (False, "fixed", (), 6, 6),
        (True, "authors", (), 6, 0),
        (True, "authors", first_alone, 2, 4),
    )
    for number, (leaves, mode, delays_s, copies, hits) in enumerate(cases):
        given = RoundSettings(mode, leaves, SIZE, 0.1, 0.1, delays_s=delays_s)
        found = one_round(hosts, given, tmp_path / f"{number}")
        assert copies <= found.root.sent / SIZE < 1.02 * copies
        assert sum(event["hit"] for event in found.events if event.kind == "get") == hits
        assert found.round_s > found.hand_out_s > 0
