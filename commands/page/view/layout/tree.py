"""The drawing of switches that are linked to one another: servers above, and the switches below in layers.

A layer holds the switches that are equally many links away from a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commands.page.view.layout.canvas import DOWN, HEIGHT, MARGIN, UP, WIDTH, Box, Canvas, Point, fitting
from commands.page.view.layout.rails import link_down, place_servers, rows_of
from railyard.scale import Scale
from topos.plan import FabricPlan, SwitchPlan

_GAP = 0.1
"""Space between two switches of a layer, as a share of the room of each."""


def tree_drawing(plan: FabricPlan, scale: Scale) -> dict[str, Any]:
    """The drawing of a fabric of linked switches, such as a tree of leaves and spines."""
    canvas = Canvas("tree", plan, scale)
    layers = _layers(plan)
    rows = rows_of(plan)
    servers = place_servers(canvas, MARGIN, WIDTH - 2 * MARGIN, MARGIN, fitting(HEIGHT * 0.25, rows, 120.0, 26.0), rows)
    height = fitting(HEIGHT - servers.bottom - MARGIN, len(layers), 180.0, 60.0)
    boxes: dict[str, Box] = {}
    for number, layer in enumerate(layers):
        wide = (WIDTH - 2 * MARGIN) / len(layer)
        for place, name in enumerate(layer):
            x, y = MARGIN + (place + _GAP / 2) * wide, servers.bottom + (number + 0.45) * height
            boxes[name] = Box(x, y, wide * (1 - _GAP), height * 0.5)
    switches = {switch.name: switch for switch in plan.switches if switch.name in boxes}
    ends = _ends(plan, boxes, layers)
    host_places = {name: _host_places(switch, boxes[name], ends) for name, switch in switches.items()}
    for name, switch in switches.items():
        link_down(canvas, servers, switch, host_places[name])
    for link in plan.links:
        if (link.a, link.a_port) in ends and (link.b, link.b_port) in ends:
            places = ends[link.a, link.a_port][0], ends[link.b, link.b_port][0]
            canvas.link(f"{link.a}:{link.a_port}-{link.b}:{link.b_port}", "rail", places)
    for name, switch in switches.items():
        canvas.node(name, switch.kind, boxes[name])
        for port, at in zip(switch.ports, host_places[name], strict=True):
            canvas.port(switch, port, at)
        for (owner, number), (at, inward, mbps) in ends.items():
            if owner == name:
                canvas.switch_port(name, number, mbps, at, inward)
    return canvas.drawing(max((box.bottom for box in boxes.values()), default=servers.bottom) + MARGIN)


def _layers(plan: FabricPlan) -> list[list[str]]:
    """The switches of the network "rail" by their distance from a host, those without a way to one last."""
    rest = {switch.name for switch in plan.network("rail")}
    around: dict[str, set[str]] = {name: set() for name in rest}
    for link in plan.links:
        if link.a in rest and link.b in rest:
            around[link.a].add(link.b)
            around[link.b].add(link.a)
    names = [switch.name for switch in plan.network("rail")]
    layer = [switch.name for switch in plan.network("rail") if switch.ports] or names
    layers = []
    while layer:
        layers.append(layer)
        rest -= set(layer)
        reached = {near for name in layer for near in around[name]} & rest
        layer = [name for name in names if name in (reached or rest)]
    return layers


def _ends(
    plan: FabricPlan, boxes: Mapping[str, Box], layers: list[list[str]]
) -> dict[tuple[str, int], tuple[Point, Point, float]]:
    """Where the ports between switches stand, in which direction they lead inside, and their rates in Mb/s.

    Ports to a layer further from the servers are at the lower edge, the others at the upper edge.
    """
    depth = {name: number for number, layer in enumerate(layers) for name in layer}
    edges: dict[tuple[str, bool], list[tuple[float, int, float]]] = {}
    for link in plan.links:
        if link.a in boxes and link.b in boxes:
            for name, number, other in ((link.a, link.a_port, link.b), (link.b, link.b_port, link.a)):
                below = depth[other] > depth[name]
                edges.setdefault((name, below), []).append((boxes[other].middle[0], number, link.rate_mbps))
    ends = {}
    hosts = {switch.name: len(switch.ports) for switch in plan.switches}
    for (name, below), found in edges.items():
        box, before = boxes[name], 0 if below else hosts[name]
        for place, (_, number, mbps) in enumerate(sorted(found)):
            x = box.x + (before + place + 0.5) * box.w / (before + len(found))
            at = (x, box.bottom - 5 if below else box.y + 5)
            ends[name, number] = (at, UP if below else DOWN, mbps)
    return ends


def _host_places(
    switch: SwitchPlan, box: Box, ends: Mapping[tuple[str, int], tuple[Point, Point, float]]
) -> list[Point]:
    """Where the ports of hosts stand, at the upper edge, to the left of those to switches there."""
    others = sum(owner == switch.name and inward == DOWN for (owner, _), (_, inward, _) in ends.items())
    wide = box.w / (len(switch.ports) + others or 1)
    return [(box.x + (place + 0.5) * wide, box.y + 5) for place in range(len(switch.ports))]
