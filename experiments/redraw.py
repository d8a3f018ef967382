"""Figures and trace of a results folder, drawn from what was recorded."""

from __future__ import annotations

from pathlib import Path

from experiments.registry import find
from experiments.report import Recorded
from measure.results.results import FIGURES, TRACE, Results
from measure.results.trace import trace_json


def redraw(folder: Path) -> list[Path]:
    """Draw all figures and the trace of a results folder again; returns the paths written.

    ``ConfigError`` if ``folder`` is not a results folder, or one of an experiment that is not there.
    """
    from measure.figures.style import png  # matplotlib takes a second

    results = Results.open(folder)
    manifest = results.manifest()
    kind = find(str(manifest["experiment"]["experiment"]))
    recorded = Recorded(manifest, results.rows(), results.events())
    scale = recorded.scale if kind.packets else None
    written = [results.write(TRACE, trace_json(recorded.events, scale))] if scale is not None else []
    for drawn in kind.report().figures(recorded):
        if drawn.figure is not None:
            faithful = scale is None or (bool(drawn.rows) and all(row.get("faithful") for row in drawn.rows))
            image = png(drawn.figure, scale, faithful=faithful, note=drawn.note)
            written.append(results.write(f"{FIGURES}/{drawn.name}.png", image))
    results.hand_over()
    return written
