"""The answers of a page's questions about one point: its time line, its state at a moment, and its strip charts.

All are plain data. Times are seconds of the real system since the start of the point, rates Gb/s of the real system.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from commands.page.view.bars import BAR, KINDS, SEVERAL, Table, thinned
from commands.page.view.index import SAMPLE_WALL_S, PointIndex, ShownMark
from commands.page.view.lanes import Lane

MOST_BYTES = 2_000_000
"""Most bytes of a time line as JSON."""
_LEAST_PX, _MOST_PX, _MOST_MARKS, _MOST_BINS, _MOST_SERIES = 16, 8192, 400, 2000, 8
_ONE_BAR = 26
"""Bytes of a bar as JSON, without its times, its number of bytes and its name."""


def timeline(index: PointIndex, start: float, end: float, px: int, until: float, *, live: bool) -> dict[str, Any]:
    """The bars, marks and steps between ``start`` and ``end`` for a page ``px`` pixels wide; ``until`` is the present.

    Bars shorter than a pixel are joined, of fewer and fewer pixels until the answer has at most ``MOST_BYTES``.
    """
    px = max(_LEAST_PX, min(int(px), _MOST_PX))
    lanes = [*index.lanes, *(index.edge.more_lanes() if index.edge else ())]
    while True:
        width = _pixel(end - start, px)
        shown = {lane.id: thinned(_bars(index, lane, start, end, until, width), width) for lane in lanes}
        digits = _digits(width)
        if px <= _LEAST_PX or _bytes(shown.values(), digits, end, index.labels.texts) <= MOST_BYTES:
            break
        px //= 2
    used = np.unique(np.concatenate([rows["l"] for rows in shown.values()] or [np.empty(0, "i4")]))
    places = {lane.id: lane.kind == "port" for lane in lanes}
    return {
        "point": index.facts.number,
        "start": start,
        "end": end,
        "duration": until,
        "live": live,
        "thinned": bool(SEVERAL in used),
        "left_out": index.left_out,
        "kinds": list(KINDS),
        "labels": [index.labels.texts[label] for label in used],
        "lanes": [lane.shown() for lane in lanes],
        "bars": {name: _columns(rows, used, digits, peers=places[name]) for name, rows in shown.items() if len(rows)},
        "marks": _marks(index.marks, start, end, width),
        "steps": list(index.steps.spans(start, end, width)),
    }


def state(index: PointIndex, t: float) -> dict[str, Any]:
    """The state at the moment ``t``: circuits, dark and failed ports, dead ranks, rates of links, and who waits."""
    texts = index.labels.texts
    circuits = index.circuits.state(t, texts) if index.circuits else {"circuits": {}, "dark": {}, "failed": {}}
    members = {name: group.members for name, group in index.facts.groups.items()}
    return {
        "t": t,
        **circuits,
        "dead": sorted(rank for rank, since in index.ranks.dead.items() if since <= t),
        "links": index.counters.at(t),
        "ranks": index.ranks.doing(t, texts),
        "waits": index.ranks.waits(t, members),
    }


def strips(index: PointIndex, start: float, end: float, px: int) -> dict[str, Any]:
    """Bytes of each rail in intervals between ``start`` and ``end``, and the times and stalls of the steps.

    Rates are those of all ``ports`` of the ranks of jobs together, each with ``port_gbps`` (None if they differ); they
    are None in intervals that no sample covers.
    """
    finest = SAMPLE_WALL_S / index.facts.scale.time
    bins = max(1, min(int(px), _MOST_BINS, math.ceil(2 * (end - start) / finest)))
    edges = np.linspace(start, end, bins + 1)
    rates = []
    for name, interfaces in _series(index).items():
        found = index.counters.sent_gbps(interfaces, edges)
        if found is not None:
            lines = [round(gbps, 6) for gbps in found[0]]
            known = {"name": name, "line_gbps": round(sum(found[0]), 6), "ports": len(lines)}
            values = [None if math.isnan(value) else float(f"{value:.4g}") for value in found[1]]
            rates.append(known | {"port_gbps": lines[0] if len(set(lines)) == 1 else None, "values": values})
    facts = index.facts
    steps = index.steps.shown(facts.predicted, facts.warmup, start, end, index.settled)
    return {"t": [round(t, 6) for t in (edges[:-1] + edges[1:]) / 2], "rates": rates, "steps": _thin(steps, _MOST_BINS)}


# ---- parts of them -------------------------------------------------------------------------------------------------


def _bars(index: PointIndex, lane: Lane, start: float, end: float, until: float, width: float) -> Table:
    if lane.kind == "rank" and lane.rank is not None:
        return index.ranks.within(lane.rank, start, end, until, width)
    if lane.kind == "port" and lane.port is not None and index.circuits is not None:
        return index.circuits.within((lane.group, lane.port), start, end, until, width)
    if index.edge is not None and lane.id in index.edge.bars:
        return index.edge.bars[lane.id].thinned(start, end, width)
    return np.empty(0, BAR)


def _pixel(seconds: float, px: int) -> float:
    """Seconds of a pixel, rounded down to one of few values, so that the same bars are joined while a window moves."""
    return float(2.0 ** (math.floor(4 * math.log2(seconds / px)) / 4))


def _digits(width: float) -> int:
    """Decimals of times that say where in a pixel something is."""
    return min(9, max(3, 2 - math.floor(math.log10(width))))


def _bytes(tables: Iterable[Table], digits: int, end: float, texts: Sequence[str]) -> int:
    """Most bytes that bars take as JSON."""
    whole, each = 0, _ONE_BAR + 2 * (digits + 2 + len(str(int(max(end, 1)))))
    labels: set[int] = set()
    for rows in tables:
        whole += each * len(rows) + 14 * int(np.count_nonzero(rows["b"]))
        labels.update(np.unique(rows["l"]).tolist())
    return whole + sum(len(texts[label]) + 4 for label in labels)


def _columns(rows: Table, used: Any, decimals: int, *, peers: bool) -> dict[str, list[Any]]:
    return {
        "s": np.round(rows["s"], decimals).tolist(),
        "e": np.round(rows["e"], decimals).tolist(),
        "k": rows["k"].tolist(),
        "l": np.searchsorted(used, rows["l"]).tolist(),
        "b": np.round(rows["b"]).astype("i8").tolist(),
        "st": rows["st"].tolist(),
        "p": rows["p"].tolist() if peers else [0] * len(rows),
    }


def _marks(marks: Sequence[ShownMark], start: float, end: float, width: float) -> list[dict[str, Any]]:
    """The marks of the window; of too many, those of one kind in a few pixels are one."""
    inside = [m for m in marks if m.t < end and (m.t if m.end is None else m.end) >= start]
    if len(inside) <= _MOST_MARKS:
        return [_mark(mark, 1) for mark in inside]
    near: dict[tuple[str, int], list[ShownMark]] = defaultdict(list)
    wide = max(width, (end - start) / (_MOST_MARKS / 4))
    for mark in inside:
        near[mark.kind, math.floor(mark.t / wide)].append(mark)
    return [_mark(several[0], len(several)) for several in near.values()][:_MOST_MARKS]


def _mark(mark: ShownMark, count: int) -> dict[str, Any]:
    return {
        "t": round(mark.t, 6),
        "end": None if mark.end is None else round(mark.end, 6),
        "kind": mark.kind,
        "says": mark.says + (f" (and {count - 1} more of this kind)" if count > 1 else ""),
        "manual": mark.kind == "manual",
        "ranks": list(mark.ranks),
        "rail": mark.rail,
        "ports": list(mark.ports),
    }


def _series(index: PointIndex) -> dict[str, list[str]]:
    """The interfaces of each rail that ranks of jobs use, by name of the strip; of many rails, those of all together.

    They are those of all ranks where neither launches nor groups tell of a job.
    """
    plan = index.facts.plan
    if plan is None:
        return {}
    rails = [s for s in plan.switches if s.network in ("rail", "access")]
    used = index.members or {rank for group in index.facts.groups.values() for rank in group.members}
    found = {s.name: [p.interface for p in s.ports if not used or p.rank in used] for s in rails}
    if len(found) > _MOST_SERIES:
        return {"all ports": [name for names in found.values() for name in names]}
    return found


def _thin(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most ``most`` steps: of as many as become one, that with the longest stall, else the longest one."""
    every = -(-len(rows) // most) if rows else 1
    if every == 1:
        return rows
    return [max(rows[at : at + every], key=_length) for at in range(0, len(rows), every)]


def _length(step: Mapping[str, Any]) -> tuple[float, float]:
    return step.get("stall_s") or 0.0, step.get("seconds") or 0.0
