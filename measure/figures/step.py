"""Figures of the steps of points: Gantt chart, throughput of links, and where measured and predicted steps differ.

The Gantt chart has the activities of every rank and the circuits of every rail's ports; the throughput, from the
sampler's counters, is a heat map of ports above their sum.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from measure.figures.looks import (
    ACTIVITIES,
    BLACK,
    COSTS,
    DASHED,
    DIMENSIONS,
    GREY,
    HEAT,
    TEXT,
    THROUGHPUT,
    WHITE,
    Look,
)
from measure.figures.style import (
    MEDIUM,
    PAGE,
    SMALL,
    bar_look,
    entry,
    legend,
    new_figure,
    note,
    style_axes,
    time_unit,
)
from measure.metrics.intervals import Interval
from measure.metrics.point import Point
from measure.metrics.stall import Dark, read_darks
from measure.metrics.step_path import KINDS, Kind
from measure.metrics.steps import Steps
from railyard.scale import Scale
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


def gantt(point: Point, events: Sequence[Event]) -> Figure | None:
    """The Gantt chart of the last complete step.

    If no step was finished, the unfinished last one is drawn; None if there are no agent events.
    """
    of_step = shown_step(events)
    if of_step is None:
        return None
    step, (start, end), finished = of_step
    shown = [e for e in _of_steps(events) if e["step"] == step]
    darks = read_darks(point, events)
    rows = _rows(point, [d.switch for d in darks])
    factor, unit = time_unit(point.scale.real_s(end - start))
    figure = new_figure(PAGE, 0.9 + 0.16 * rows.height)
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
    style_axes(axes, title, f"time in the step ({unit})", "", grid="x")
    _label(axes, rows, (end - start) * scale)
    axes.spines["left"].set_visible(False)
    used = [kind for kind, places in bars.items() if places]
    legend(figure, [Patch(**_LOOKS[kind]) for kind in used], len(used))
    return figure


def shown_step(events: Sequence[Event]) -> tuple[int, Interval, bool] | None:
    """The last complete step, else the last one, its time (wall clock), and whether it was finished.

    None if there are no agent events.
    """
    steps, shown = Steps.read(events), _of_steps(events)
    if not shown:
        return None
    if steps.complete:
        step = steps.complete[-1]
        return step, steps.job(step), True
    step = max(e["step"] for e in shown)
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
    axes.set_yticks([y for y, _ in rows.labels], [label for _, label in rows.labels], fontsize=SMALL, color=TEXT)
    axes.tick_params(axis="y", length=0)


# ---- throughput of links -----------------------------------------------------------------------------------------

_BINS, _PER_SAMPLE = 600, 4
"""Most intervals of the figure, and how many there are between two samples, as these do not begin with the step."""
_MAX_LABELS = 32


@dataclass(frozen=True)
class Throughput:
    """Throughput of one interface: ``tx_gbps[i]`` sent from ``edges_s[i]`` to ``edges_s[i + 1]``.

    Edges are wall-clock seconds (the clock of the events); rates are those of the real system, in Gb/s, Ethernet
    headers included.
    """

    interface: str
    rank: int
    lane: int
    edges_s: tuple[float, ...]
    tx_gbps: tuple[float, ...]


def throughputs(events: Iterable[Event], scale: Scale) -> tuple[Throughput, ...]:
    """Throughput of every interface, sorted by rank and lane; a counter that was reset gives 0 for that sample."""
    samples: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.kind == "bytes":
            samples[e["interface"]].append(e)
    return tuple(
        sorted((_series(i, s, scale) for i, s in samples.items() if len(s) > 1), key=lambda t: (t.rank, t.lane))
    )


def _series(interface: str, samples: list[Event], scale: Scale) -> Throughput:
    ordered = sorted(samples, key=lambda e: e.t)
    edges, tx = [ordered[0].t], []
    for one, other in pairwise(ordered):
        seconds = other.t - one.t
        if seconds <= 0:
            continue
        edges.append(other.t)
        tx.append(_gbps(other["tx_bytes"] - one["tx_bytes"], seconds, scale))
    first = ordered[0]
    return Throughput(interface, first["rank"], first["lane"], tuple(edges), tuple(tx))


def _gbps(emulated_bytes: int, wall_s: float, scale: Scale) -> float:
    """Rate in Gb/s of the real system; the time scale of bytes and seconds cancels out."""
    return max(0.0, scale.real_bytes(emulated_bytes) * 8 / scale.real_s(wall_s) / 1e9)


def link_throughput(point: Point, inside: Sequence[Event], events: Iterable[Event]) -> Figure | None:
    """The throughput of the rail ports that sent data in a step: the step and the zero of time are those of ``gantt``.

    ``inside`` are the events of the point, ``events`` those of the run: a counter is recorded where it changes, so that
    the samples before and after a step may be outside of the point. None without a step or without counters.
    """
    shown = shown_step(inside)
    if shown is None:
        return None
    step, (start, end), _ = shown
    rates = {p.interface: p.rate_mbps for r in range(point.plan.ranks) for p in point.plan.rail_ports(r)}
    series = [s for s in throughputs(_around(events, start, end), point.scale) if any(s.tx_gbps)]
    series = [s for s in series if s.interface in rates]
    if not series:
        return None
    finest = min(float(np.median(np.diff(s.edges_s))) for s in series)
    edges = np.linspace(start, end, min(_BINS, max(2, _PER_SAMPLE * round((end - start) / finest))) + 1)
    tx = np.array([_resample(s, edges) for s in series])
    line = np.array([rates[s.interface] / 1e3 / point.scale.rate for s in series])
    factor, unit = time_unit(point.scale.real_s(end - start))
    places = (edges - start) / point.scale.time * factor
    return _draw(f"{point.title}, step {step}", series, tx, line, places, unit)


def _around(events: Iterable[Event], start: float, end: float) -> Iterator[Event]:
    """The samples of each interface from the last one before ``start`` to the first one after ``end``."""
    samples: dict[str, list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.kind == "bytes":
            samples[e["interface"]].append(e)
    for mine in samples.values():
        mine.sort(key=lambda e: e.t)
        times = [e.t for e in mine]
        yield from mine[max(0, bisect_right(times, start) - 1) : bisect_left(times, end) + 1]


def _draw(
    title: str,
    series: Sequence[Throughput],
    tx: NDArray[np.float64],
    line: NDArray[np.float64],
    edges: NDArray[np.float64],
    unit: str,
) -> Figure:
    figure = new_figure(PAGE, 2.3 + min(0.11 * len(series), 5.0))
    heights = [max(1.0, 0.11 * len(series)), 1.0]
    heat, whole = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    places, shares = np.arange(len(series) + 1), tx / line[:, None] * 100
    image = heat.pcolormesh(edges, places, shares, cmap=HEAT, vmin=0, vmax=100, rasterized=True)
    every = max(1, -(-len(series) // _MAX_LABELS))
    heat.set_yticks(places[:-1:every] + 0.5, [one.interface for one in series[::every]], fontsize=SMALL)
    heat.invert_yaxis()
    style_axes(heat, f"{title}: what each port sends", "", "")
    heat.tick_params(axis="y", length=0, labelsize=SMALL)
    bar = figure.colorbar(image, ax=heat, pad=0.01, fraction=0.04)
    bar.set_label("of line rate (%)", color=TEXT, fontsize=MEDIUM)
    bar.ax.tick_params(labelsize=SMALL, length=2)
    unit_gbps, rate_unit = (1e3, "Tb/s") if line.sum() >= 2e3 else (1.0, "Gb/s")
    together, all_lines = tx.sum(axis=0) / unit_gbps, line.sum() / unit_gbps
    whole.stairs(together, edges, fill=True, color=THROUGHPUT.colour, alpha=0.35)
    whole.stairs(together, edges, color=THROUGHPUT.colour, linewidth=0.8, baseline=None)
    whole.axhline(all_lines, color=GREY, linewidth=0.8, linestyle=DASHED)
    note(whole, "line rate", (1, all_lines), (3, 0), xycoords=("axes fraction", "data"), va="center")
    whole.set_ylim(0, all_lines * 1.08)
    style_axes(whole, "all ports together", f"time in the step ({unit})", f"sent ({rate_unit})", grid="both")
    return figure


def _resample(series: Throughput, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean rate in each interval of ``edges``, by interpolating the cumulative sum at their ends."""
    known = np.asarray(series.edges_s)
    so_far = np.concatenate([[0.0], np.cumsum(np.diff(known) * np.asarray(series.tx_gbps))])
    return np.asarray(np.diff(np.interp(edges, known, so_far)) / np.diff(edges))


