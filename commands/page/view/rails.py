"""The drawing of rails: a row of servers with their GPUs, and below it a box for each rail, as wide as the row.

A port of a rail stands below its GPU, so links run straight down and circuits are curves inside the box of their rail.
Many servers stand in several rows, and so do the ports of each rail.

Rails that are photonic meshes show the honeycomb of gates of each, with the ports where light enters; the servers stand
around a single mesh, each near its port, and in a row above several. Switches that are linked to one another stand in
layers below the servers: a layer holds those that are equally many links away from a server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commands.page.view.canvas import DOWN, HEIGHT, MARGIN, UP, WIDTH, Box, Canvas, Point, fitting
from railyard.scale import Scale
from topos.mesh import Mesh
from topos.plan import FabricPlan, HostPort, MeshPlan, SwitchPlan

GUTTER = 64.0
"""Room for the name of a rail to the left of its ports."""
MOST_IN_A_ROW, MOST_PORTS_IN_A_ROW = 64, 240
_GAP = 10.0


@dataclass(frozen=True)
class Servers:
    """Where the servers and GPUs of a drawing stand: their boxes, and those of the GPUs by rank."""

    servers: list[Box]
    gpus: Mapping[int, Box]
    rows: int
    bottom: float


def rails_drawing(plan: FabricPlan, scale: Scale) -> dict[str, Any]:
    """The drawing of a fabric whose ranks are joined by switches of the network "rail" that are not linked."""
    canvas = Canvas("rails", plan, scale)
    rails = plan.network("rail")
    rows = rows_of(plan)
    servers = place_servers(canvas, GUTTER, WIDTH - MARGIN - GUTTER, MARGIN, _height_of_a_row(len(rails), rows), rows)
    top = servers.bottom + 3 * _GAP
    height = fitting(HEIGHT - top - MARGIN, len(rails), 340.0, 26.0 + 8.0 * rows)
    boxes = [Box(MARGIN, top + place * height, WIDTH - 2 * MARGIN, height - _GAP) for place in range(len(rails))]
    places = [_places(servers, rail, box, plan.gpus_per_server) for rail, box in zip(rails, boxes, strict=True)]
    for rail, points in zip(rails, places, strict=True):
        link_down(canvas, servers, rail, points)
    for rail, box, points in zip(rails, boxes, places, strict=True):
        canvas.node(rail.name, rail.kind, box)
        for port, at in zip(rail.ports, points, strict=True):
            canvas.port(rail, port, at)
    return canvas.drawing(boxes[-1].bottom + MARGIN if boxes else servers.bottom + MARGIN)


def rows_of(plan: FabricPlan) -> int:
    """The number of rows in which the servers stand, so that neither they nor the ports of a rail are too narrow."""
    ports = max((len(rail.ports) for rail in plan.network("rail")), default=0)
    return max(1, -(-plan.servers // MOST_IN_A_ROW), -(-ports // MOST_PORTS_IN_A_ROW))


def _height_of_a_row(rails: int, rows: int) -> float:
    """The height of a row of servers: a third of the drawing for all rows, less beside many rails."""
    return fitting(HEIGHT * (0.3 if rails < 6 else 0.22), rows, 130.0, 26.0)


def place_servers(canvas: Canvas, left: float, width: float, top: float, height: float, rows: int) -> Servers:
    """Draw the servers in ``rows`` rows of ``height`` pixels, with their GPUs and scale-up switches."""
    count = canvas.plan.servers
    area = Box(left, top, width, height * rows)
    cells = area.cells(count, -(-count // rows)) if count else []
    boxes = [cell.inset(min(5.0, cell.w / 8, cell.h / 8)) for cell in cells]
    return Servers(boxes, draw_servers(canvas, boxes), rows, area.bottom)


def draw_servers(canvas: Canvas, boxes: Sequence[Box]) -> dict[int, Box]:
    """Draw each server in its box, with its GPUs and scale-up switch; the boxes of the GPUs by rank."""
    plan = canvas.plan
    scale_up = {port.rank: (switch, port) for switch in plan.network("scale-up") for port in switch.ports}
    gpus: dict[int, Box] = {}
    for number, box in enumerate(boxes):
        canvas.node(f"server{number}", "server", box, label=f"server {number}")
        ranks = range(number * plan.gpus_per_server, (number + 1) * plan.gpus_per_server)
        bar = _bar(box) if any(rank in scale_up for rank in ranks) else None
        used = _title(box) if bar is None else bar.bottom + min(8.0, box.h / 12) - box.y
        inner = Box(box.x, box.y + used, box.w, box.h - used)
        cells = inner.cells(len(ranks), _columns(inner, len(ranks)))
        gpus |= {rank: cell.inset(min(4.0, cell.w / 8, cell.h / 8)) for rank, cell in zip(ranks, cells, strict=True)}
        if bar is not None:
            _scale_up(canvas, bar, {rank: (*scale_up[rank], gpus[rank]) for rank in ranks if rank in scale_up})
        for rank in ranks:
            canvas.gpu(rank, gpus[rank])
    return gpus


def _columns(box: Box, count: int) -> int:
    """The number of columns of GPUs in a server: one row where that leaves each 12 pixels, else nearly square cells."""
    if box.w / count >= 12:
        return count
    even = [n for n in range(1, count + 1) if count % n == 0]
    return min(even, key=lambda n: abs(box.w / n - box.h * n / count))


def _title(box: Box) -> float:
    return min(16.0, box.h / 4)


def _bar(box: Box) -> Box:
    """The place of the scale-up switch in a server, below the server's name."""
    return Box(box.x + box.w * 0.03, box.y + _title(box), box.w * 0.94, min(12.0, box.h / 6))


