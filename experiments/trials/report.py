"""Report of a run of trials: tables on the terminal; figures and trace drawn from the results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from experiments.collective.figures import time_against_size
from experiments.rails.report import Column, plain_table, verdict_lines
from experiments.straggler.figures import straggler_figures
from experiments.straggler.law import StragglerLaw
from measure.figures.style import png
from measure.metrics.fidelity import NOT_FAITHFUL
from measure.results.manifest import scale_of
from measure.results.results import FIGURES, TRACE, Results
from measure.results.row import Row
from measure.results.trace import trace_json
from railyard.scale import goodput_share

TRIAL_EXPERIMENTS = ("collective", "straggler")
"""Experiments whose rows are trials and which this module reports."""
_COLUMNS: tuple[Column, ...] = (
    ("algorithm", "left"),
    ("ranks", "right"),
    ("MB", "right"),
    ("fabric", "left"),
    ("reconf.\nms", "right"),
    ("late\ns", "right"),
    ("time\ns", "right"),
    ("model\ns", "right"),
    ("off\n%", "right"),
    ("after\narrival s", "right"),
    ("ring /\nthis", "right"),
    ("busbw\nGb/s", "right"),
    ("wrong", "right"),
    ("faithful", "left"),
)


def trial_place(row: Row) -> str:
    """The name of a row's trial in the lines of the verdict."""
    late = f", {row['straggler_delay_s']:.3g} s late" if row["straggler_delay_s"] else ""
    return f"{row['algorithm']}, {row['n']} ranks, {row['bytes']} bytes, {row['fabric']}{late}"


def print_trials(rows: Sequence[Row], console: Console) -> None:
    """Print a table for each study, and the verdict."""
    if not console.is_terminal:
        console = Console(file=console.file, width=150, no_color=True)
    for study in dict.fromkeys(row["study"] for row in rows):
        mine = [row for row in rows if row["study"] == study]
        console.print(Text(f"study: {study}" if study else "collectives", style="bold"))
        console.print(plain_table(_COLUMNS, (_cells(row, mine) for row in mine)))
    for line in verdict_lines(rows, trial_place):
        console.print(line)


def _cells(row: Row, rows: Sequence[Row]) -> list[str | Text]:
    rings = [r for r in rows if r["algorithm"] == "ring" and _same_but_algorithm(r, row)]
    ratio = rings[0]["after_arrival_s"] / row["after_arrival_s"] if rings and row["after_arrival_s"] else None
    off = (row["time_s"] / row["predicted_time_s"] - 1) * 100 if row["predicted_time_s"] else None
    return [
        row["algorithm"],
        str(row["n"]),
        f"{row['bytes'] / 1e6:.4g}",
        row["fabric"],
        f"{row['reconfiguration_delay_ms']:g}",
        f"{row['straggler_delay_s']:.3f}",
        f"{row['time_s']:.4f}",
        f"{row['predicted_time_s']:.4f}",
        "-" if off is None else f"{off:+.1f}",
        f"{row['after_arrival_s']:.4f}",
        "-" if ratio is None else f"{ratio:.3f}",
        "-" if row["busbw_gbps"] is None else f"{row['busbw_gbps']:.4g}",
        "-" if row["wrong"] is None else str(row["wrong"]),
        Text("yes", "green") if row["faithful"] else Text(NOT_FAITHFUL, "bold red"),
    ]


def _same_but_algorithm(one: Row, other: Row) -> bool:
    keys = ("n", "bytes", "fabric", "reconfiguration_delay_ms", "straggler_delay_s", "persistence", "all_reduce_share")
    return all(one.get(key) == other.get(key) for key in keys)


def laws(rows: Sequence[Row]) -> list[StragglerLaw]:
    """The closed forms, without latency, for every number of ranks and buffer size at which StragglAR was measured."""
    found = {(r["n"], r["bytes"]): r for r in rows if r["experiment"] == "straggler" and r["algorithm"] == "stragglar"}
    return [
        StragglerLaw(n, size, 0.0, row["port_gbps"] * 1e9 / 8 * goodput_share(row["mtu"]), row["second_phase_rounds"])
        for (n, size), row in found.items()
    ]


def redraw_trials(folder: Path) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``ConfigError`` if ``folder`` is not a results folder.
    """
    results = Results.open(folder)
    scale, rows = scale_of(results.manifest()), results.rows()
    written = [results.write(TRACE, trace_json(results.events(), scale))]
    faithful = bool(rows) and all(row["faithful"] for row in rows)
    drawn = {"collective": time_against_size(rows), **straggler_figures(rows, laws(rows))}
    for name, figure in drawn.items():
        if figure is not None:
            written.append(results.write(f"{FIGURES}/{name}.png", png(figure, scale, faithful=faithful)))
    results.hand_over()
    return written
