"""A program on other ranks is the same job there."""

from __future__ import annotations

import pytest

from controllers.policies.catalog import load_policy
from measure.model.prediction import predict
from topos.describe import plan
from topos.rails import RailTopo
from workloads.catalog import load_workload
from workloads.check import check
from workloads.placing import placed


def test_a_job_takes_as_long_on_other_servers() -> None:
    workload = load_workload("smoke")
    own = plan(RailTopo(servers=4, gpus=2, rate_mbps=12500))
    shared = plan(RailTopo(servers=9, gpus=2, rate_mbps=12500))
    members = [server * 2 + gpu for server in (8, 3, 5, 0) for gpu in (0, 1)]
    there = placed(workload.program, members, shared.ranks, "b")
    check(there)
    assert {rank for rank, ops in enumerate(there.operations) if ops} == set(members)
    assert all(name.startswith("b/") and name == group.name for name, group in there.groups.items())
    step_s = [
        predict(program, fabric, load_policy("opus", fabric), "on-demand", 0.1).step_time_s
        for program, fabric in ((workload.program, own), (there, shared))
    ]
    assert step_s[0] == pytest.approx(step_s[1], rel=1e-9)
