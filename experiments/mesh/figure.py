"""Figure of a photonic mesh: its waveguides, the state of every gate (bar or cross), and the light of a matching.

A gate is drawn as two waveguides along an edge of the honeycomb that stay apart (bar) or change sides (cross), so each
path of light can be followed from port to port.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, PathPatch, Polygon
from matplotlib.path import Path as Curve
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray

from controllers.mesh.switch import STATES
from experiments.mesh.row import routable_in_words
from measure.figures.looks import BAR, CROSS, FAINT, GUIDE, PALE_NUMBER, PATHS, TEXT, WHITE
from measure.figures.style import COLUMN, PAGE, SMALL, TITLE, render
from measure.results.row import Row
from railyard.errors import ConfigError
from railyard.ownership import naming, open_binary
from topos.mesh import Mesh, leaving_end

Vector = NDArray[np.float64]
Part = tuple[list[Vector], list[int]]
"""Points and matplotlib codes of a part of a curve, which begins where the part before it ended."""

_MOVE, _LINE, _CURVE3, _CURVE4 = (int(c) for c in (Curve.MOVETO, Curve.LINETO, Curve.CURVE3, Curve.CURVE4))

OFFSET, INSET = 0.125, 0.22
"""Distance of a waveguide from the middle of its gate, and of a gate's ends from its vertices, where bends begin, in
edges."""
OUTWARD, APART, DISC = 0.52, 0.25, 0.24
"""Distance of a port's number outside its vertex and to the side of it, and radius of the number's disc, in edges."""
MARGIN = 0.95
"""Margin around the vertices for the port numbers, in edges."""
HEAD, CAPTION, FOOT, LEGEND = 0.26, 0.2, 0.3, 1.25
"""Space for the title of a figure, the title of a panel, the legend of gates below and that of paths beside, in
inches."""
_DPI = 200
"""Pixels per inch of drawings, which have much detail."""
PALE = 0.45
"""Opacity of gates without light."""


@dataclass(frozen=True)
class MeshPicture:
    """One panel: ``states[c]`` of every gate c (True: cross), and the pairs of ports whose light is shown."""

    title: str
    states: Sequence[bool]
    pairs: Sequence[tuple[int, int]]


def mesh_figure(mesh: Mesh, pictures: Sequence[MeshPicture], title: str = "") -> Figure:
    """Figure with a panel for each configuration of ``mesh`` under a common ``title``; one panel has a legend of paths.

    The size of the figure follows from the number of panels and gates, so that port numbers stay readable.
    """
    alone = len(pictures) == 1
    head = HEAD if title else 0.0
    scale = _inches_per_edge(mesh, alone)
    wide, high = _width(mesh) * scale, _height(mesh) * scale + CAPTION
    columns = _columns(len(pictures), wide / high)
    width = columns * wide + (LEGEND if alone else 0.0)
    height = -(-len(pictures) // columns) * high + FOOT + head
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        bottom = height - head - (row + 1) * high
        axes = figure.add_axes((column * wide / width, bottom / height, wide / width, (high - CAPTION) / height))
        axes.set_title(picture.title, loc="left", x=0.15 / wide, fontsize=TITLE, color=TEXT, pad=2)
        _panel(axes, mesh, picture, 72 * scale)
    if title:
        figure.text(0.15 / width, 1 - 0.08 / height, title, fontsize=TITLE, color=TEXT, fontweight="bold", va="top")
    if alone:
        _legend_of_paths(figure, mesh, pictures[0], 1 - LEGEND / width)
    _legend_of_gates(figure)
    figure.text(1 - 0.1 / width, 0.08 / height, "Railyard", fontsize=SMALL, color=FAINT, ha="right", va="bottom")
    return figure


def figure_of_rows(rows: Sequence[Row]) -> Figure:
    """A figure with a panel for each matching; one without a route shows the mesh without light."""
    first = rows[0]
    mesh = Mesh.of(first["width"], first["height"])
    pictures = []
    for row in rows:
        lit = row["gates"] is not None
        said = f"{row['gates']} gates" if lit else routable_in_words(row)
        states = [state == STATES[True] for state in row["states"]] if lit else [False] * len(mesh.gates)
        title = ("matching" if len(rows) == 1 and not row["number"] else f"matching {row['number']}") + f": {said}"
        pictures.append(MeshPicture(title, states, [(a, b) for a, b in row["pairs"]] if lit else ()))
    of_ports = f"{len(first['used_ports'])} of {first['mesh_ports']} ports"
    return mesh_figure(mesh, pictures, f"{first['width']} x {first['height']} mesh, {of_ports}")


def write_figure(path: Path, rows: Sequence[Row]) -> None:
    """Write the figure of rows to a file of the user who called sudo; ``ConfigError`` if it cannot be written."""
    try:
        with naming(path), open_binary(path, "wb", links=True) as out:
            out.write(render(figure_of_rows(rows), path.suffix[1:], _DPI))
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror}); name another file", source=str(path)) from None


def colour_of(number: int) -> tuple[str, bool]:
    """Colour of the ``number``-th path of a picture, and whether it has a white core, as colours repeat then."""
    return PATHS[number % len(PATHS)], number // len(PATHS) % 2 == 1


def place(mesh: Mesh, end: int, along: float = INSET, aside: float = OFFSET) -> Vector:
    """Point of a gate: ``along`` the gate from the vertex of ``end``, and ``aside`` from its middle towards ``end``.

    Distances are in edges.
    """
    gate = mesh.gates[end >> 2]
    start, stop = np.array(gate.start), np.array(gate.end)
    edge = stop - start
    left = np.array((-edge[1], edge[0])) * (-1 if end & 1 else 1)
    vertex, inward = (stop, -edge) if end & 2 else (start, edge)
    return np.asarray(vertex + along * inward + aside * left)


def port_place(mesh: Mesh, port: int) -> Vector:
    """Position of a port's number: outside the port's vertex, on the port's side of the gate."""
    end = mesh.ports[port].end
    vertex, inward = place(mesh, end, 0, 0), place(mesh, end, 1, 0)
    aside = place(mesh, end, 0, 1) - vertex
    outward = math.sin(math.pi / 3) * aside - math.cos(math.pi / 3) * (inward - vertex)
    # The other gate of the vertex lies at 120 degrees on the far side, so this points away from both.
    across = np.array((-outward[1], outward[0]))
    across *= 1 if across @ aside > 0 else -1
    return np.asarray(vertex + OUTWARD * outward + APART * across)


