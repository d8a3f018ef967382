"""The programmable photonic mesh as an optical switch (PIP, arXiv 2501.18136): everything about it by one name.

>>> from controllers.mesh import Mesh, evenly_spaced
>>> mesh = Mesh.of(3, 3)
>>> a, b, c, d = evenly_spaced(mesh, 4)
>>> route_exact(mesh, [(a, d), (b, c)]).cells
8
"""

from __future__ import annotations

from controllers.mesh import Cell, Light, Mesh, Port, evenly_spaced
from controllers.pip_corners import dead_end, forced_exits
from controllers.pip_exact import route_exact
from controllers.pip_light import (
    Infeasible,
    Pair,
    Paths,
    Routed,
    check,
    flips,
    path_latency_s,
    path_loss_db,
    settled,
)
from controllers.pip_ports import Choice, choose, choose_ports, why_not
from controllers.pip_routing import route

__all__ = [
    "Cell",
    "Choice",
    "Infeasible",
    "Light",
    "Mesh",
    "Pair",
    "Paths",
    "Port",
    "Routed",
    "check",
    "choose",
    "choose_ports",
    "dead_end",
    "evenly_spaced",
    "flips",
    "forced_exits",
    "path_latency_s",
    "path_loss_db",
    "route",
    "route_exact",
    "settled",
    "why_not",
]
