"""Figures and trace of a results folder, drawn from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from experiments.registry import find
from experiments.report import MODEL_ONLY, Recorded, why_not_faithful
from measure.results.folder import is_locked
from measure.results.foreign import check_rows
from measure.results.partial import partial
from measure.results.results import FIGURES, SUMMARY, TRACE, Results
from measure.results.trace import trace_json
from railyard.errors import ConfigError, in_file
from railyard.timeline import Event


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
        check_rows(rows, () if kind is None else kind.rows)
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
