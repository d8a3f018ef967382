"""Measures the runs of claims one after another, as processes of their own, and keeps their numbers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.claims.claim import MeasuredRun
from experiments.claims.kept import as_text, kept_from, write_file
from experiments.redraw import redraw
from measure.results.partial import partial
from measure.results.results import FIGURES, Results
from railyard.child import end_child, start_python
from railyard.errors import ConfigError
from railyard.ownership import open_text

_END_S = 60.0
"""Longest time that a run which was told to stop has for taking down its network."""
_LAST_LINES = 3


def measure_all(
    runs: Sequence[MeasuredRun], out: Path, docs: Path, say: Callable[[str], None], *, again: bool = True
) -> list[str]:
    """Measure ``runs``, each into a folder of ``out``, and keep its numbers and figures in ``docs`` when it ends.

    A run that fails leaves what is kept of it unchanged, and the others go on; the result is a sentence for each such
    run. ``again`` False measures nothing: the results in ``out`` are taken.
    """
    failed = []
    for number, run in enumerate(runs, 1):
        began = time.monotonic()
        if again:
            say(f"{run.name} ({number} of {len(runs)}, about {run.minutes:g} min): {run.command}")
        try:
            if again:
                measure(run, out)
            keep(run, out / run.name, docs, draw=not again)
        except Exception as error:  # whatever it is, the other runs go on
            failed.append(f"{run.name}: {error}")
            say(f"  FAILED: {error}")
            continue
        say(f"  kept ({(time.monotonic() - began) / 60:.1f} min)")
    return failed


def measure(run: MeasuredRun, out: Path) -> None:
    """Run the command of ``run`` with its results in a folder of ``out``, and what it prints in a file beside that.

    ``ConfigError`` with its last words if it did not end with complete results. The exit status does not count: a run
    of which points are not faithful has results too.
    """
    log = out / f"{run.name}.log"
    with open_text(log, "w") as said:
        process = start_python(
            "experiments.command.main",
            *run.words,
            "--out",
            str(out / run.name),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait()
        except BaseException:
            process.terminate()
            end_child(process, _END_S)
            raise
    if not (out / run.name).is_dir():
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]) or "it said nothing"
        raise ConfigError(f"the command ended with status {process.returncode}: {last}")


def keep(run: MeasuredRun, folder: Path, docs: Path, *, draw: bool = False) -> None:
    """Keep the numbers of a results folder, and its figures, which are drawn again with ``draw``.

    ``ConfigError`` for results that are not there or not complete.
    """
    results = Results.open(folder)
    manifest, rows = results.manifest(), results.rows()
    said = partial(manifest, rows)
    if said is not None or not rows:
        raise ConfigError(f"{said or 'no row was measured'}; see {folder}.log")
    write_file(docs / "measured" / f"{run.name}.json", as_text(run.name, kept_from(run, results)).encode())
    if draw and run.figures:
        redraw(folder)
    images = {place: folder / FIGURES / f"{name}.png" for name, place in run.figures.items()}
    for place, image in images.items():
        if image.is_file():
            write_file(docs / "figures" / place, image.read_bytes())
    missing = [path for path in images.values() if not path.is_file()]
    if missing:
        raise ConfigError(f"its numbers are kept, but {missing[0]} was not drawn")
