"""Gantt chart of one step of a point: the activities of every rank and the circuits of every rail's ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from measure.figures.style import (
    BLACK,
    DIMENSION_COLOURS,
    GREY,
    LIGHT,
    VERMILION,
    new_figure,
    style_axes,
    time_unit,
)
from measure.metrics.intervals import Interval
from measure.metrics.point import Point
from measure.metrics.stall import Dark, read_darks
from measure.metrics.steps import Steps
from railyard.timeline import Event
from topos.plan import SwitchPlan

MAX_RANKS = 24
_Place = Callable[[Interval], Interval]
_COMPUTE, _WAIT, _START = LIGHT, VERMILION, "#F7F7F7"


@dataclass
class _Rows:
    """Vertical layout of the chart: the positions of rails and their ranks, from top to bottom."""

    ranks: dict[int, float] = field(default_factory=dict)
    rails: dict[str, tuple[float, float]] = field(default_factory=dict)
    labels: list[tuple[float, str]] = field(default_factory=list)
    height: float = 0.0


def gantt(point: Point, events: Sequence[Event], step: int | None = None) -> Figure | None:
    """The Gantt chart of ``step`` (default: the last complete one).

    If no step was finished, the unfinished last one is drawn; None if there are no agent events.
    """
    steps = Steps.read(events)
    shown = [e for e in events if e.source == "agent" and e.end is not None and e.get("step") is not None]
    if not shown:
        return None
    step = (steps.complete[-1] if steps.complete else max(e["step"] for e in shown)) if step is None else step
    shown = [e for e in shown if e["step"] == step]
    start, end = steps.job(step) if step in steps.complete else _span(shown)
    darks = read_darks(point, events)
    rows = _rows(point, [d.switch for d in darks])
    factor, unit = time_unit(point.scale.real_s(end - start))
    figure = new_figure(11, 1.9 + 0.26 * rows.height)
    axes = figure.add_subplot()
    scale = factor / point.scale.time

    def place(interval: Interval) -> Interval:
        """(start, width) on the time axis."""
        return (interval[0] - start) * scale, (interval[1] - interval[0]) * scale

    used = _draw_ranks(axes, rows, shown, place)
    used |= _draw_rails(axes, point, rows, darks, (start, end), place)
    _label(axes, rows, (end - start) * scale)
    unfinished = "" if step in steps.complete else " (not finished)"
    left_out = point.plan.ranks - len(rows.ranks)
    more = f", {left_out} more ranks not shown" if left_out else ""
    style_axes(axes, f"{point.title}: step {step}{unfinished}{more}", f"time in the step ({unit})", "")
    _legend(figure, used)
    return figure


def _span(events: Sequence[Event]) -> Interval:
    return min(e.t for e in events), max(e.end or e.t for e in events)


def _rows(point: Point, changed: Sequence[str]) -> _Rows:
    """Lay out as many rails as fit, from the first on; optical and changed rails have a row for their ports."""
    rows = _Rows()
    for rail in point.plan.network("rail"):
        ranks = sorted({p.rank for p in rail.ports})
        if rows.ranks and len(rows.ranks) + len(ranks) > MAX_RANKS:
            break
        if rail.name in changed or rail.kind == "ocs":
            tall = max(1.0, 0.22 * len(rail.ports[: 4 * MAX_RANKS]))
            rows.rails[rail.name] = rows.height, tall
            rows.labels.append((rows.height + tall / 2, f"{rail.name} ports"))
            rows.height += tall + 0.15
        for rank in ranks[: MAX_RANKS - len(rows.ranks)]:
            rows.ranks[rank] = rows.height
            rows.labels.append((rows.height + 0.4, f"rank {rank}"))
            rows.height += 0.9
        rows.height += 0.45
    return rows


def _draw_ranks(axes: Axes, rows: _Rows, shown: Sequence[Event], place: _Place) -> set[str]:
    """Draw compute in grey, communication in the colour of its dimension, and waits for circuits hatched."""
    bars: dict[tuple[int, str], list[Interval]] = defaultdict(list)
    for e in shown:
        if e["rank"] not in rows.ranks or e.end is None:
            continue
        if e.kind in ("compute", "wait"):
            bars[e["rank"], e.kind].append(place((e.t, e.end)))
        elif e.kind == "communicate":
            bars[e["rank"], e["dimension"]].append(place((e.t, e.end)))
    order = {"compute": 1, "wait": 3}
    for (rank, kind), spans in bars.items():
        y, z = rows.ranks[rank], order.get(kind, 2)
        if kind == "wait":
            axes.broken_barh(spans, (y, 0.8), facecolor="white", edgecolor=_WAIT, hatch="////", linewidth=0.6, zorder=z)
        else:
            colour = _COMPUTE if kind == "compute" else DIMENSION_COLOURS.get(kind, GREY)
            axes.broken_barh(spans, (y, 0.8), facecolor=colour, edgecolor="white", linewidth=0.3, zorder=z)
    return {kind for _, kind in bars}


def _draw_rails(
    axes: Axes, point: Point, rows: _Rows, darks: Sequence[Dark], shown: Interval, place: _Place
) -> set[str]:
    """Draw one strip per port: in the colour of the dimension that its circuit is for, black while dark."""
    used: set[str] = set()
    for rail in point.plan.network("rail"):
        if rail.name not in rows.rails:
            continue
        y, tall = rows.rails[rail.name]
        ports = rail.ports[: 4 * MAX_RANKS]
        strip = tall / len(ports)
        bars: dict[str, list[tuple[float, Interval]]] = defaultdict(list)
        for number, port in enumerate(ports):
            for kind, interval in _port_states(point, rail, port.number, darks, shown):
                bars[kind].append((y + number * strip, interval))
        for kind, strips in bars.items():
            colour = {"dark": BLACK, "start": _START}.get(kind) or DIMENSION_COLOURS.get(kind, GREY)
            for bottom, interval in strips:
                span = [place(interval)]
                axes.broken_barh(span, (bottom, strip * 0.86), facecolor=colour, zorder=3 if kind == "dark" else 2)
        used |= {f"circuit {kind}" if kind not in ("dark", "start") else kind for kind in bars}
    return used


def _port_states(
    point: Point, rail: SwitchPlan, port: int, darks: Sequence[Dark], shown: Interval
) -> list[tuple[str, Interval]]:
    """States of a port during ``shown``: ``start`` (starting circuits), ``dark``, or the circuit's dimension."""
    states: list[tuple[str, Interval]] = []
    kind, since = "start", shown[0]
    for dark in darks:
        if dark.switch != rail.name or port not in dark.ports or dark.t >= shown[1]:
            continue
        if dark.t > since:
            states.append((kind, (since, dark.t)))
        if dark.end > shown[0]:
            states.append(("dark", (max(dark.t, shown[0]), min(dark.end, shown[1]))))
        group = point.groups.get(dark.group)
        kind, since = (group.dimension if group else "rewired"), max(dark.end, shown[0])
    if since < shown[1]:
        states.append((kind, (since, shown[1])))
    return states


def _label(axes: Axes, rows: _Rows, width: float) -> None:
    axes.set_ylim(rows.height, -0.2)
    axes.set_xlim(0, width)
    axes.set_yticks([y for y, _ in rows.labels], [label for _, label in rows.labels], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=LIGHT, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)


def _legend(figure: Figure, used: set[str]) -> None:
    """Add a legend with only the kinds that were drawn."""
    handles = []
    if "compute" in used:
        handles.append(Patch(facecolor=_COMPUTE, label="compute"))
    for kind in DIMENSION_COLOURS:
        if kind in used or f"circuit {kind}" in used:
            handles.append(Patch(facecolor=DIMENSION_COLOURS[kind], label=f"{kind.upper()} data, or its circuits"))
    if "wait" in used:
        handles.append(Patch(facecolor="white", edgecolor=_WAIT, hatch="////", label="waits for its circuits"))
    if "dark" in used:
        handles.append(Patch(facecolor=BLACK, label="port dark"))
    if "start" in used:
        handles.append(Patch(facecolor=_START, edgecolor=GREY, label="starting circuits"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=8.5)
