"""A plan whose one rail is a photonic mesh, for the tests of this room."""

from __future__ import annotations

from dataclasses import replace

from fabric_plans import rail_plan

from topos.mesh import Mesh, evenly_spaced
from topos.plan import FabricPlan, MeshPlan


def pip_plan(
    ports: int, width: int = 3, height: int = 3, at: tuple[int, ...] | None = None, cell_latency_us: float = 0.5
) -> FabricPlan:
    """``ports`` servers with one port each; ``at``: the mesh ports (None: evenly spaced)."""
    plan = rail_plan(ports, ports=1)
    mesh = MeshPlan(width, height, at or evenly_spaced(Mesh.of(width, height), ports), cell_latency_us)
    return replace(plan, switches=(replace(plan.switches[0], mesh=mesh),))
