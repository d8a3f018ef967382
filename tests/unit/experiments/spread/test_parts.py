"""The part of each machine of a fabric, and what is sent of it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.spread.machines import rounds
from experiments.spread.parts import (
    first_number,
    part_to_plain,
    parts,
    topology_from_plain,
    topology_to_plain,
)
from railyard.errors import MachineError
from railyard.validation import from_plain
from topos.describe import plan
from topos.kernel.links import Part
from topos.placement import placed
from topos.rails import RailTopo


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["rails", "servers"]))
def test_parts_share_out_all_nodes_and_both_ends_of_each_cut_link(
    servers: int, gpus: int, machines: int, placement: str
) -> None:
    fabric = plan(RailTopo(servers=servers, gpus=gpus, scale_up=True))
    names = tuple("abcd"[:machines])
    where = placed(fabric, names, placement)
    found = parts(where, {name: f"192.0.2.{number}" for number, name in enumerate(names, 1)}, 1000)
    nodes = [node for part in found.values() for node in part.nodes or ()]
    assert sorted(nodes) == sorted([*fabric.hosts, *(switch.name for switch in fabric.switches)])
    ends = [(tunnel, interface) for part in found.values() for interface, tunnel in part.tunnels.items()]
    numbers = Counter(tunnel.number for tunnel, _ in ends)
    assert set(numbers.values()) <= {2}
    assert sorted(numbers) == [1000 + cut.number for cut in where.cuts]
    by_number: dict[int, list[tuple[str, str]]] = {}
    for tunnel, _ in ends:
        by_number.setdefault(tunnel.number, []).append((tunnel.local, tunnel.remote))
    assert all(one == (there, here) for one, (here, there) in by_number.values())


def test_a_part_and_a_topology_are_the_same_after_they_were_sent() -> None:
    topo = RailTopo(servers=3, gpus=2, scale_up=True, mtu=4200)
    where = placed(plan(topo), ("a", "b"), "rails")
    for part in parts(where, {"a": "192.0.2.1", "b": "192.0.2.2"}, 7).values():
        assert from_plain(Part, json.loads(json.dumps(part_to_plain(part))), "a part") == part
    there = topology_from_plain(json.loads(json.dumps(topology_to_plain(topo))))
    assert there.nodes() == topo.nodes()
    assert [there.nodeInfo(node) for node in there.nodes()] == [topo.nodeInfo(node) for node in topo.nodes()]
    assert there.links(withInfo=True) == topo.links(withInfo=True)


def test_options_that_are_no_plain_data_are_refused_with_their_node() -> None:
    topo = RailTopo(servers=1, gpus=1)
    topo.addHost("odd", cls=RailTopo)
    with pytest.raises(MachineError, match="option cls of odd is no plain data"):
        topology_to_plain(topo)


@given(st.text(), st.integers(0, 9), st.integers(0, 100_000))
def test_tunnel_numbers_fit_into_24_bits(run: str, attempt: int, count: int) -> None:
    first = first_number(run, attempt, count)
    assert first >= 1
    assert first + count < 1 << 24


@given(st.integers(2, 9))
def test_no_machine_is_in_two_pairs_that_are_probed_together(machines: int) -> None:
    pairs = list(combinations("abcdefghi"[:machines], 2))
    found = rounds(pairs)
    assert sorted(pair for each in found for pair in each) == pairs
    for each in found:
        names = [name for pair in each for name in pair]
        assert len(names) == len(set(names))
