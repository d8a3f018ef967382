"""The drawing of a fabric as data, from its plan alone: boxes, ports and links with their places."""

from __future__ import annotations

from math import prod
from typing import Any

from commands.page.view.layout.edge import edge_drawing
from commands.page.view.layout.mesh import mesh_drawing
from commands.page.view.layout.rack import rack_drawing
from commands.page.view.layout.rails import rails_drawing
from commands.page.view.layout.tree import tree_drawing
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan


def drawing(plan: FabricPlan, scale: Scale) -> dict[str, Any]:
    """The drawing of ``plan``: ``kind``, ``width`` and ``height`` in CSS pixels, ``nodes``, ``ports`` and ``links``.

    Rates of ports are Gb/s of the real system. A port stands on its switch; ``nx`` and ``ny`` are the direction in
    which a circuit leaves it (0 and 0: straight to its other port), and its ``size`` is the width at which ports do not
    touch. Links of more than two points have ``path``, chips of a tenant ``tenant``. The front-end network is left out.

    ``ConfigError`` for a plan that contradicts itself.
    """
    _check(plan)
    if plan.edge is not None:
        return edge_drawing(plan, plan.edge, scale)
    if plan.rack is not None:
        return rack_drawing(plan, plan.rack, scale)
    if plan.links:
        return tree_drawing(plan, scale)
    if any(switch.mesh is not None for switch in plan.network("rail")):
        return mesh_drawing(plan, scale)
    return rails_drawing(plan, scale)


def _check(plan: FabricPlan) -> None:
    """Refuse a plan whose sizes are not those of its hosts, since they would decide how much is drawn."""
    ranks = {port.rank for switch in plan.switches for port in switch.ports}
    sizes = [plan.servers, plan.gpus_per_server]
    if plan.rack is not None:
        sizes += [*plan.rack.torus, *plan.rack.server, plan.rack.racks]
    whole = plan.rack is None or prod(plan.rack.torus) * plan.rack.racks <= plan.ranks
    if min(sizes) < 1 or not whole or plan.ranks != len(ranks) or ranks != set(range(len(ranks))):
        raise ConfigError(
            f"fabric {plan.fabric} cannot be drawn: its plan has {plan.servers} servers of {plan.gpus_per_server} GPUs "
            f"and the ports of {len(ranks)} hosts"
        )
