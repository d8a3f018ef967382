"""The drawing of rails that are photonic meshes: the honeycomb of gates of each, with the ports where light enters.

The servers stand around a single mesh, each near its port, and in a row above several. A gate is a link of the network
"mesh" between two vertices of the honeycomb.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commands.page.view.layout.canvas import DOWN, HEIGHT, MARGIN, WIDTH, Box, Canvas, Point, fitting
from commands.page.view.layout.rails import draw_servers, link_down, place_servers, rows_of
from railyard.scale import Scale
from topos.mesh import Mesh
from topos.plan import FabricPlan, MeshPlan, SwitchPlan

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
    columns = _columns(rails, area)
    area = Box(area.x, area.y, area.w, max(area.h, 150.0 * -(-len(rails) // columns)))
    for rail, cell in zip(rails, area.cells(len(rails), columns), strict=True):
        box = cell.inset(5.0)
        placed = _honeycomb(rail, box)
        link_down(canvas, servers, rail, placed.ports)
        _draw(canvas, rail, box, placed)
    return canvas.drawing(area.bottom + MARGIN)


def _around(canvas: Canvas, rail: SwitchPlan) -> dict[str, Any]:
    """The drawing of a single mesh, with its servers around it."""
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
    """Draw a rail: its box, its gates and its ports."""
    canvas.node(rail.name, rail.kind, box)
    for number, gate in enumerate(placed.gates):
        canvas.link(f"{rail.name}/gate{number}", "mesh", gate)
    for port, at, inward in zip(rail.ports, placed.ports, placed.inward, strict=True):
        canvas.port(rail, port, at, inward)


def _columns(rails: tuple[SwitchPlan, ...], area: Box) -> int:
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
