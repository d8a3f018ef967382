from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve

from controllers.mesh.negotiation import route
from experiments.mesh.figure import MeshPicture, bend, mesh_figure, path_of_light, place, port_place
from measure.figures.style import render
from topos.mesh import Mesh, evenly_spaced

SIZES = [(1, 1), (3, 3), (7, 3), (9, 9)]


def picture(mesh: Mesh, n: int = 4) -> MeshPicture:
    ports = evenly_spaced(mesh, n)
    routed = route(mesh, list(zip(ports[: n // 2], ports[n // 2 :], strict=True)))
    assert routed is not None
    return MeshPicture("across", routed.states, tuple(routed.paths))


def numbers(figure: Figure) -> dict[str, tuple[float, float]]:
    return {text.get_text(): text.get_position() for text in figure.axes[0].texts}


@pytest.mark.parametrize(("width", "height"), SIZES[1:])  # light goes round a single hexagon one way only
def test_light_is_drawn_from_port_to_partner_without_a_gap(width: int, height: int) -> None:
    mesh = Mesh(width, height)
    lit = picture(mesh)
    for a, b in lit.pairs:
        curve, out = path_of_light(mesh, lit.states, a)
        assert out == b
        points = np.asarray(curve.vertices)
        assert points[0] == pytest.approx(port_place(mesh, a))
        assert points[-1] == pytest.approx(port_place(mesh, b))
        assert list(curve.codes).count(Curve.MOVETO) == 1  # type: ignore[arg-type]


def test_the_light_crosses_the_gates_that_are_traced() -> None:
    """The middle of every crossed gate is on the curve where the gate crosses, beside it where it is bar."""
    mesh = Mesh(5, 5)
    lit = picture(mesh, 8)
    for a, _ in lit.pairs:
        curve, _ = path_of_light(mesh, lit.states, a)
        (points,) = curve.to_polygons(closed_only=False)
        for number in mesh.trace(lit.states, a).gates:
            gate = mesh.gates[number]
            middle = (np.array(gate.start) + np.array(gate.end)) / 2
            nearest = min(float(np.hypot(*(point - middle))) for point in dense(points))
            assert nearest == pytest.approx(0.0 if lit.states[number] else 0.125, abs=0.03)


def dense(points: Any) -> Any:
    steps = np.linspace(0, 1, 20)[:, None]
    return np.concatenate([a + (b - a) * steps for a, b in pairwise(points)])


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_waveguides_meet_and_numbers_do_not(width: int, height: int) -> None:
    mesh = Mesh(width, height)
    for end, other in [(end, other) for end, other in enumerate(mesh.facing) if end < other]:
        assert bend(mesh, end)[0][0] == pytest.approx(bend(mesh, other)[0][0])  # both turn at the same point
        assert np.hypot(*(place(mesh, end) - place(mesh, other))) < 0.5
    places = [port_place(mesh, port.number) for port in mesh.ports]
    assert min(float(np.hypot(*(p - q))) for p, q in combinations(places, 2)) > 0.4  # two discs of 0.2
    for port, at in zip(mesh.ports, places, strict=True):
        assert np.hypot(*(at - np.array(port.place))) < 0.6


def test_a_panel_shows_all_ports_and_a_legend_the_lengths() -> None:
    mesh = Mesh(3, 3)
    lit = picture(mesh)
    figure = mesh_figure(mesh, [lit], "3 x 3")
    assert set(numbers(figure)) == {str(port) for port in range(28)}
    said = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for a, b in lit.pairs:
        gates = len(mesh.trace(lit.states, a).gates)
        assert f"{a} – {b}: {gates} gates" in said
    assert {"bar", "cross"} <= set(said)
    lines = [p for p in figure.axes[0].patches if isinstance(p, PathPatch) and p.get_zorder() >= 3]
    assert len(lines) == 2 * len(lit.pairs)  # a white one below each


@pytest.mark.parametrize("panels", [2, 7])
def test_panels_do_not_overlap(panels: int) -> None:
    mesh = Mesh(3, 3)
    figure = mesh_figure(mesh, [MeshPicture(str(k), (False,) * 35, ()) for k in range(panels)], "many")
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == panels
    assert all(min(box.x0, box.y0) >= 0 and max(box.x1, box.y1) <= 1.0001 for box in boxes)
    for one, other in combinations(boxes, 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(across, down) < 1e-9


def test_both_forms_and_the_same_bytes_again() -> None:
    mesh = Mesh(3, 3)
    first, second = (render(mesh_figure(mesh, [picture(mesh)], "3 x 3"), "svg") for _ in range(2))
    assert first == second
    root = ElementTree.fromstring(first)
    assert root.tag.endswith("svg")
    assert render(mesh_figure(mesh, [picture(mesh)]), "png").startswith(b"\x89PNG")
