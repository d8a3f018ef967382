"""Leaf servers and the root as processes on the hosts of an edge network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from measure.live.edge.data_plane import DataHosts
from measure.live.edge.handout import hand_out
from measure.live.edge.leaf_kills import KillSettings, kill_leaves
from measure.live.edge.request_times import ClientPath, request_times
from topos.edge import EdgeTopo
from topos.kernel.emulation import Emulation
from workloads.edge.data_requests import Mode

pytestmark = pytest.mark.root

SIZE = 400_000


@pytest.fixture(scope="module")
def hosts() -> Iterator[DataHosts]:
    with Emulation(EdgeTopo(clients=6, regions=2, client_mbps=20), openflow=None) as net:
        assert net.plan.edge is not None
        yield DataHosts.of(net.plan.edge, [net.netns_fd(host) for host in net.plan.hosts])


@pytest.mark.beside
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
    tree = hand_out(hosts, tmp_path / "tree", mode="fixed", size=SIZE)
    assert 2 <= tree.copies < 2.02 and tree.hits == 0
    star = hand_out(hosts, tmp_path / "star", mode="fixed", size=SIZE, leaves=False)
    assert 6 <= star.copies < 6.12
    first_alone = [0.0, 0.0] + [1.0] * 4  # when the others ask, the leaf servers have the model
    cases: tuple[tuple[Mode, list[float] | None, int, int], ...] = (
        ("authors", None, 6, 0),
        ("authors", first_alone, 2, 4),
    )
    for mode, delays, copies, hits in cases:
        tree = hand_out(hosts, tmp_path / f"{copies}", mode=mode, size=SIZE, delays_s=delays)
        assert copies <= tree.copies < 1.02 * copies and tree.hits == hits
    assert len(tree.client_s) == 6 and tree.seconds > 1.0


@pytest.mark.timed
def test_times_of_single_requests_are_those_of_the_links(hosts: DataHosts, tmp_path: Path) -> None:
    path = ClientPath(access_mbps=20, trunk_mbps=100, access_rtt_s=0, trunk_rtt_s=0)
    size = 1_000_000
    times = request_times(hosts, tmp_path, size=size, repetitions=3)
    assert len(times) == 3 * 7
    for at, kind in {(time.at, time.kind) for time in times}:
        measured = median(time.seconds for time in times if (time.at, time.kind) == (at, kind))
        ratio = measured / path.ideal_s(at, kind, size)
        assert 0.94 < ratio < 1.05, (at, kind, ratio)  # after a pause a bucket lets some 15 ms of its rate pass at once
