"""The drawing of a fabric as data, from its plan alone: boxes, ports and links with their places.

Racks of accelerators show the torus from above, one sheet for each layer, spares beside it. In a photonic rack the
chips stand on the optical switch, which can join any of their ports, so these stand inside the chips, and circuits are
lines between chips. In an electrical torus each chip stands in its node, whose ports are on the sides to which they
lead; links that close a ring run between the rows and columns of chips. An edge network has root and trunk above, and
below them a column for each region with its clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from commands.page.view.canvas import DOWN, HEIGHT, MARGIN, STRAIGHT, UP, WIDTH, Box, Canvas, Point
from commands.page.view.rails import mesh_drawing, rails_drawing, tree_drawing
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.edge_plan import CONTROL, ROOT, EdgePlan
from topos.plan import FabricPlan, HostPort, RackPlan, SwitchPlan
from topos.torus import Direction, Torus


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


# ---- racks -----------------------------------------------------------------------------------------------------------


_EDGE = 0.12
"""Space around all sheets, in cells, for the links that close a ring."""
_APART = 0.6
"""Space between two sheets, in cells."""
_LARGEST_CELL = 220.0
_CHIP, _NODE, _OPTICAL_CHIP, _LARGEST_PORT = 0.42, 0.7, 0.6, 0.09
"""Width of a chip in its node, of the node, of a chip on an optical switch, and of a port, in cells."""
_ASIDE = 0.36
"""Distance of ports in a chip from its middle, in widths of the chip."""


@dataclass(frozen=True)
class Sheet:
    """Chips that are drawn as one grid: rank -> (column, row), and the server of each cell."""

    columns: int
    rows: int
    cells: Mapping[int, tuple[int, int]]


def rack_drawing(plan: FabricPlan, rack: RackPlan, scale: Scale) -> dict[str, Any]:
    """The drawing of racks whose chips are joined by one optical switch, or by a node for each chip."""
    torus = Torus(rack.torus, rack.server)
    canvas = Canvas("rack" if len(plan.network("rail")) == 1 else "torus", plan, scale)
    sheets = list(_sheets(plan, rack, torus))
    cell, places = _arranged(sheets)
    canvas.largest_port = min(10.0, _LARGEST_PORT * cell)
    chips = {
        rank: Box(x + column * cell, y + row * cell, cell, cell)
        for sheet, (x, y) in zip(sheets, places, strict=True)
        for rank, (column, row) in sheet.cells.items()
    }
    height = max((box.bottom for box in chips.values()), default=0.0) + MARGIN + 4
    optical = [switch for switch in plan.network("rail") if switch.kind == "ocs"]
    for switch in optical:
        canvas.node(switch.name, switch.kind, Box(MARGIN / 2, MARGIN / 2, WIDTH - MARGIN, height - MARGIN))
    _servers(canvas, chips, cell)
    if optical:
        _photonic(canvas, chips, optical)
    else:
        _electrical(canvas, torus, chips)
    return canvas.drawing(height)


def _sheets(plan: FabricPlan, rack: RackPlan, torus: Torus) -> Iterator[Sheet]:
    """The layers of every rack, and a sheet of the chips outside the torus."""
    wide, high, deep = rack.torus
    for first in range(0, rack.racks * torus.chips, torus.chips):
        for layer in range(deep):
            found = {first + c: (x, y) for c, (x, y, z) in enumerate(torus.places) if z == layer}
            yield Sheet(wide, high, {rank: place for rank, place in found.items() if rank < plan.ranks})
    outside = range(rack.racks * torus.chips, plan.ranks)
    if not outside:
        return
    width, height = rack.server[0], rack.server[1] * rack.server[2]
    servers = -(-len(outside) // torus.chips_per_server)
    stacked = max(1, min(servers, high // height))
    cells = {}
    for rank in outside:
        server, chip = divmod(rank - outside.start, torus.chips_per_server)
        column, row = server // stacked * width, server % stacked * height
        cells[rank] = (column + chip % width, row + chip // width)
    yield Sheet(-(-servers // stacked) * width, stacked * height, cells)


def _arranged(sheets: Sequence[Sheet]) -> tuple[float, list[Point]]:
    """The size of a cell, and the upper left corner of every sheet, in as many columns as make cells largest."""
    found = [_in_columns(sheets, columns) for columns in range(1, min(len(sheets), 64) + 1)]
    return max(found, key=lambda each: each[0])


def _in_columns(sheets: Sequence[Sheet], columns: int) -> tuple[float, list[Point]]:
    rows = [sheets[i : i + columns] for i in range(0, len(sheets), columns)]
    wide = max(sum(sheet.columns for sheet in row) + _APART * (len(row) - 1) for row in rows)
    highs = [max(sheet.rows for sheet in row) for row in rows]
    high = sum(highs) + _APART * (len(rows) - 1)
    edge = 2 * MARGIN
    cell = min(_LARGEST_CELL, (WIDTH - 2 * edge) / (wide + 2 * _EDGE), (HEIGHT - 2 * edge) / (high + 2 * _EDGE))
    left = (WIDTH - wide * cell) / 2
    places = []
    for number, row in enumerate(rows):
        x, y = left, edge + cell * (_EDGE + sum(highs[:number]) + _APART * number)
        for sheet in row:
            places.append((x, y))
            x += (sheet.columns + _APART) * cell
    return cell, places


def _servers(canvas: Canvas, chips: Mapping[int, Box], cell: float) -> None:
    """A box around the chips of each server; a server in several layers has one in each of them."""
    parts: dict[tuple[int, float], list[Box]] = {}
    size = canvas.plan.gpus_per_server
    reach = _reach(canvas.plan)
    for rank, box in chips.items():
        parts.setdefault((rank // size, _layer(rank, canvas.plan, reach)), []).append(box)
    seen: set[int] = set()
    for (server, layer), boxes in parts.items():
        x, y = min(box.x for box in boxes), min(box.y for box in boxes)
        whole = Box(x, y, max(box.right for box in boxes) - x, max(box.bottom for box in boxes) - y)
        name = f"server{server}" if server not in seen else f"server{server}:{layer:.0f}"
        seen.add(server)
        canvas.node(name, "server", whole.inset(0.05 * cell), label=f"server {server}")


def _reach(plan: FabricPlan) -> int:
    assert plan.rack is not None
    return plan.rack.server[0] * plan.rack.server[1]


def _layer(rank: int, plan: FabricPlan, reach: int) -> int:
    """The layer of a chip within its server, if it stands in the torus."""
    rack = plan.rack
    assert rack is not None
    inside = rank < rack.racks * rack.torus[0] * rack.torus[1] * rack.torus[2]
    return rank % plan.gpus_per_server // reach if inside else 0


# ---- ports ---------------------------------------------------------------------------------------------------------


def _side(torus: Torus, chip: int, direction: Direction) -> Point:
    """Where a port stands around its chip: on the side to which it leads, that of layers above and below in a corner.

    The one port of a dimension of two chips stands on the side of the neighbour.
    """
    dimension, step = direction
    if torus.shape[dimension] == 2 and torus.places[chip % torus.chips][dimension] == 1:
        step = -1
    return ((step, 0.0), (0.0, step), (step, -step))[dimension]


def _at(box: Box, side: Point, cell: float) -> Point:
    x, y = box.middle
    return x + side[0] * cell, y + side[1] * cell


def _unit(side: Point) -> Point:
    length = (side[0] ** 2 + side[1] ** 2) ** 0.5
    return round(side[0] / length, 4), round(side[1] / length, 4)


def _photonic(canvas: Canvas, chips: Mapping[int, Box], switches: Sequence[SwitchPlan]) -> None:
    """Chips on their optical switch, each with its ports near its left and right edges, in rows of two lanes."""
    boxes = {rank: box.inset((1 - _OPTICAL_CHIP) / 2 * box.w) for rank, box in chips.items()}
    lanes = canvas.plan.ports_per_gpu
    ends = []
    for switch in switches:
        for port in switch.ports:
            box = boxes[port.rank]
            x, y = box.middle
            row = port.lane // 2 - (-(-lanes // 2) - 1) / 2
            side = 1 if port.lane % 2 else -1
            at = x + side * _ASIDE * box.w, y + row * 2 * _ASIDE * box.h / max(1, -(-lanes // 2) - 1)
            canvas.host_link(switch, port, ((x + at[0]) / 2, (y + at[1]) / 2), at)
            ends.append((switch, port, at))
    for rank, box in boxes.items():
        canvas.gpu(rank, box)
    for switch, port, at in ends:
        canvas.port(switch, port, at, STRAIGHT)


def _electrical(canvas: Canvas, torus: Torus, chips: Mapping[int, Box]) -> None:
    nodes = {s.name: (s, s.ports[0]) for s in canvas.plan.network("rail") if s.ports}
    ends: dict[tuple[str, int], tuple[Point, Point, float]] = {}
    for link in canvas.plan.links:
        if link.a not in nodes or link.b not in nodes:
            continue
        for name, number in ((link.a, link.a_port), (link.b, link.b_port)):
            rank = nodes[name][1].rank
            side = _side(torus, rank, torus.directions[(number - 2) % len(torus.directions)])
            ends[name, number] = (_at(chips[rank], side, _NODE / 2 * chips[rank].w), side, link.rate_mbps)
        (a, side, _), (b, back, _) = ends[link.a, link.a_port], ends[link.b, link.b_port]
        canvas.link(f"{link.a}-{link.b}", "rail", _route(a, side, b, back, chips[nodes[link.a][1].rank].w))
    for name, (switch, port) in nodes.items():
        box = chips[port.rank]
        canvas.node(name, switch.kind, box.inset((1 - _NODE) / 2 * box.w), label="")
    for switch, port in nodes.values():
        _host(canvas, switch, port, chips[port.rank])
    for (name, number), (at, side, mbps) in ends.items():
        canvas.switch_port(name, number, mbps, at, _unit((-side[0], -side[1])))


def _host(canvas: Canvas, switch: SwitchPlan, port: HostPort, box: Box) -> None:
    """A chip in its node, and the node's port to it in the upper left."""
    chip = box.inset((1 - _CHIP) / 2 * box.w)
    corner = (chip.x - 0.05 * box.w, chip.y - 0.05 * box.w)
    canvas.host_link(switch, port, (chip.x, chip.y), corner)
    canvas.gpu(port.rank, chip)
    canvas.port(switch, port, corner)


def _route(a: Point, side: Point, b: Point, back: Point, cell: float) -> list[Point]:
    """The points of a link: straight to a neighbour, else between the rows or columns of chips, back to the start."""
    if 0 in side and 0 in back and side[0] == -back[0] and side[1] == -back[1]:
        out = 0.09 * cell
        level = 0.46 * cell
        if side[0] * (b[0] - a[0]) < 0:
            x, y = a[0] + side[0] * out, a[1] - level
            return [a, (x, a[1]), (x, y), (b[0] - side[0] * out, y), (b[0] - side[0] * out, b[1]), b]
        if side[1] * (b[1] - a[1]) < 0:
            x, y = a[0] - level, a[1] + side[1] * out
            return [a, (a[0], y), (x, y), (x, b[1] - side[1] * out), (b[0], b[1] - side[1] * out), b]
    return [a, b]


# ---- edge networks ---------------------------------------------------------------------------------------------------


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
