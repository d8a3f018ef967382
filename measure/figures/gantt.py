"""Gantt chart of one step of a point: the activities of every rank and the circuits of every rail's ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from measure.figures import style
from measure.figures.looks import ACTIVITIES, DIMENSIONS, GREY, TEXT, WHITE, Look
from measure.metrics.intervals import Interval
from measure.metrics.point import Point
from measure.metrics.stall import Dark, read_darks
from measure.metrics.steps import Steps
from railyard.timeline import Event
from topos.plan import SwitchPlan

MAX_RANKS = 24
_MAX_PORTS = 4 * MAX_RANKS
_OPEN = {"start": GREY, "wait": ACTIVITIES["wait"].colour}
"""Colours of the edges of bars that are not filled with a colour."""


def _bar_look(kind: str, look: Look) -> Mapping[str, Any]:
    face = WHITE if kind == "wait" else look.colour
    label = f"{look.name} data, or its circuits" if kind in DIMENSIONS else look.name
    edge = {"edgecolor": _OPEN[kind]} if kind in _OPEN else {}
    return {"facecolor": face, "hatch": look.hatch or None, "label": label, **edge}


_LOOKS: Mapping[str, Mapping[str, Any]] = {
    kind: _bar_look(kind, look)
    for kind, look in {
        "compute": ACTIVITIES["compute"],
        **DIMENSIONS,
        **{kind: ACTIVITIES[kind] for kind in ("rewired", "start", "wait", "dark")},
    }.items()
}
"""The kinds of bars, from those drawn first (below others) to those drawn last, with look and name in the legend."""
_EDGE: Mapping[str, Any] = {"edgecolor": WHITE, "linewidth": 0.2}
_Bar = tuple[str, float, float, Interval]
"""A bar: kind, vertical position of its top, height, and its time."""


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
    found = shown_step(events, step)
    if found is None:
        return None
    step, (start, end), finished = found
    shown = [e for e in _of_steps(events) if e["step"] == step]
    darks = read_darks(point, events)
    rows = _rows(point, [d.switch for d in darks])
    factor, unit = style.time_unit(point.scale.real_s(end - start))
    figure = style.new_figure(style.PAGE, 0.9 + 0.16 * rows.height)
    axes = figure.add_subplot()
    scale = factor / point.scale.time
    bars: dict[str, dict[tuple[float, float], list[Interval]]] = {kind: defaultdict(list) for kind in _LOOKS}
    for kind, y, height, (since, until) in (*_rank_bars(rows, shown), *_port_bars(point, rows, darks, (start, end))):
        bars[kind][y, height].append(((since - start) * scale, (until - since) * scale))
    for kind, places in bars.items():
        for place, spans in places.items():
            axes.broken_barh(spans, place, **{**_EDGE, **_LOOKS[kind]})
    unfinished = "" if finished else " (not finished)"
    left_out = point.plan.ranks - len(rows.ranks)
    more = f", {left_out} more ranks not shown" if left_out else ""
    title = f"{point.title}: step {step}{unfinished}{more}"
    style.style_axes(axes, title, f"time in the step ({unit})", "", grid="x")
    _label(axes, rows, (end - start) * scale)
    axes.spines["left"].set_visible(False)
    used = [kind for kind, places in bars.items() if places]
    style.legend(figure, [Patch(**_LOOKS[kind]) for kind in used], len(used))
    return figure


def shown_step(events: Sequence[Event], step: int | None = None) -> tuple[int, Interval, bool] | None:
    """``step`` (default: the last complete one, else the last), its time (wall clock), and whether it was finished.

    None if there are no agent events.
    """
    steps, shown = Steps.read(events), _of_steps(events)
    if not shown:
        return None
    step = (steps.complete[-1] if steps.complete else max(e["step"] for e in shown)) if step is None else step
    if step in steps.complete:
        return step, steps.job(step), True
    mine = [e for e in shown if e["step"] == step]
    return step, (min(e.t for e in mine), max(e.end or e.t for e in mine)), False


def _of_steps(events: Sequence[Event]) -> list[Event]:
    return [e for e in events if e.source == "agent" and e.end is not None and e.get("step") is not None]


def _rows(point: Point, changed: Sequence[str]) -> _Rows:
    """Lay out as many rails as fit, from the first on; optical and changed rails have a row for their ports."""
    rows = _Rows()
    for rail in point.plan.network("rail"):
        ranks = sorted({p.rank for p in rail.ports})
        if rows.ranks and len(rows.ranks) + len(ranks) > MAX_RANKS:
            break
        if rail.name in changed or rail.kind == "ocs":
            tall = max(1.0, 0.22 * len(rail.ports[:_MAX_PORTS]))
            rows.rails[rail.name] = rows.height, tall
            rows.labels.append((rows.height + tall / 2, f"{rail.name} ports"))
            rows.height += tall + 0.15
        for rank in ranks[: MAX_RANKS - len(rows.ranks)]:
            rows.ranks[rank] = rows.height
            rows.labels.append((rows.height + 0.4, f"rank {rank}"))
            rows.height += 0.9
        rows.height += 0.45
    return rows


def _rank_bars(rows: _Rows, shown: Sequence[Event]) -> Iterator[_Bar]:
    """Compute, communication by its dimension, and waits for circuits, of each rank."""
    for e in shown:
        if e["rank"] in rows.ranks and e.end is not None and e.kind in ("compute", "wait", "communicate"):
            kind = _kind(e["dimension"]) if e.kind == "communicate" else e.kind
            yield kind, rows.ranks[e["rank"]], 0.8, (e.t, e.end)


def _port_bars(point: Point, rows: _Rows, darks: Sequence[Dark], shown: Interval) -> Iterator[_Bar]:
    """One strip per port: the dimension that its circuit is for, or dark."""
    for rail in point.plan.network("rail"):
        if rail.name not in rows.rails:
            continue
        y, tall = rows.rails[rail.name]
        ports = rail.ports[:_MAX_PORTS]
        strip = tall / len(ports)
        for number, port in enumerate(ports):
            for kind, interval in _port_states(point, rail, port.number, darks, shown):
                yield kind, y + number * strip, strip * 0.86, interval


def _kind(dimension: str) -> str:
    """The kind of bar of a dimension: its name, or ``rewired`` for one without a colour."""
    return dimension if dimension in DIMENSIONS else "rewired"


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
        kind, since = _kind(group.dimension if group else ""), max(dark.end, shown[0])
    if since < shown[1]:
        states.append((kind, (since, shown[1])))
    return states


def _label(axes: Axes, rows: _Rows, width: float) -> None:
    """Set the range of both axes, and the names of ranks and rails."""
    axes.set_ylim(rows.height, -0.2)
    axes.set_xlim(0, width)
    axes.set_yticks([y for y, _ in rows.labels], [label for _, label in rows.labels], fontsize=style.SMALL, color=TEXT)
    axes.tick_params(axis="y", length=0)
