"""Figures and trace of a results folder, drawn from what was recorded.

The trace is the timeline in Chrome's format: open ``trace.json`` in Perfetto (ui.perfetto.dev) or chrome://tracing.
Processes are the run (points, machine), the rails and the ranks; threads are their activities. Times are microseconds
of real time from the first event. Source: the Trace Event Format document (events X, i, C, M).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from experiments.registry import find
from experiments.report import MODEL_ONLY, Recorded
from measure.results.folder import is_locked
from measure.results.foreign import check_rows
from measure.results.partial import partial
from measure.results.results import FIGURES, SUMMARY, TRACE, Results
from railyard.errors import ConfigError, in_file
from railyard.scale import Scale
from railyard.timeline import Event
from railyard.verdict import why_not_faithful

_RUN, _RAIL, _RANK = 1, 1_000, 10_000
"""First process ids: the run, rails from 1000, ranks from 10000."""
_THREADS = {
    "step": 1,
    "phase": 2,
    "compute": 3,
    "communicate": 4,
    "wait": 5,
    "verified": 6,
    "sockets": 6,
}
_THREAD_NAMES = {1: "steps", 2: "phases", 3: "compute", 4: "communication", 5: "waiting for circuits", 6: "notes"}
_SLOTS = 100
"""Number of thread ids reserved for each thread, for intervals that overlap in it."""
_BEFORE = {("run", "begun"), ("run", "started"), ("controller", "circuits"), ("run", "cut")}
"""Not shown, and of a time at which the trace does not begin."""
_SKIPPED = {("link", "bytes"), ("link", "qdisc"), ("link", "sampled"), ("run", "lost"), *_BEFORE}


def kind_of(results: Results) -> type[Experiment[Any]]:
    """The experiment that a results folder is of, by the name in its manifest.

    ``ConfigError`` for one that is not installed and for code of a file: a folder may come from another person, so
    that its manifest does not decide which code is executed.
    """
    name = results.experiment
    if ":" in name:
        raise ConfigError(
            f"{results.folder} is of {name}, whose code is not part of Railyard; name it: --experiment {name}",
            key="results",
        )
    return find(name)


def read_folder(
    results: Results, kind: type[Experiment[Any]] | None = None, events: Sequence[Event] | None = None
) -> Recorded:
    """All that a results folder holds; ``events`` are taken in place of its own, which take time to read.

    ``kind`` is its experiment, if it is known, whose fields its rows have. ``ConfigError`` names the field of a
    row that no run writes so, or that contradicts its own checks.
    """
    manifest = results.manifest()
    with in_file(str(results.folder / SUMMARY)):
        rows = results.rows()
        check_rows(rows, () if kind is None else kind.rows, manifest)
    said = partial(manifest, rows, under_way=is_locked(results.folder))
    return Recorded(manifest, rows, results.events() if events is None else events, said)


def redraw(folder: Path, kind: type[Experiment[Any]] | None = None, recorded: Recorded | None = None) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``kind`` is its experiment (default ``kind_of``), ``recorded`` its content (default ``read_folder``).
    ``ConfigError`` if ``folder`` is not a results folder, cannot be read or written, or is of an experiment that is not
    there.
    """
    from measure.figures.style import png  # matplotlib takes a second

    results = Results.open(folder)
    kind = kind or kind_of(results)
    recorded = recorded or read_folder(results, kind)
    scale = recorded.scale if kind.packets and not recorded.predicted else None
    model = f"{MODEL_ONLY}. " if recorded.predicted else ""
    try:
        written = [results.write(TRACE, trace_json(recorded.events, scale))] if scale is not None else []
        for drawn in kind.report().figures(recorded):
            if drawn.figure is not None:
                faithful = scale is None or (bool(drawn.rows) and all(row.get("faithful") for row in drawn.rows))
                said = (f"{model}{drawn.note}", why_not_faithful(drawn.rows), recorded.acted_on)
                note = " ".join(sentence.strip() for sentence in said if sentence)
                image = png(drawn.figure, scale, faithful=faithful, note=note, partial=recorded.partial)
                written.append(results.write(f"{FIGURES}/{drawn.name}.png", image))
    except PermissionError:
        raise ConfigError(
            f"{folder} belongs to another user; draw its figures with sudo, or copy it", key="results"
        ) from None
    return written


