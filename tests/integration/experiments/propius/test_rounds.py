"""Leaf servers and the root as processes on the hosts of an edge network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.propius.data.clients import stratified
from experiments.propius.data.messages import Mode
from experiments.propius.round_study import one_round
from experiments.propius.run import EdgeRun
from experiments.propius.trouble_study import fates, kill_leaves
from railyard.point_folder import events_of
from topos.edge import EdgeTopo
from topos.kernel.emulation import Emulation

pytestmark = pytest.mark.root

SIZE = 400_000


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with Emulation(EdgeTopo(clients=6, regions=2, client_mbps=20), openflow=None) as running:
        yield running


def edge_run(net: Emulation, folder: Path, mode: Mode, **others: Any) -> EdgeRun:
    assert net.plan.edge is not None
    fds = tuple(net.netns_fd(host) for host in net.plan.hosts)
    return EdgeRun(net.plan.edge, fds, folder, (), tuple(stratified(6, 2, 1)), SIZE, mode=mode, **others)


@pytest.mark.beside
def test_authors_lose_what_killed_leaf_servers_had_acknowledged(net: Emulation, tmp_path: Path) -> None:
    kill_leaves(edge_run(net, tmp_path, "authors", verify=True, idle_s=3.0), 4)
    found = fates(events_of(tmp_path), 4)
    assert found.acknowledged > found.lost > 0
    assert found.late == 0


@pytest.mark.beside
def test_bytes_that_leave_the_root_for_a_model_that_all_clients_want(net: Emulation, tmp_path: Path) -> None:
    first_alone = (0.0, 0.0, *[1.0] * 4)  # when the others ask, the leaf servers have the model
    cases: tuple[tuple[str, Mode, tuple[float, ...], int, int], ...] = (
        ("tree", "fixed", (), 2, 0),
        ("star", "fixed", (), 6, 6),
        ("tree", "authors", (), 6, 0),
        ("tree", "authors", first_alone, 2, 4),
    )
    for number, (topology, mode, delays_s, copies, hits) in enumerate(cases):
        run = edge_run(net, tmp_path / f"{number}", mode, topology=topology, idle_s=1.0)
        found = one_round(run, delays_s=delays_s)
        assert copies <= found.root.sent / SIZE < 1.02 * copies
        assert sum(event["hit"] for event in events_of(run.folder) if event.kind == "get") == hits
        assert found.round_s > found.hand_out_s > 0
