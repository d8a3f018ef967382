"""The control plane of an edge run under load, by real sockets from the namespaces of 4 clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controllers.edge.run import EdgeRun
from measure.live.edge.control_study import accept_rush, control_load
from railyard.errors import MachineError
from topos.edge import EdgeTopo
from topos.kernel.emulation import Emulation
from workloads.edge.job import BASIC, MIDDLE, EdgeJob
from workloads.edge.population import stratified

pytestmark = [pytest.mark.root, pytest.mark.beside]

JOBS = (EdgeJob("a", 7, BASIC, 0, 1), EdgeJob("b", 50, MIDDLE, 0, 1), EdgeJob("c", 1, MIDDLE, 0, 1))


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    net = Emulation(EdgeTopo(clients=4, regions=2, client_mbps=20), openflow=None)
    net.start()
    yield net
    net.stop()


@pytest.fixture
def run(net: Emulation, tmp_path: Path) -> EdgeRun:
    assert net.plan.edge is not None
    fds = tuple(net.netns_fd(host) for host in net.plan.hosts)
    clients = tuple(stratified(4, 2, 1))
    return EdgeRun(net.plan.edge, fds, tmp_path, JOBS, clients, 1000, policy="fifo", managers=2)


@pytest.mark.parametrize("policy", ["fifo", "random-client"])
def test_a_rush_of_accepts_fills_each_demand_and_exceeds_none(run: EdgeRun, policy: str) -> None:
    rush = accept_rush(replace(run, policy=policy), accepts=400, generators=3)
    assert rush.demands == rush.bound == rush.granted == {0: 7, 1: 50, 2: 1}
    assert not rush.exceeds
    assert (rush.refused, rush.failed) == (400 - 58, 0)
    assert 0 < rush.seconds < 60
    assert replace(rush, bound={0: 8, 1: 50, 2: 1}).exceeds
    assert replace(rush, bound={0: 8, 1: 50, 2: 1}, granted={0: 8, 1: 50, 2: 1}).exceeds


def test_check_ins_in_a_closed_loop_are_counted_and_timed(run: EdgeRun) -> None:
    one, eight = control_load(run, clients=(1, 8), seconds=0.4)
    (near,) = control_load(run, clients=(8,), seconds=0.4, near=True)
    assert (one.clients, eight.clients, one.managers) == (1, 8, 2)
    assert near.near and near.bytes_per_check_in is None and near.check_ins_per_s > 20
    for load in (one, eight):
        assert load.bytes_per_check_in is not None
        assert load.check_ins_per_s > 20
        assert 0 < load.p50_ms <= load.p99_ms
        assert 250 < load.bytes_per_check_in < 1500
        assert load.cores["managers"] > 0 and load.cores["load"] > 0


def test_a_loop_in_which_nobody_is_answered_is_an_error(run: EdgeRun) -> None:
    with pytest.raises(MachineError, match="let the closed loop last longer"):
        control_load(run, clients=(1,), seconds=0.0)
