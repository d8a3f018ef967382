"""The drawing of rails: a row of servers with their GPUs, and below it a box for each rail, as wide as the row.

A port of a rail stands below its GPU, so links run straight down and circuits are curves inside the box of their rail.
Many servers stand in several rows, and so do the ports of each rail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commands.page.view.layout.canvas import HEIGHT, MARGIN, UP, WIDTH, Box, Canvas, Point, fitting
from railyard.scale import Scale
from topos.plan import FabricPlan, HostPort, SwitchPlan

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
    """The height of the name of a server."""
    return min(16.0, box.h / 4)


def _bar(box: Box) -> Box:
    """The place of the scale-up switch in a server, below the server's name."""
    return Box(box.x + box.w * 0.03, box.y + _title(box), box.w * 0.94, min(12.0, box.h / 6))


def _scale_up(canvas: Canvas, bar: Box, plugged: Mapping[int, tuple[SwitchPlan, HostPort, Box]]) -> None:
    """Draw a scale-up switch, with a port above each GPU."""
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
