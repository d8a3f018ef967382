"""Benchmarks on real packets, shortened: what they see, not how fast it was."""

from __future__ import annotations

import pytest

from commands.bench import Datapath, NotMeasured, circuits
from commands.bench.bed import Bed
from commands.bench.fabric import echo_times
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]


@pytest.fixture(scope="module")
def fast() -> Bed:
    if Bed().used != "bpf":
        pytest.skip("this kernel refuses bpf(2)")
    return Bed("bpf")


def test_packets_follow_a_swap_and_none_goes_the_old_way_after_the_reply(
    fast: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuits, "SWAPS", 10)
    rows = {row.name: row for row in circuits.swap_64(fast)}
    assert 0 < (rows["swap_64_following_median"].value or 0) < 15
    assert rows["swap_64_old_way_after_reply"].value == 0


def test_the_rules_of_the_kernel_change_alone(fast: Bed) -> None:
    rows = circuits.map_change(fast)
    assert 0 < (rows[0].value or 0) < (rows[1].value or 0)
    assert circuits.map_change(Bed("ovs")) == []


@pytest.mark.parametrize("datapath", ["bpf", "ovs"])
def test_an_echo_takes_longer_than_nothing(fast: Bed, datapath: Datapath) -> None:
    with Bed(datapath).make(RailTopo(servers=2, gpus=1, ports=1, fabric="electrical", rate_mbps=100)) as net:
        times = echo_times(net.netns_fd("g0"), net["g1"].IP(), 20, 0.001)
        assert len(times) == 20 and min(times) > 1e-6 and max(times) < 1
        with pytest.raises(NotMeasured, match="cannot be reached"):
            echo_times(net.netns_fd("g0"), "10.0.0.250", 1)
