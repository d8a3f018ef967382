"""A programmable photonic mesh: optical gates on the edges of a honeycomb, and the path of light through them.

The geometry is that of the hexagonal meshes of programmable integrated photonics (arXiv 2501.18136): a gate, which is
a 2x2 optical gate, on every edge of ``width`` columns of hexagons. ``controllers.mesh`` computes configurations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from railyard.errors import ConfigError

Point = tuple[float, float]

MOST_HEXAGONS = 31
"""Largest width or height of a mesh: nearly 3000 gates, ten times the largest mesh that has been routed."""

PORT_OFFSET = 0.1
"""Distance of a port from its vertex, along and across the gate (edge lengths); it only orders ports by angle."""


@dataclass(frozen=True)
class Gate:
    """An optical gate on the edge between the vertices ``a`` and ``b`` of the honeycomb.

    ``a`` and ``b`` are vertex numbers, ``start`` and ``end`` the positions of the vertices in edge lengths. Two
    waveguides reach the gate at each vertex, on the left and on the right as seen from ``a`` to ``b``. Its four ends
    are numbered ``4 * number + 2 * (at b) + (on the right)``.
    """

    number: int
    a: int
    b: int
    start: Point
    end: Point


@dataclass(frozen=True)
class Port:
    """A port of the mesh, an end joined to no other gate; ``end`` as in ``Gate``, ``place`` in edge lengths.

    Ports are numbered by their angle around the centre of the mesh.
    """

    number: int
    end: int
    place: Point

    @property
    def gate(self) -> int:
        """Number of the gate that light entering at this port reaches first."""
        return self.end >> 2


@dataclass(frozen=True)
class LightPath:
    """The path of light through a mesh: its output port and the gates in order (a gate can occur twice)."""

    port_out: int
    gates: tuple[int, ...]


def leaving_end(end: int, crossed: bool) -> int:
    """The end by which light leaves a gate that it enters at ``end``: at the other vertex, in state bar on the same
    side, in state cross (``crossed``) on the other.
    """
    return end ^ (3 if crossed else 2)


class Mesh:
    """A mesh of ``width`` columns of flat-top hexagons.

    Even columns have ``height`` hexagons; odd ones have ``height - 1`` and start half a hexagon higher. ``gates`` are
    ordered by column and row, ``ports`` counter-clockwise by their angle around the centre from the positive x axis.
    ``facing[end]`` is the end of another gate that shares a waveguide with ``end``, or ``-1 - port`` for a port.

    Raises ``ConfigError`` for an even width, and for a width or height that is not from 1 to ``MOST_HEXAGONS``.
    """

    def __init__(self, width: int, height: int) -> None:
        _check_size(width, height)
        self.width = width
        self.height = height
        self.gates: tuple[Gate, ...] = _gates(width, height)
        meeting = _meeting_ends(self.gates)
        self.ports: tuple[Port, ...] = _ports(self.gates, [e for e in range(4 * len(self.gates)) if e not in meeting])
        outside = {port.end: -1 - port.number for port in self.ports}
        self.facing: tuple[int, ...] = tuple(
            meeting[end] if end in meeting else outside[end] for end in range(4 * len(self.gates))
        )

    @staticmethod
    @lru_cache(maxsize=16)
    def of(width: int, height: int) -> Mesh:
        return Mesh(width, height)

    def __repr__(self) -> str:
        return f"Mesh({self.width}, {self.height})"

    def onward(self, end: int, crossed: bool) -> int:
        """Where light goes that enters a gate at ``end``, with the gate in state cross or bar; as ``facing``."""
        return self.facing[leaving_end(end, crossed)]

    def check_ports(self, ports: Iterable[int], key: str = "ports") -> None:
        for port in ports:
            if port not in range(len(self.ports)):
                raise ConfigError(
                    f"port {port} is not on a mesh of {self.width} x {self.height}; its ports are 0 to "
                    f"{len(self.ports) - 1}",
                    key=key,
                )

    def trace(self, states: Sequence[bool], port: int) -> LightPath:
        """The path of light that enters at ``port``; gate i is in state cross where ``states[i]``, else in state bar.

        Every gate permutes its ends, so the light always leaves, and by another port. Raises ``ConfigError`` for an
        unknown port, or unless there is one state per gate.
        """
        if len(states) != len(self.gates):
            raise ConfigError(
                f"{len(states)} states for {len(self.gates)} gates; give one per gate of a mesh of "
                f"{self.width} x {self.height}",
                key="states",
            )
        self.check_ports([port], "port")
        end, crossed = self.ports[port].end, []
        while end >= 0:
            crossed.append(end >> 2)
            end = self.onward(end, states[end >> 2])
        return LightPath(-1 - end, tuple(crossed))


def evenly_spaced(mesh: Mesh, n: int) -> tuple[int, ...]:
    """``n`` evenly spaced ports of the P of a mesh: the k-th is port ``floor(k P / n)``.

    Raises ``ConfigError`` unless ``n`` is from 1 to P.
    """
    if not 1 <= n <= len(mesh.ports):
        raise ConfigError(
            f"{n} ports asked of a mesh of {mesh.width} x {mesh.height}; it has {len(mesh.ports)}, so ask for 1 to "
            f"{len(mesh.ports)}",
            key="ports",
        )
    return tuple(k * len(mesh.ports) // n for k in range(n))


def _check_size(width: int, height: int) -> None:
    for key, value in (("width", width), ("height", height)):
        if not 1 <= value <= MOST_HEXAGONS:
            raise ConfigError(f"must be from 1 to {MOST_HEXAGONS} hexagons, not {value}", key=key)
    if width % 2 == 0:
        raise ConfigError(f"must be odd, not {width}, since the first and the last column are full ones", key="width")
    if height == 1 and width > 1:
        raise ConfigError(
            "must be at least 2 if there are several columns, since every second one has a hexagon less", key="height"
        )


def _gates(width: int, height: int) -> tuple[Gate, ...]:
    """The gates, one per edge of the honeycomb, ordered by the middle of the edge: x, then y."""
    # Integers, so that positions compare exactly: x in half edges, y in half heights of a hexagon.
    corners = ((2, 0), (1, 1), (-1, 1), (-2, 0), (-1, -1), (1, -1))
    edges: set[tuple[tuple[int, int], tuple[int, int]]] = set()
    for column in range(width):
        for row in range(height - column % 2):
            x, y = 3 * column, 2 * row + column % 2
            around = [(x + dx, y + dy) for dx, dy in corners]
            edges.update((min(p, q), max(p, q)) for p, q in zip(around, around[1:] + around[:1], strict=True))
    number = {vertex: i for i, vertex in enumerate(sorted({v for edge in edges for v in edge}))}
    ordered = sorted(edges, key=lambda e: (e[0][0] + e[1][0], e[0][1] + e[1][1]))
    return tuple(Gate(i, number[p], number[q], _place(p), _place(q)) for i, (p, q) in enumerate(ordered))


def _place(vertex: tuple[int, int]) -> Point:
    return vertex[0] / 2, vertex[1] * math.sqrt(3) / 2


def _meeting_ends(gates: Iterable[Gate]) -> dict[int, int]:
    """For every end that shares a waveguide with an end of another gate: that other end."""
    around: dict[int, list[tuple[float, int, int]]] = {}
    for gate in gates:
        angle = math.degrees(math.atan2(gate.end[1] - gate.start[1], gate.end[0] - gate.start[0]))
        # Seen from the vertex along the gate: the angle, the end on the left, the end on the right.
        around.setdefault(gate.a, []).append((round(angle) % 360, 4 * gate.number, 4 * gate.number + 1))
        around.setdefault(gate.b, []).append((round(angle + 180) % 360, 4 * gate.number + 3, 4 * gate.number + 2))
    meeting: dict[int, int] = {}
    for fan in around.values():
        for angle, left, _ in fan:
            for other, _, right in fan:
                if (other - angle) % 360 == 120:
                    meeting[left], meeting[right] = right, left
    return meeting


def _ports(gates: Sequence[Gate], ends: Iterable[int]) -> tuple[Port, ...]:
    places = {end: _port_place(gates[end >> 2], end) for end in ends}
    xs = [x for gate in gates for x, _ in (gate.start, gate.end)]
    ys = [y for gate in gates for _, y in (gate.start, gate.end)]
    middle = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2

    def angle(end: int) -> float:
        x, y = places[end]
        return round(math.atan2(y - middle[1], x - middle[0]) % math.tau, 9)

    return tuple(Port(i, end, places[end]) for i, end in enumerate(sorted(places, key=angle)))


def _port_place(gate: Gate, end: int) -> Point:
    """The vertex of ``end``, moved by ``PORT_OFFSET`` outward along the gate and to the side of the end."""
    along = gate.end[0] - gate.start[0], gate.end[1] - gate.start[1]
    vertex, outward = (gate.end, 1) if end & 2 else (gate.start, -1)
    side = -1 if end & 1 else 1
    return (
        vertex[0] + PORT_OFFSET * (outward * along[0] - side * along[1]),
        vertex[1] + PORT_OFFSET * (outward * along[1] + side * along[0]),
    )
