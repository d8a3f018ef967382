"""The mesh by itself: its geometry against the reference, and light that is followed through it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.mesh import Mesh, evenly_spaced, leaving_end

sizes = st.sampled_from([(1, 1), (1, 4), (3, 2), (3, 3), (5, 3), (5, 5), (7, 3)])


@pytest.mark.parametrize(
    "width, height, gates, ports",
    [(3, 3, 35, 28), (5, 5, 88, 44), (7, 3, 73, 44), (7, 7, 165, 60), (9, 9, 266, 76)],
)
def test_gates_and_ports_are_those_of_the_reference(width: int, height: int, gates: int, ports: int) -> None:
    mesh = Mesh(width, height)
    assert (len(mesh.gates), len(mesh.ports)) == (gates, ports)
    assert sum(end < other for end, other in enumerate(mesh.facing)) == (4 * gates - ports) // 2


def test_one_hexagon_is_six_gates_round_a_ring_of_light() -> None:
    mesh = Mesh(1, 1)
    corners = {(round(x, 9), round(y, 9)) for gate in mesh.gates for x, y in (gate.start, gate.end)}
    assert corners == {
        (round(math.cos(math.radians(a)), 9), round(math.sin(math.radians(a)), 9)) for a in range(0, 360, 60)
    }
    # Outside the gates two ports at each corner, inside no end: light in state bar leaves where the same gate ends.
    assert len(mesh.ports) == 12
    for port in range(12):
        assert mesh.trace([False] * 6, port).gates == (mesh.ports[port].gate,)
    # In state cross it goes in, and the next gate turns it out again.
    assert all(len(mesh.trace([True] * 6, port).gates) == 2 for port in range(12))


@given(sizes)
def test_every_gate_is_an_edge_of_unit_length_and_ends_meet_in_pairs(size: tuple[int, int]) -> None:
    mesh = Mesh.of(*size)
    for number, gate in enumerate(mesh.gates):
        assert gate.number == number
        assert math.dist(gate.start, gate.end) == pytest.approx(1)
    degrees = Counter(vertex for gate in mesh.gates for vertex in (gate.a, gate.b))
    assert set(degrees.values()) <= {2, 3}
    # Three gates around a vertex: all six ends meet; two: the outer two ends are ports.
    assert len(mesh.ports) == 2 * sum(degree == 2 for degree in degrees.values())
    for end, other in enumerate(mesh.facing):
        if other >= 0:
            assert mesh.facing[other] == end
            assert other >> 2 != end >> 2
            assert _vertex(mesh, end) == _vertex(mesh, other)
        else:
            assert mesh.ports[-1 - other].end == end


@given(sizes)
def test_ends_that_meet_lie_on_the_side_where_the_gates_are_120_degrees_apart(size: tuple[int, int]) -> None:
    mesh = Mesh.of(*size)
    for end, other in [(end, other) for end, other in enumerate(mesh.facing) if end < other]:
        assert math.dist(_beside(mesh, end), _beside(mesh, other)) < math.dist(
            _beside(mesh, end ^ 1), _beside(mesh, other ^ 1)
        )


@given(sizes)
def test_ports_are_numbered_by_angle_from_the_positive_x_axis(size: tuple[int, int]) -> None:
    mesh = Mesh.of(*size)
    points = [point for gate in mesh.gates for point in (gate.start, gate.end)]
    x = (min(p[0] for p in points) + max(p[0] for p in points)) / 2
    y = (min(p[1] for p in points) + max(p[1] for p in points)) / 2
    angles = [math.atan2(port.place[1] - y, port.place[0] - x) % math.tau for port in mesh.ports]
    assert angles == sorted(angles)
    for port in mesh.ports:
        gate = mesh.gates[port.gate]
        vertex = gate.end if port.end & 2 else gate.start
        assert math.dist(port.place, vertex) == pytest.approx(0.1 * math.sqrt(2))


@given(sizes, st.data())
def test_light_takes_the_same_way_back(size: tuple[int, int], data: st.DataObject) -> None:
    mesh = Mesh.of(*size)
    states = data.draw(st.lists(st.booleans(), min_size=len(mesh.gates), max_size=len(mesh.gates)))
    for port in range(len(mesh.ports)):
        light = mesh.trace(states, port)
        back = mesh.trace(states, light.port_out)
        assert light.port_out != port
        assert (back.port_out, back.gates) == (port, light.gates[::-1])


def test_bar_keeps_the_side_and_cross_changes_it() -> None:
    ends = range(4)  # of a gate: left and right at its first vertex, left and right at its second
    assert [leaving_end(end, False) for end in ends] == [2, 3, 0, 1]
    assert [leaving_end(end, True) for end in ends] == [3, 2, 1, 0]


def test_evenly_spaced_ports_are_those_of_the_reference() -> None:
    assert evenly_spaced(Mesh.of(3, 3), 8) == (0, 3, 7, 10, 14, 17, 21, 24)
    assert evenly_spaced(Mesh.of(3, 3), 28) == tuple(range(28))


def _vertex(mesh: Mesh, end: int) -> int:
    return mesh.gates[end >> 2].b if end & 2 else mesh.gates[end >> 2].a


def _beside(mesh: Mesh, end: int) -> tuple[float, float]:
    """A place on the gate near its vertex, a little to the side of ``end``."""
    gate = mesh.gates[end >> 2]
    dx, dy = gate.end[0] - gate.start[0], gate.end[1] - gate.start[1]
    along, side = (0.8 if end & 2 else 0.2), (-0.1 if end & 1 else 0.1)
    return gate.start[0] + along * dx - side * dy, gate.start[1] + along * dy + side * dx