def through(mesh: Mesh, end: int, crossed: bool) -> Part:
    """Curve of the waveguide through a gate, from ``end`` to the end where light leaves."""
    leaves = leaving_end(end, crossed)
    if not crossed:
        return [place(mesh, leaves)], [_LINE]
    return [place(mesh, end, 0.5), place(mesh, leaves, 0.5), place(mesh, leaves)], [_CURVE4] * 3


def bend(mesh: Mesh, end: int) -> Part:
    """Curve of the waveguide from a gate's ``end`` to the gate or port next to it."""
    other = mesh.facing[end]
    if other >= 0:
        return [place(mesh, end, OFFSET * math.tan(math.pi / 6)), place(mesh, other)], [_CURVE3] * 2
    return [place(mesh, end, 0.0), port_place(mesh, -1 - other)], [_CURVE3] * 2


def path_of_light(mesh: Mesh, states: Sequence[bool], port: int) -> tuple[Curve, int]:
    """The curve of light that enters at ``port``, and the port where the light comes out."""
    end = mesh.ports[port].end
    (control, outside), codes = bend(mesh, end)
    parts: list[Part] = [([control, place(mesh, end)], codes)]
    while end >= 0:
        crossed = states[end >> 2]
        leaves = leaving_end(end, crossed)
        parts += through(mesh, end, crossed), bend(mesh, leaves)
        end = mesh.facing[leaves]
    return _joined(outside, parts), -1 - end


def _joined(start: Vector, parts: Iterable[Part]) -> Curve:
    points, codes = [start], [_MOVE]
    for part, part_codes in parts:
        points += part
        codes += part_codes
    return Curve(np.array(points), codes)


def _panel(axes: Axes, mesh: Mesh, picture: MeshPicture, points: float) -> None:
    """Draw one configuration; ``points`` is the length of an edge on paper, in points."""
    light = [path_of_light(mesh, picture.states, a) for a, _ in picture.pairs]
    lit = {gate for a, _ in picture.pairs for gate in mesh.trace(picture.states, a).gates}
    _gates(axes, mesh, picture.states, lit)
    guides = _guides(mesh, picture.states)
    axes.add_patch(PathPatch(guides, fill=False, edgecolor=GUIDE, linewidth=0.025 * points, zorder=2))
    for number, (curve, _) in enumerate(light):
        _light(axes, curve, number, points)
    colours = {port: number for number, pair in enumerate(picture.pairs) for port in pair}
    for port in mesh.ports:
        _number(axes, port.number, port_place(mesh, port.number), colours.get(port.number), points)
    xs, ys = zip(*((x, y) for gate in mesh.gates for x, y in (gate.start, gate.end)), strict=True)
    axes.set_xlim(min(xs) - MARGIN, max(xs) + MARGIN)
    axes.set_ylim(min(ys) - MARGIN, max(ys) + MARGIN)
    axes.axis("off")


