"""The drawing of an edge network: root and trunk above, below it a column for each region with its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commands.page.view.layout.canvas import DOWN, HEIGHT, MARGIN, UP, WIDTH, Box, Canvas, Point
from railyard.scale import Scale
from topos.edge_plan import CONTROL, ROOT, EdgePlan
from topos.plan import FabricPlan, SwitchPlan

_TRUNK = Box(0.2 * WIDTH, 84.0, 0.6 * WIDTH, 84.0)
_LEAF_TOP, _REGION_TOP, _CLIENTS_TOP = 214.0, 262.0, 306.0
_LEAF_HEIGHT, _REGION_HEIGHT = 34.0, 28.0
_LARGEST_CLIENT = 60.0


def edge_drawing(plan: FabricPlan, edge: EdgePlan, scale: Scale) -> dict[str, Any]:
    """The drawing of root, trunk, regions with leaf servers, clients, and the control plane in the corner."""
    canvas = Canvas("edge", plan, scale)
    switches = {switch.name: switch for switch in plan.switches}
    wide = (WIDTH - 2 * MARGIN) / len(edge.regions)
    columns = [Box(MARGIN + r * wide, _LEAF_TOP, wide, HEIGHT - _LEAF_TOP) for r in range(len(edge.regions))]
    hosts = {ROOT: Box(_TRUNK.middle[0] - 45, MARGIN, 90, 36), CONTROL: Box(MARGIN, MARGIN, 90, 36)}
    for number, column in enumerate(columns):
        hosts |= _hosts_of(edge, number, column)
    bars = {region.switch: _bar(column) for region, column in zip(edge.regions, columns, strict=True)}
    ends = _trunk(canvas, edge, bars)
    for region in edge.regions:
        _region(canvas, switches[region.switch], bars[region.switch], hosts)
    _root(canvas, switches, hosts)
    for switch, number, at in ends:
        canvas.switch_port(switch, number, edge.trunk_mbps, at, UP if switch == "trunk" else DOWN)
    return canvas.drawing(max(box.bottom for box in hosts.values()) + MARGIN)


def _bar(column: Box) -> Box:
    """The switch of a region, as wide as its column."""
    gap = min(6.0, column.w / 10)
    return Box(column.x + gap, _REGION_TOP, column.w - 2 * gap, _REGION_HEIGHT)


def _hosts_of(edge: EdgePlan, number: int, column: Box) -> dict[int, Box]:
    """The boxes of the leaf server, above the region's switch, and of the clients in a grid below it, by rank."""
    bar, clients = _bar(column), edge.regions[number].clients
    area = Box(bar.x, _CLIENTS_TOP, bar.w, HEIGHT - MARGIN - _CLIENTS_TOP)
    across = _columns(area, len(clients))
    size = _size(area, across, len(clients))
    left = area.middle[0] - across * size / 2
    found = {edge.leaf_rank(number): Box(bar.x, _LEAF_TOP, min(90.0, 0.5 * bar.w), _LEAF_HEIGHT)}
    for place, client in enumerate(clients):
        cell = Box(left + place % across * size, area.y + place // across * size, size, size)
        found[edge.client_rank(client)] = cell.inset(size / 10)
    return found


def _columns(area: Box, count: int) -> int:
    """The number of clients in a row with which they are largest."""
    return max(range(1, max(count, 1) + 1), key=lambda columns: _size(area, columns, count))


def _size(area: Box, columns: int, count: int) -> float:
    return min(area.w / columns, area.h / max(1, -(-count // columns)), _LARGEST_CLIENT)


def _trunk(canvas: Canvas, edge: EdgePlan, bars: Mapping[str, Box]) -> list[tuple[str, int, Point]]:
    """Draw the links of the regions to the trunk; the places of both ends, by switch and number of the port."""
    wide = _TRUNK.w / len(edge.regions)
    place = {region.switch: _TRUNK.x + (i + 0.5) * wide for i, region in enumerate(edge.regions)}
    ends: list[tuple[str, int, Point]] = []
    for link in canvas.plan.links:
        sides = {link.a: link.a_port, link.b: link.b_port}
        name = next((name for name in sides if name in bars), None)
        if name is None or "trunk" not in sides:
            continue
        above, below = (place[name], _TRUNK.bottom - 6), (bars[name].x + 0.7 * bars[name].w, bars[name].y + 5)
        canvas.link(f"trunk-{name}", "rail", (above, below))
        ends += [("trunk", sides["trunk"], above), (name, sides[name], below)]
    return ends


def _region(canvas: Canvas, switch: SwitchPlan, bar: Box, hosts: Mapping[int, Box]) -> None:
    """Draw a region: its switch with a port for each host, its leaf server and its clients."""
    edge = canvas.plan.edge
    assert edge is not None
    leaves = edge.leaf_rank(len(edge.regions))
    places = {}
    rows = sorted({hosts[port.rank].y for port in switch.ports if port.rank >= leaves})
    for port in switch.ports:
        box = hosts[port.rank]
        if port.rank == CONTROL:
            at = (bar.x + 0.93 * bar.w, bar.y + 5)
            canvas.link(port.interface, "control", ((box.right, box.middle[1]), at), port.interface)
        elif port.rank < leaves:
            at = (box.middle[0], bar.y + 5)
            canvas.host_link(switch, port, (box.middle[0], box.bottom), at)
        else:
            x = box.x + (rows.index(box.y) + 0.5) * box.w / len(rows)
            at = (x, bar.bottom - 5)
            canvas.host_link(switch, port, (x, box.y), at)
        places[port] = at
    canvas.node(switch.name, switch.kind, bar)
    for port in switch.ports:
        if port.rank != CONTROL:
            kind, label = ("leaf", port.host) if port.rank < leaves else ("client", str(port.rank - leaves))
            canvas.node(port.host, kind, hosts[port.rank], label=label, rank=port.rank)
    for port, at in sorted(places.items(), key=lambda each: (each[1][1], each[1][0])):
        canvas.port(switch, port, at, DOWN if at[1] < bar.middle[1] else UP)


def _root(canvas: Canvas, switches: Mapping[str, SwitchPlan], hosts: Mapping[int, Box]) -> None:
    """Draw the root server on the trunk, and the control plane on the switch between them."""
    root, control = hosts[ROOT], hosts[CONTROL]
    bar = Box(control.right + 60, MARGIN + 8, 70, 20)
    for port in switches["ctl"].ports if "ctl" in switches else ():
        host = hosts[port.rank]
        left = host.x < bar.x
        at = (bar.x + 5 if left else bar.right - 5, bar.middle[1])
        canvas.host_link(switches["ctl"], port, (host.right if left else host.x, host.middle[1]), at)
    top = (_TRUNK.middle[0], _TRUNK.y + 6)
    for port in switches["trunk"].ports:
        canvas.host_link(switches["trunk"], port, (root.middle[0], root.bottom), top)
    canvas.node("trunk", switches["trunk"].kind, _TRUNK)
    for rank, name, kind in ((ROOT, "root", "root"), (CONTROL, "control", "control")):
        canvas.node(name, kind, hosts[rank], rank=rank)
    for port in switches["trunk"].ports:
        canvas.port(switches["trunk"], port, top, DOWN)
    if "ctl" in switches:
        canvas.node("ctl", "electrical", bar)
        for port in switches["ctl"].ports:
            x = bar.x + 5 if hosts[port.rank].x < bar.x else bar.right - 5
            canvas.port(switches["ctl"], port, (x, bar.middle[1]), DOWN)
