"""Figures and trace of a failover or server-fabric run, drawn from its results folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from experiments.failover.figures import FabricRun, recovery_breakdown, step_times, throughput_over_time
from experiments.racks.incarnations import jobs_of, read_incarnations
from experiments.racks.job_throughput import job_throughputs
from experiments.racks.recovery import recoveries
from experiments.server_fabric.figures import recovery_timeline, shapes
from measure.figures.style import png
from measure.metrics.point import within
from measure.results.manifest import scale_of
from measure.results.results import FIGURES, TRACE, Results
from measure.results.row import Row
from measure.results.trace import trace_json
from railyard.scale import Scale
from railyard.timeline import Event

_BINS_PER_STEP = 8
_SHORTEST_BIN_S = 0.05
_MOST_PANELS = 6
_MOST_ROWS = 24


def redraw_failover(folder: Path) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``ConfigError`` if ``folder`` is not a results folder.
    """
    results = Results.open(folder)
    scale, rows, events = scale_of(results.manifest()), results.rows(), results.events()
    written = [results.write(TRACE, trace_json(events, scale))]
    for name, (figure, of_rows) in _figures(rows, events, scale).items():
        if figure is not None:
            faithful = bool(of_rows) and all(row.get("faithful") for row in of_rows)
            written.append(results.write(f"{FIGURES}/{name}.png", png(figure, scale, faithful=faithful)))
    results.hand_over()
    return written


def _figures(
    rows: Sequence[Row], events: Sequence[Event], scale: Scale
) -> Mapping[str, tuple[Figure | None, Sequence[Row]]]:
    """Every figure by name, with the rows whose faithfulness decides on the figure's stamp."""
    faults = [row for row in rows if row.get("breakdown")]
    shown = [row for row in rows if row.get("measure")]
    first = faults[:1]
    return {
        "throughput": (throughput_over_time(list(fabric_runs(events, rows, scale))), rows),
        "recovery": (recovery_breakdown(faults[:_MOST_ROWS]), faults),
        "step-times": (step_times(_first_of_each(rows)), rows),
        "recovery-timeline": (recovery_timeline(first[0]) if first else None, first),
        "server-fabric": (shapes(shown), shown),
    }


def fabric_runs(events: Sequence[Event], rows: Iterable[Row], scale: Scale) -> Iterator[FabricRun]:
    """The first run with a fault on each fabric, at most ``_MOST_PANELS``.

    A run is the time of a ``run point`` event, whose ``mode`` is the name of the fabric in the rows.
    """
    systems = {row["fabric"]: row["system"] for row in rows if "system" in row}
    drawn: set[str] = set()
    for e in events:
        if e.source != "run" or e.kind != "point" or e.end is None or e["mode"] in drawn or len(drawn) >= _MOST_PANELS:
            continue
        run = fabric_run(within(events, e.t, e.end), e["mode"], systems.get(e["mode"], ""), scale)
        if run is not None:
            drawn.add(e["mode"])
            yield run


def fabric_run(events: Sequence[Event], fabric: str, system: str, scale: Scale) -> FabricRun | None:
    """The data of the throughput figure for the first fault of a run; None if no job lost a chip."""
    recovery = next((r for r in recoveries(events, scale) if r.state != "no member"), None)
    if recovery is None:
        return None
    step_s = recovery.step_time_before_s or recovery.first_step_s or 1.0
    bin_s = max(step_s / _BINS_PER_STEP, _SHORTEST_BIN_S)
    found = job_throughputs(events, scale, recovery.fault_t, bin_s)
    if recovery.job not in found:
        return None
    other = next((job for job in jobs_of(read_incarnations(events)) if job != recovery.job), "")
    return FabricRun(fabric, system, found[recovery.job], found.get(other), recovery.marks, recovery.state)


def _first_of_each(rows: Iterable[Row]) -> list[Row]:
    """The first row with a step time of each fabric and tenant."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.get("step_time_before_s"):
            found.setdefault((row["fabric"], row["tenant"]), row)
    return list(found.values())
