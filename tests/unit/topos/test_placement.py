from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.describe import pinned, plan
from topos.edge import EdgeTopo
from topos.placement import PLACEMENTS, placed
from topos.plan import FabricPlan
from topos.racks import RackTopo
from topos.rails import RailTopo


def fabric(servers: int = 4, gpus: int = 4, **options: object) -> FabricPlan:
    return plan(RailTopo(servers=servers, gpus=gpus, **options))


def names(count: int) -> list[str]:
    return [f"m{index}" for index in range(count)]


def test_rails_go_round_the_machines_and_servers_in_blocks() -> None:
    """Golden: 4 servers of 4 GPUs with 2 ports on 2 machines."""
    found = placed(fabric(scale_up=True, front_end=True), ["a", "b"])
    assert found.switches_on("a") == ("rail0", "rail2", "srv0", "srv1", "fe")
    assert found.switches_on("b") == ("rail1", "rail3", "srv2", "srv3")
    assert found.hosts_on("b") == tuple(f"g{rank}" for rank in range(8, 16))
    cut = found.cuts[0]
    assert (cut.number, cut.switch, cut.port, cut.host, cut.interface) == (0, "rail0", 5, "g8", "g8-r0")
    assert (cut.switch_machine, cut.host_machine, cut.rate_mbps) == ("a", "b", 100.0)
    assert len(found.cuts) == 4 * 2 * 2 + 8  # each rail has 2 servers elsewhere, the front-end all of machine b
    assert found.demand_mbps("a", "b") == found.demand_mbps("b", "a") == 24 * 100
    assert found.demand_mbps("a", "a") == 0


@given(
    servers=st.integers(1, 12),
    gpus=st.integers(1, 6),
    ports=st.integers(1, 3),
    machines=st.integers(1, 6),
    name=st.sampled_from(sorted(PLACEMENTS)),
    scale_up=st.booleans(),
    front_end=st.booleans(),
)
def test_every_node_has_one_machine_and_cuts_are_the_links_between_machines(
    servers: int, gpus: int, ports: int, machines: int, name: str, scale_up: bool, front_end: bool
) -> None:
    whole = fabric(servers, gpus, ports=ports, scale_up=scale_up, front_end=front_end, slow={0: 0.25})
    found = placed(whole, names(machines), name)
    on = [node for machine in names(machines) for node in (*found.hosts_on(machine), *found.switches_on(machine))]
    assert sorted(on) == sorted([*whole.hosts, *(switch.name for switch in whole.switches)])
    assert [cut.number for cut in found.cuts] == list(range(len(found.cuts)))
    cut = {(each.switch, each.port): each for each in found.cuts}
    for switch in whole.switches:
        for port in switch.ports:
            here, there = found.machine_of[switch.name], found.machine_of[port.host]
            assert (here != there) == ((switch.name, port.number) in cut)
            if here != there:
                each = cut[switch.name, port.number]
                assert (each.switch_machine, each.host_machine) == (here, there)
                assert (each.host, each.interface, each.rate_mbps) == (port.host, port.interface, port.rate_mbps)
    pairs = [(a, b) for a in names(machines) for b in names(machines) if a < b]
    assert sum(found.demand_mbps(*pair) for pair in pairs) == pytest.approx(sum(c.rate_mbps for c in found.cuts))
    assert name != "single" or found.cuts == ()
    assert found == placed(whole, names(machines), name)


@given(servers=st.integers(1, 40), machines=st.integers(1, 9))
def test_blocks_of_servers_are_contiguous_and_even(servers: int, machines: int) -> None:
    found = placed(fabric(servers, 1), names(machines), "servers")
    order = [int(found.machine_of[f"g{rank}"][1:]) for rank in range(servers)]
    counts = [order.count(machine) for machine in range(machines)]
    assert order == sorted(order) and max(counts) - min(counts) <= 1
    assert found.switches_on("m0") == ("rail0",)


def test_nodes_with_the_option_server_stay_where_it_says() -> None:
    topo = RailTopo(servers=4, gpus=4)
    topo.nodeInfo("rail0")["server"] = topo.nodeInfo("g0")["server"] = "b"
    assert pinned(topo) == {"rail0": "b", "g0": "b"} and pinned(RailTopo()) == {}
    found = placed(plan(topo), ["a", "b"], pinned=pinned(topo))
    assert found.switches_on("b") == ("rail0", "rail1", "rail3") and found.hosts_on("b")[0] == "g0"


def test_what_cannot_be_cut_stays_on_one_machine() -> None:
    torus, edge = plan(RackTopo(torus="4x4", fabric="electrical-torus")), plan(EdgeTopo(clients=4, regions=2))
    for name in ("rails", "servers"):
        assert placed(torus, ["a", "b"], name).switches_on("b") == () != placed(torus, ["a", "b"], name).hosts_on("b")
    assert placed(edge, ["a"]).cuts == ()
    for options in ({"delay_ms": 5}, {"loss": 1}):
        assert not placed(plan(RailTopo(servers=2, gpus=2, **options)), ("a", "b"), "single").cuts


def test_a_photonic_rack_is_one_switch_with_its_servers_elsewhere() -> None:
    found = placed(plan(RackTopo(torus="4x4", server="2x2")), ["a", "b"])
    assert found.switches_on("a") == ("rack0", "fe") and found.switches_on("b") == ()
    assert found.hosts_on("b") == tuple(f"g{rank}" for rank in range(12, 20))


OWN = """
from topos.placement import RailsPlacement

class Turned(RailsPlacement):
    def place(self, node):
        return self.machines[::-1][self.machines.index(super().place(node))]
"""


def test_a_placement_of_a_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    found = placed(fabric(), ["a", "b"], f"{own}:Turned")
    assert found.switches_on("b") == ("rail0", "rail2") and "g0" in found.hosts_on("b")
