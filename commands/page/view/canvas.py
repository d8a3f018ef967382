"""The drawing of a fabric under construction: boxes, ports and links in CSS pixels, x to the right and y downwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from railyard.scale import Scale
from topos.plan import FabricPlan, HostPort, SwitchPlan

WIDTH, HEIGHT = 1000.0, 562.0
"""Width of every drawing, and the height that its content is fitted to where it can, in pixels (16:9)."""
LEAST_HEIGHT = 240.0
MARGIN = 8.0
DOWN, UP, STRAIGHT = (0.0, 1.0), (0.0, -1.0), (0.0, 0.0)
"""Directions in which circuits leave a port; straight to the other port."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle: its upper left corner, width and height."""

    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> Point:
        return self.x + self.w / 2, self.y + self.h / 2

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def right(self) -> float:
        return self.x + self.w

    def inset(self, by: float) -> Box:
        """The rectangle without a strip of ``by`` pixels at each edge, which is at most a third of the box."""
        dx, dy = min(by, self.w / 3), min(by, self.h / 3)
        return Box(self.x + dx, self.y + dy, self.w - 2 * dx, self.h - 2 * dy)

    def cells(self, count: int, columns: int) -> list[Box]:
        """``count`` equal cells in rows of ``columns``, from the upper left on."""
        rows = -(-count // columns)
        w, h = self.w / columns, self.h / rows
        return [Box(self.x + i % columns * w, self.y + i // columns * h, w, h) for i in range(count)]


class Canvas:
    """Collects the nodes, ports and links of a drawing; what is added first lies below."""

    def __init__(self, kind: str, plan: FabricPlan, scale: Scale) -> None:
        self.kind, self.plan = kind, plan
        self.largest_port = 10.0
        self._scale = scale
        self._nodes: list[dict[str, Any]] = []
        self._ports: list[dict[str, Any]] = []
        self._links: list[dict[str, Any]] = []
        self._tenants = {r: t.name for t in (plan.rack.tenants if plan.rack else ()) for r in t.ranks}

    def node(self, name: str, kind: str, box: Box, *, label: str | None = None, rank: int | None = None) -> None:
        """Add a box; ``label`` is the text in it (default: its ``name``)."""
        node = {"id": name, "kind": kind, "rank": rank, "name": name if label is None else label, **_rounded(box)}
        if rank in self._tenants:
            node["tenant"] = self._tenants[rank]
        self._nodes.append(node)

    def gpu(self, rank: int, box: Box) -> None:
        """Add the box of a rank's accelerator, of kind ``spare`` if the plan keeps it free."""
        kind = "spare" if rank in self.plan.spares else "gpu"
        self.node(self.plan.hosts[rank], kind, box, label=str(rank), rank=rank)

    def port(self, switch: SwitchPlan, port: HostPort, at: Point, inward: Point = DOWN) -> None:
        """Add the port of a host on a switch; ``inward`` is the direction in which its circuits leave it."""
        self._port(
            switch.name, port.number, at, inward, self._gbps(port.rate_mbps), port.rank, port.lane, port.interface
        )

    def switch_port(self, switch: str, number: int, mbps: float, at: Point, inward: Point = DOWN) -> None:
        self._port(switch, number, at, inward, self._gbps(mbps), None, None, None)

    def _port(
        self,
        switch: str,
        number: int,
        at: Point,
        inward: Point,
        gbps: float,
        rank: int | None,
        lane: int | None,
        interface: str | None,
    ) -> None:
        self._ports.append(
            {
                "id": f"{switch}:{number}",
                "switch": switch,
                "number": number,
                "rank": rank,
                "lane": lane,
                "interface": interface,
                "gbps": gbps,
                "x": round(at[0], 2),
                "y": round(at[1], 2),
                "nx": inward[0],
                "ny": inward[1],
            }
        )

    def link(self, name: str, network: str, points: Sequence[Point], interface: str | None = None) -> None:
        """Add a link through ``points``; ``interface`` is the host's, whose traffic is known."""
        path = [[round(x, 2), round(y, 2)] for x, y in points]
        link: dict[str, Any] = {"id": name, "interface": interface, "network": network, "name": name}
        link |= {"from": path[0], "to": path[-1]}
        if len(path) > 2:
            link["path"] = path
        self._links.append(link)

    def host_link(self, switch: SwitchPlan, port: HostPort, start: Point, end: Point) -> None:
        """Add the link of a host's port, from its accelerator at ``start`` to the switch at ``end``."""
        self.link(port.interface, switch.network, (start, end), port.interface)

    def drawing(self, height: float) -> dict[str, Any]:
        """The finished drawing, of ``height`` pixels or the least height."""
        return {
            "kind": self.kind,
            "width": WIDTH,
            "height": round(max(height, LEAST_HEIGHT), 1),
            "nodes": self._nodes,
            "ports": _sized(self._ports, self.largest_port),
            "links": self._links,
        }

    def _gbps(self, mbps: float) -> float:
        return mbps / 1000 / self._scale.rate


def _rounded(box: Box) -> Mapping[str, float]:
    return {"x": round(box.x, 2), "y": round(box.y, 2), "w": round(box.w, 2), "h": round(box.h, 2)}


def _sized(ports: Sequence[dict[str, Any]], most: float) -> list[dict[str, Any]]:
    """The ports with their ``size``, at which those of a switch do not touch, ``most`` at most.

    It is two thirds of the least distance of ports that were added one after another.
    """
    least: dict[str, float] = {}
    for one, other in pairwise(sorted(ports, key=lambda port: str(port["switch"]))):
        if one["switch"] == other["switch"]:
            apart = max(abs(one["x"] - other["x"]), abs(one["y"] - other["y"]))
            least[one["switch"]] = min(least.get(one["switch"], 1.5 * most), apart)
    return [port | {"size": round(least.get(port["switch"], 1.5 * most) * 2 / 3, 2)} for port in ports]


def fitting(total: float, count: int, most: float, least: float) -> float:
    """The size of each of ``count`` things that share ``total`` pixels, from ``least`` to ``most``."""
    return min(most, max(least, total / max(count, 1)))
