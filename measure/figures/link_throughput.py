"""Link throughput over time from the sampler's counters, and its figure: a heat map of ports, and their sum."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from measure.figures.gantt import shown_step
from measure.figures.looks import DASHED, GREY, HEAT, TEXT, THROUGHPUT
from measure.figures.style import MEDIUM, PAGE, SMALL, new_figure, note, style_axes, time_unit
from measure.metrics.point import Point
from railyard.scale import Scale
from railyard.timeline import Event

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
    """What the rail ports that sent data in a step did: the step and the zero of time are those of ``gantt``.

    ``inside`` are the events of the point, ``events`` those of the run: a counter is recorded where it changes, so that
    the samples before and after a step may be outside of the point. None without a step or without counters.
    """
    found = shown_step(inside)
    if found is None:
        return None
    step, (start, end), _ = found
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
    shown = (edges - start) / point.scale.time * factor
    return _draw(f"{point.title}, step {step}", series, tx, line, shown, unit)


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
