from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mininet.topo import SingleSwitchTopo
from refusals import refusals

from controllers.mesh.ports import choose_ports
from topos.describe import plan
from topos.edge import EdgeTopo
from topos.mesh import Mesh, evenly_spaced
from topos.options import seconds
from topos.placement import Placed, placed
from topos.racks import MorphluxTopo, RackTopo
from topos.rails import RailTopo
from topos.slices import Slice

OWN = """
from topos.placement import Placement, RailsPlacement

class Elsewhere(Placement):
    def place(self, node):
        return "c" if node == "rail1" else "a"

class Nothing(Placement):
    def place(self, node):
        return {}

class Parting(RailsPlacement):
    def place(self, node):
        return "a" if node == "g9" else super().place(node)

class Wavering(RailsPlacement):
    asked = 0
    def place(self, node):
        self.asked += node == "g3"
        return "b" if node == "g3" and self.asked > 1 else super().place(node)

class Failing(Placement):
    def place(self, node):
        return self.machines[7]

class Unwritten(Placement):
    pass

class NoPlacement:
    pass
"""


def place(name: str = "rails", machines: Sequence[str] = ("a", "b"), pinned: dict[str, str] | None = None) -> Placed:
    Path("own.py").write_text(OWN)
    return placed(plan(RailTopo(servers=4, gpus=4, scale_up=True)), machines, name, pinned=pinned or {})


TOPOLOGIES = {
    "rails": RailTopo,
    "rack": RackTopo,
    "morphlux": MorphluxTopo,
    "edge": EdgeTopo,
    "single": SingleSwitchTopo,
}

test_refusals = refusals(
    Path(__file__).with_name("refusals.yaml"),
    {
        "rails": RailTopo,
        "racks": RackTopo,
        "edge": EdgeTopo,
        "options cut up at a comma": lambda topo: TOPOLOGIES[topo](7),
        "plan": lambda topo: plan(TOPOLOGIES[topo](3)),
        "mesh": Mesh,
        "light in a mesh of 3x3": lambda gates, port: Mesh.of(3, 3).trace([False] * gates, port),
        "ports of a mesh of 3x3": lambda count: evenly_spaced(Mesh.of(3, 3), count),
        "mesh whose ports are chosen": lambda mesh: RailTopo(servers=14, gpus=1, mesh=mesh, choose_ports=choose_ports),
        "slice": lambda text: Slice.parse(text, "tenants"),
        "delay": lambda text: seconds("delay", text),
        "placement": place,
        "placement of other fabrics": lambda topo, pinned=None, **options: placed(
            plan(TOPOLOGIES[topo](**options)), ["a", "b"], pinned=pinned
        ),
    },
)
