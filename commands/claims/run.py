"""Measures the runs of claims one after another, as processes of their own, and keeps their numbers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from commands.claims.claim import MeasuredRun
from commands.claims.kept import Kept, as_text, kept_from, write_file
from experiments.redraw import redraw
from measure.results.foreign import reading
from measure.results.partial import partial
from measure.results.results import FIGURES, Results
from railyard.child import end_child, start_python
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, RailyardError
from railyard.ownership import open_text

_END_S = 60.0
"""Longest time that a run which was told to stop has for taking down its network."""
_LAST_LINES = 3
_WITH_RESULTS = (0, 1, NOT_FAITHFUL_EXIT_STATUS)
"""Exit statuses of a command with complete results; 1: a limit was missed (bench), a matching got no answer (mesh)."""


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
            kept = keep(run, out / run.name, docs, draw=not again)
        except (RailyardError, OSError) as error:  # the other runs go on
            failed.append(f"{run.name}: {error}")
            say(f"  FAILED: {error}")
            continue
        say(f"  kept ({(time.monotonic() - began) / 60:.1f} min)")
        if kept.origin["changed"]:
            say("  from a changed checkout, which its page says: commit the change, and measure again")
    return failed


def measure(run: MeasuredRun, out: Path) -> None:
    """Run the command of ``run`` with its results in a folder of ``out``, and what it prints in a file beside that.

    ``ConfigError`` if there are results of that name, and with its last words if the command failed. A run of which
    points are not faithful, or miss a limit, has results too.
    """
    if (out / run.name).exists():
        raise ConfigError(f"{out / run.name} exists, and would be taken for the new results; give another --out")
    log = out / f"{run.name}.log"
    with open_text(log, "w") as said:
        process = start_python(
            "commands.main",
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
    if process.returncode not in _WITH_RESULTS or not (out / run.name).is_dir():
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]) or "it said nothing"
        raise ConfigError(f"the command ended with status {process.returncode}: {last}")


def keep(run: MeasuredRun, folder: Path, docs: Path, *, draw: bool = False) -> Kept:
    """Keep the numbers of a results folder, and its figures, which are drawn again with ``draw``; returns the numbers.

    ``ConfigError`` for results that are not there, not complete, or that this version does not write.
    """
    results = Results.open(folder)
    with reading(folder):
        manifest, rows = results.manifest(), results.rows()
        said, kept = partial(manifest, rows), kept_from(run, results, manifest, rows)
    if said is not None or not rows:
        raise ConfigError(f"{said or 'no row was measured'}; see {folder}.log")
    write_file(docs / "measured" / f"{run.name}.json", as_text(run.name, kept).encode())
    if draw and run.figures:
        redraw(folder)
    images = {place: folder / FIGURES / f"{name}.png" for name, place in run.figures.items()}
    for place, image in images.items():
        if image.is_file():
            write_file(docs / "figures" / place, image.read_bytes())
    missing = [path for path in images.values() if not path.is_file()]
    if missing:
        raise ConfigError(f"its numbers are kept, but {missing[0]} was not drawn")
    return kept