def _scale_up(canvas: Canvas, bar: Box, plugged: Mapping[int, tuple[SwitchPlan, HostPort, Box]]) -> None:
    switch = next(iter(plugged.values()))[0]
    places = [bar.x + (i + 0.5) * bar.w / len(plugged) for i in range(len(plugged))]
    for x, (_, port, gpu) in zip(places, plugged.values(), strict=True):
        canvas.host_link(switch, port, (gpu.middle[0], gpu.y), (x, bar.bottom))
    canvas.node(switch.name, switch.kind, bar)
    for x, (_, port, _) in zip(places, plugged.values(), strict=True):
        canvas.port(switch, port, (x, bar.bottom), UP)


def _places(servers: Servers, rail: SwitchPlan, box: Box, gpus_per_server: int) -> list[Point]:
    """Where the ports of a rail stand: each below its GPU if they keep 6 pixels apart, else below its server."""
    columns = -(-len(servers.servers) // servers.rows)
    by_server: dict[int, list[int]] = {}
    for port in rail.ports:
        by_server.setdefault(port.rank // gpus_per_server, []).append(port.rank)
    passed: dict[int, int] = {}
    places: list[Point] = []
    for port in rail.ports:
        number = port.rank // gpus_per_server
        server, gpu, ranks = servers.servers[number], servers.gpus[port.rank], by_server[number]
        row = number // columns
        lanes = ranks.count(port.rank)
        if gpu.w / lanes >= 6:
            shift = (passed.get(port.rank, 0) + 0.5 - lanes / 2) * min(24.0, gpu.w / lanes)
            x = gpu.middle[0] + shift
        else:
            place = sum(passed.get(rank, 0) for rank in set(ranks))
            x = server.x + (place + 0.5) * server.w / len(ranks)
        passed[port.rank] = passed.get(port.rank, 0) + 1
        y = box.y + 6.0 if servers.rows == 1 else box.y + (row + 0.3) * box.h / servers.rows
        places.append((x, y))
    return places


def link_down(canvas: Canvas, servers: Servers, rail: SwitchPlan, points: Sequence[Point]) -> None:
    """Draw the links from the lower edges of the GPUs to the ports of a switch, straight down where a port is below."""
    for port, (x, y) in zip(rail.ports, points, strict=True):
        gpu = servers.gpus[port.rank]
        start = min(max(x, gpu.x), gpu.right)
        canvas.host_link(rail, port, (start, gpu.bottom), (x, y))


# ---- linked switches -------------------------------------------------------------------------------------------------


_BETWEEN = 0.1
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
            x, y = MARGIN + (place + _BETWEEN / 2) * wide, servers.bottom + (number + 0.45) * height
            boxes[name] = Box(x, y, wide * (1 - _BETWEEN), height * 0.5)
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


# ---- meshes ----------------------------------------------------------------------------------------------------------


_MARGIN = 0.8
"""Space around the vertices of a honeycomb for its ports, in edges."""
_OUTWARD, _APART = 0.3, 0.18
"""Distance of a port outside its vertex and to its side, in edges."""
_MOST_AROUND = 44
_SERVER_WIDTH, _SERVER_HEIGHT = 92.0, 56.0
"""Room for a server beside a mesh, in pixels."""


@dataclass(frozen=True)
class Honeycomb:
    """Where the parts of a mesh stand: its ports, in which direction light enters there, and its gates."""

    ports: Sequence[Point]
    inward: Sequence[Point]
    gates: Sequence[tuple[Point, Point]]


def mesh_drawing(plan: FabricPlan, scale: Scale) -> dict[str, Any]:
    """The drawing of rails each of which is a photonic mesh, or any switch beside such ones."""
    canvas = Canvas("mesh", plan, scale)
    rails = plan.network("rail")
    if len(rails) == 1 and plan.servers <= _MOST_AROUND and len(rails[0].ports) >= plan.servers:
        return _around(canvas, rails[0])
    rows = rows_of(plan)
    height = fitting(HEIGHT * 0.2, rows, 100.0, 26.0)
    servers = place_servers(canvas, MARGIN, WIDTH - 2 * MARGIN, MARGIN, height, rows)
    area = Box(MARGIN, servers.bottom + 30, WIDTH - 2 * MARGIN, max(HEIGHT - servers.bottom - 30 - MARGIN, 200.0))
    columns = _mesh_columns(rails, area)
    area = Box(area.x, area.y, area.w, max(area.h, 150.0 * -(-len(rails) // columns)))
    for rail, cell in zip(rails, area.cells(len(rails), columns), strict=True):
        box = cell.inset(5.0)
        placed = _honeycomb(rail, box)
        link_down(canvas, servers, rail, placed.ports)
        _draw(canvas, rail, box, placed)
    return canvas.drawing(area.bottom + MARGIN)


def _around(canvas: Canvas, rail: SwitchPlan) -> dict[str, Any]:
    frame = Box(MARGIN, MARGIN, WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
    box = Box(
        frame.x + _SERVER_WIDTH + 30, frame.y + _SERVER_HEIGHT + 24, frame.w - 2 * _SERVER_WIDTH - 60,
        frame.h - 2 * _SERVER_HEIGHT - 48,
    )  # fmt: skip
    placed = _honeycomb(rail, box)
    gpus = draw_servers(canvas, _near(canvas.plan, rail, list(_slots(frame, canvas.plan.servers)), placed.ports))
    for port, at in zip(rail.ports, placed.ports, strict=True):
        gpu = gpus[port.rank]
        start = min(max(at[0], gpu.x), gpu.right), min(max(at[1], gpu.y), gpu.bottom)
        canvas.host_link(rail, port, start, at)
    _draw(canvas, rail, box, placed)
    return canvas.drawing(HEIGHT)


def _slots(frame: Box, count: int) -> Iterator[Box]:
    """``count`` places along the edges of ``frame``, counter-clockwise from the lower right corner."""
    beside = max(1, min(math.ceil(count * 0.2), int((frame.h - 2 * _SERVER_HEIGHT) / 24)))
    above = max(1, -(-(count - 2 * beside) // 2))
    wide, high = frame.w / above, (frame.h - 2 * _SERVER_HEIGHT) / beside
    right = [
        Box(frame.right - _SERVER_WIDTH, frame.bottom - _SERVER_HEIGHT - (i + 1) * high, _SERVER_WIDTH, high)
        for i in range(beside)
    ]
    top = [Box(frame.right - (i + 1) * wide, frame.y, wide, _SERVER_HEIGHT) for i in range(above)]
    left = [Box(frame.x, frame.y + _SERVER_HEIGHT + i * high, _SERVER_WIDTH, high) for i in range(beside)]
    bottom = [Box(frame.x + i * wide, frame.bottom - _SERVER_HEIGHT, wide, _SERVER_HEIGHT) for i in range(above)]
    slots = [*right, *top, *left, *bottom]
    for number in range(count):
        slot = slots[number * len(slots) // count]
        w, h = min(slot.w - 6, _SERVER_WIDTH), min(slot.h - 6, _SERVER_HEIGHT)
        yield Box(slot.middle[0] - w / 2, slot.middle[1] - h / 2, w, h)


def _near(plan: FabricPlan, rail: SwitchPlan, slots: Sequence[Box], ports: Sequence[Point]) -> list[Box]:
    """The slot of each server: in the order of the angles of their first ports, so that the links are shortest."""
    first: dict[int, Point] = {}
    for port, at in zip(rail.ports, ports, strict=True):
        first.setdefault(port.rank // plan.gpus_per_server, at)
    order = sorted(range(plan.servers), key=lambda server: _angle(first.get(server, (0.0, 0.0))))
    around = sorted(slots, key=lambda slot: _angle(slot.middle))

    def length(shift: int) -> float:
        pairs = ((first.get(server), around[(i + shift) % len(around)]) for i, server in enumerate(order))
        return sum(math.dist(at, slot.middle) for at, slot in pairs if at is not None)

    shift = min(range(len(around)), key=length)
    found = {server: around[(i + shift) % len(around)] for i, server in enumerate(order)}
    return [found[server] for server in range(plan.servers)]


def _angle(at: Point) -> float:
    """The angle of a point around the middle of the drawing."""
    return math.atan2(HEIGHT / 2 - at[1], at[0] - WIDTH / 2)


def _draw(canvas: Canvas, rail: SwitchPlan, box: Box, placed: Honeycomb) -> None:
    canvas.node(rail.name, rail.kind, box)
    for number, gate in enumerate(placed.gates):
        canvas.link(f"{rail.name}/gate{number}", "mesh", gate)
    for port, at, inward in zip(rail.ports, placed.ports, placed.inward, strict=True):
        canvas.port(rail, port, at, inward)


def _mesh_columns(rails: tuple[SwitchPlan, ...], area: Box) -> int:
    """The number of rails side by side with which they are largest."""
    sizes = [_size(Mesh.of(rail.mesh.width, rail.mesh.height)) for rail in rails if rail.mesh is not None]
    wide, high = max(w for w, _ in sizes), max(h for _, h in sizes)
    return max(range(1, len(rails) + 1), key=lambda n: min(area.w / n / wide, area.h / -(-len(rails) // n) / high))


def _size(mesh: Mesh) -> Point:
    """Width and height of a honeycomb with its margin, in edges."""
    xs, ys = _extent(mesh)
    return xs[1] - xs[0] + 2 * _MARGIN, ys[1] - ys[0] + 2 * _MARGIN


def _extent(mesh: Mesh) -> tuple[Point, Point]:
    """The least and the largest x and y of the vertices."""
    xs = [x for gate in mesh.gates for x, _ in (gate.start, gate.end)]
    ys = [y for gate in mesh.gates for _, y in (gate.start, gate.end)]
    return (min(xs), max(xs)), (min(ys), max(ys))


def _honeycomb(rail: SwitchPlan, box: Box) -> Honeycomb:
    """Where the parts of a rail stand in its box; the ports of one that is no mesh stand in a row."""
    if rail.mesh is None:
        places = [(box.x + (i + 0.5) * box.w / len(rail.ports), box.y + 6) for i in range(len(rail.ports))]
        return Honeycomb(places, [DOWN] * len(places), ())
    return _placed(rail.mesh, box)


def _placed(plan: MeshPlan, box: Box) -> Honeycomb:
    """The honeycomb of a mesh, as large as its box allows."""
    mesh = Mesh.of(plan.width, plan.height)
    (left, right), (low, high) = _extent(mesh)
    wide, tall = _size(mesh)
    edge = min(box.w / wide, box.h / tall)
    x0, y0 = box.middle[0] - (left + right) / 2 * edge, box.middle[1] + (low + high) / 2 * edge

    def placed(point: Point) -> Point:
        return x0 + point[0] * edge, y0 - point[1] * edge

    ports = [placed(_port_place(mesh, number)) for number in plan.ports]
    inward = [_unit(box.middle[0] - x, box.middle[1] - y) for x, y in ports]
    return Honeycomb(ports, inward, [(placed(gate.start), placed(gate.end)) for gate in mesh.gates])


def _unit(x: float, y: float) -> Point:
    length = math.hypot(x, y) or 1.0
    return round(x / length, 4), round(y / length, 4)


def _port_place(mesh: Mesh, number: int) -> Point:
    """Where a port stands outside its vertex, in edges."""
    port = mesh.ports[number]
    gate, end = mesh.gates[port.gate], port.end
    vertex, other = (gate.end, gate.start) if end & 2 else (gate.start, gate.end)
    along = (gate.end[0] - gate.start[0], gate.end[1] - gate.start[1])
    sign = -1 if end & 1 else 1
    aside = (-along[1] * sign, along[0] * sign)
    x, y = (v + _OUTWARD * (v - o) + _APART * s for v, o, s in zip(vertex, other, aside, strict=True))
    return x, y