def _gates(axes: Axes, mesh: Mesh, states: Sequence[bool], lit: set[int]) -> None:
    """Draw the bodies of the gates; gates without light are pale, since their states do not matter."""
    for crossed, colour in ((False, BAR), (True, CROSS)):
        for bright in (True, False):
            bodies = [
                Polygon(_body(mesh, gate.number))
                for gate in mesh.gates
                if states[gate.number] == crossed and (gate.number in lit) == bright
            ]
            alpha = 1 if bright else PALE
            axes.add_collection(PatchCollection(bodies, facecolor=colour, edgecolor="none", alpha=alpha, zorder=1))


def _body(mesh: Mesh, gate: int) -> list[Vector]:
    wide = 1.75 * OFFSET
    return [place(mesh, 4 * gate + end, INSET, wide) for end in (0, 2, 3, 1)]


def _guides(mesh: Mesh, states: Sequence[bool]) -> Curve:
    ends = [4 * gate.number + side for gate in mesh.gates for side in (0, 1)]
    parts = [(end, through(mesh, end, states[end >> 2])) for end in ends]
    joints = [end for end, other in enumerate(mesh.facing) if other < end]  # each once; ports have negative numbers
    parts += [(end, bend(mesh, end)) for end in joints]
    return Curve.make_compound_path(*(_joined(place(mesh, end), [part]) for end, part in parts))


def _light(axes: Axes, curve: Curve, number: int, points: float) -> None:
    """Draw the light of a path with a white edge, and a white core if its colour is another path's too."""
    colour, core = colour_of(number)
    layers = [(WHITE, 0.135), (colour, 0.085)] + ([(WHITE, 0.03)] if core else [])
    for layer, (shade, width) in enumerate(layers):
        order = 3 + number * 0.01 + layer * 0.001
        look: dict[str, Any] = {"edgecolor": shade, "linewidth": width * points, "joinstyle": "round", "zorder": order}
        axes.add_patch(PathPatch(curve, fill=False, capstyle="butt", **look))


def _number(axes: Axes, port: int, at: Vector, path: int | None, points: float) -> None:
    """Draw the number of a port, white on the colour of the port's path if there is one."""
    face, edge, ink, size = WHITE, "none", PALE_NUMBER, min(8.0, 0.31 * points)
    if path is None:
        size *= 0.9
    else:
        edge, core = colour_of(path)
        face, ink = (WHITE, edge) if core else (edge, WHITE)
    weight = "normal" if path is None else "bold"
    axes.add_patch(Circle((at[0], at[1]), DISC, facecolor=face, edgecolor=edge, linewidth=0.05 * points, zorder=6))
    look: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontweight": weight, "zorder": 7}
    axes.text(at[0], at[1], str(port), fontsize=size, color=ink, **look)


def _legend_of_paths(figure: Figure, mesh: Mesh, picture: MeshPicture, left: float) -> None:
    handles: list[Line2D] = []
    for number, (a, b) in enumerate(picture.pairs):
        colour, core = colour_of(number)
        count = len(mesh.trace(picture.states, a).gates)
        line = Line2D([], [], linewidth=1.4 if core else 4, color=WHITE if core else colour)
        line.set_path_effects([Stroke(linewidth=4, foreground=colour), Normal()])
        line.set_label(f"{a} – {b}: {count} gate{'s' if count > 1 else ''}")
        handles.append(line)
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (left, 0.5)}
    figure.legend(handles=handles, frameon=False, fontsize=SMALL, labelcolor=TEXT, **place)


def _legend_of_gates(figure: Figure) -> None:
    kinds = (("cross", CROSS, 1.0), ("bar", BAR, 1.0), ("pale: no light", CROSS, PALE))
    handles = [Patch(facecolor=colour, alpha=alpha, label=name) for name, colour, alpha in kinds]
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 0), "handlelength": 1.4, "columnspacing": 1.2}
    figure.legend(handles=handles, ncols=3, frameon=False, fontsize=SMALL, labelcolor=TEXT, **place)


def _columns(panels: int, shape: float) -> int:
    """Number of columns for ``panels`` with aspect ratio ``shape``: figure near 1.4 times as wide as high, few gaps."""

    def badness(columns: int) -> float:
        rows = -(-panels // columns)
        return abs(math.log(columns * shape / rows / 1.4)) + (rows * columns - panels) / panels

    return min(range(1, panels + 1), key=badness)


def _inches_per_edge(mesh: Mesh, alone: bool) -> float:
    """Inches on paper per edge: a mesh alone is as wide as a page, unless numbers of ports would be too small."""
    largest = max(_width(mesh), _height(mesh))
    return min(0.5, max(0.33, (PAGE - LEGEND) / _width(mesh))) if alone else min(0.5, max(0.33, COLUMN / largest))


def _width(mesh: Mesh) -> float:
    return 1.5 * mesh.width + 0.5 + 2 * MARGIN


def _height(mesh: Mesh) -> float:
    return math.sqrt(3) * mesh.height + 2 * MARGIN