# ---- the trace -------------------------------------------------------------------------------------------------------


def build_trace(events: Sequence[Event], scale: Scale) -> dict[str, Any]:
    start = min((e.t for e in events if (e.source, e.kind) not in _BEFORE), default=0.0)
    found = _side_by_side([t for e in events if (t := _trace_event(e, start, scale)) is not None])
    return {
        "traceEvents": [*_names(found), *found],
        "displayTimeUnit": "ms",
        "otherData": {"times": "microseconds of the real system", "rate": scale.rate, "time": scale.time},
    }


def trace_json(events: Sequence[Event], scale: Scale) -> str:
    return json.dumps(build_trace(events, scale), separators=(",", ":"), allow_nan=False)


def _trace_event(e: Event, start: float, scale: Scale) -> dict[str, Any] | None:
    if (e.source, e.kind) in _SKIPPED:
        return None
    process, thread = _place(e)
    common = {"cat": e.source, "pid": process, "tid": thread, "ts": round(scale.real_s(e.t - start) * 1e6, 3)}
    if e.kind == "cpu":
        shown = {k: e[k] for k in ("busy", "switch_busy", "other", "steal") if e.get(k) is not None}
        name = f"CPU of {e['machine']}" if e.get("machine") else "CPU"
        return {"name": name, "ph": "C", **common, "args": shown}
    args = {k: v for k, v in e.fields.items() if isinstance(v, (str, int, float, bool, list))}
    if e.end is None:
        return {"name": _name(e), "ph": "i", "s": "t", **common, "args": args}
    return {"name": _name(e), "ph": "X", **common, "dur": round(scale.real_s(e.seconds) * 1e6, 3), "args": args}


def _side_by_side(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move overlapping intervals of a thread (a send and a receive, two reconfigurations) to additional threads."""
    ends: dict[tuple[int, int], list[float]] = defaultdict(list)
    placed = []
    for one in sorted(found, key=lambda t: t["ts"]):
        slot = 0
        if one["ph"] == "X":
            slots = ends[one["pid"], one["tid"]]
            slot = next((i for i, end in enumerate(slots) if end <= one["ts"]), len(slots))
            slots[slot : slot + 1] = [one["ts"] + one["dur"]]
        placed.append({**one, "tid": one["tid"] * _SLOTS + slot})
    return placed


def _place(e: Event) -> tuple[int, int]:
    if e.source == "agent":
        return _RANK + e["rank"], _THREADS.get(e.kind, 6)
    rail = e.get("rail")
    if rail is not None:
        return _RAIL + _rail_number(rail), 1 if e.kind == "reconfigure" else 2
    return _RUN, {"run": 1, "controller": 2}.get(e.source, 3)


def _rail_number(rail: str | int) -> int:
    if isinstance(rail, int):
        return rail
    digits = "".join(c for c in rail if c.isdigit())
    return int(digits) if digits else 0


def _name(e: Event) -> str:
    if e.kind == "point":
        return f"{e.get('mode', 'point')} {e.get('delay_s', 0) * 1e3:g} ms"
    if e.kind == "step":
        return f"step {e['step']}"
    if e.kind == "phase":
        return f"{e['dimension']} phase {e['phase']}"
    if e.kind == "reconfigure":
        return f"dark: {e.get('group') or 'rewire'}"
    if e.kind == "manual":
        return f"{e['what']} by hand"
    if e.kind in ("wait", "ack", "refused"):
        return f"{e.kind} {e.get('group', '')}"
    return str(e.get("name") or e.get("act") or e.kind)


def _names(found: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    places = sorted({(t["pid"], t["tid"]) for t in found})
    for process in sorted({p for p, _ in places}):
        if process >= _RANK:
            name = f"rank {process - _RANK}"
        else:
            name = "run" if process == _RUN else f"rail {process - _RAIL}"
        yield {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"name": "process_sort_index", "ph": "M", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for process, place in places:
        thread = place // _SLOTS
        if process >= _RANK:
            name = _THREAD_NAMES[thread]
        elif process == _RUN:
            name = {1: "points", 2: "control plane"}.get(thread, "machine")
        else:
            name = {1: "dark"}.get(thread, "packets dropped")
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": place, "args": {"name": name}}