# ---- measured less predicted --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One point: measured less predicted seconds of each kind of cost, beside the predicted step."""

    title: str
    predicted_s: float
    differences: Mapping[Kind, float]


def explained_figure(bars: Sequence[Bar]) -> Figure:
    """Bars in percent of the predicted step: longer than predicted to the right, shorter to the left; a mark for both.

    Kinds that make less than 0.01 percent of difference at every point are left out.
    """
    figure = new_figure(PAGE, 0.8 + 0.3 * len(bars))
    axes = figure.add_subplot()
    shares = [{kind: 100 * s / bar.predicted_s for kind, s in bar.differences.items()} for bar in bars]
    kinds = [kind for kind in KINDS if any(abs(share.get(kind, 0.0)) >= 0.01 for share in shares)]
    for place, share in enumerate(shares):
        ends = {True: 0.0, False: 0.0}
        for kind in kinds:
            width = share.get(kind, 0.0)
            axes.barh(place, width, left=ends[width > 0], height=0.62, **bar_look(COSTS[kind]))
            ends[width > 0] += width
        axes.plot(sum(share.values()), place, marker="D", color=WHITE, markeredgecolor=BLACK, markersize=4.5)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
    axes.invert_yaxis()
    x = "measured less predicted, % of the predicted step"
    style_axes(axes, "Where measured and predicted step differ", x, "", grid="x")
    handles = [Patch(**bar_look(COSTS[kind]), label=COSTS[kind].name) for kind in kinds]
    legend(figure, [*handles, entry("all", BLACK, marker="D", linestyle="", markerfacecolor=WHITE)], columns=4)
    return figure
