from __future__ import annotations

from itertools import pairwise

import pytest

from experiments.allocation.egress import server_ring, static_share, steered_shares
from topos.slices import Slice
from topos.torus import Extents, Torus

RACK = Torus((4, 4, 4), (2, 2, 1))


@pytest.mark.parametrize(
    ("extents", "rings", "links"),
    [((4, 4, 4), 3, 3), ((4, 4, 2), 2, 3), ((4, 4, 1), 2, 2), ((4, 2, 1), 1, 2), ((2, 2, 1), 1, 2), ((2, 1, 1), 1, 1)],
)
def test_a_static_split_loses_a_third_for_each_dimension(extents: Extents, rings: int, links: int) -> None:
    assert static_share(RACK, extents, "ring") == pytest.approx(rings / 3)
    assert static_share(RACK, extents, "link") == pytest.approx(links / 3)


def test_the_prototype_doubles() -> None:
    assert static_share(Torus((2, 2, 1), (1, 1, 1)), (2, 1, 1)) == 0.5  # iperf 2.00x in the paper


def test_a_full_rack_of_planes_gets_everything_back() -> None:
    planes = [Slice((4, 4, 1), (0, 0, z)) for z in range(4)]
    assert steered_shares(RACK, planes, 4) == (1.0,) * 4
    assert steered_shares(RACK, [Slice((2, 2, 1)), Slice((1, 1, 1), (2, 0, 0))], 4) == (1.0, None)


def test_fibres_are_the_limit_where_all_of_them_are_needed() -> None:
    assert steered_shares(RACK, [Slice((4, 4, 4))], 4) == (1.0,)
    assert steered_shares(RACK, [Slice((4, 4, 4))], 2)[0] == pytest.approx(2 / 3)
    torus = Torus((2, 2, 2), (2, 2, 1))  # two servers and nothing else: a ring crosses there and back
    assert steered_shares(torus, [Slice((2, 2, 2))], 2) == (1.0,)  # 3 ports a chip: one lane
    assert steered_shares(torus, [Slice((2, 2, 2))], 1) == (0.0,)


@pytest.mark.parametrize("extents", [(4, 4, 2), (2, 2, 4), (2, 4, 1), (4, 2, 3), (1, 1, 4), (3, 2, 1)])
def test_a_ring_goes_through_each_server_once(extents: Extents) -> None:
    ring = server_ring(RACK, Slice(extents))
    assert sorted(ring) == list(Slice(extents).chips(RACK))
    servers = [RACK.server_of(chip) for chip in ring]
    assert sum(a != b for a, b in pairwise(servers)) == len(set(servers)) - 1
