"""The drawing of racks of accelerators: the torus seen from above, one sheet for each layer, spares beside it.

In a photonic rack the chips stand on the optical switch, which can join any of their ports, so these stand inside the
chips, and circuits are lines between chips. In an electrical torus each chip stands in its node, whose ports are on the
sides to which they lead; links that close a ring run between the rows and columns of chips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commands.page.view.layout.canvas import HEIGHT, MARGIN, STRAIGHT, WIDTH, Box, Canvas, Point
from railyard.scale import Scale
from topos.plan import FabricPlan, HostPort, RackPlan, SwitchPlan
from topos.torus import Direction, Torus

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
    """Chips in their nodes, with the links between nodes."""
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
