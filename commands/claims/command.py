"""``railyard claims``: what this project claims, with the numbers that were measured last, and how to repeat them."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from commands.claims.claim import DOCS, Catalog, Claim, Judged, MeasuredRun, judge, read_catalog
from commands.claims.kept import Kept, as_text, kept_from, older_by, read_kept, write_file
from commands.claims.pages import (
    PREDICTED,
    Pages,
    cells,
    day,
    interval_in_words,
    machine,
    median_in_words,
    pages_of,
    version,
)
from commands.command_process import last_line, run_command
from experiments.parser import Parser, folder
from experiments.redraw import redraw
from experiments.report import Column, Table, as_rich, console_for_tables, left_out_lines
from measure.results.folder import new_folder
from measure.results.foreign import reading
from measure.results.partial import partial
from measure.results.results import FIGURES, Results
from measure.results.row import Row
from railyard.checkout import SETUP
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, MachineError, RailyardError, nearest
from railyard.ownership import make_folder

FAILED_EXIT_STATUS = 1
_COLOURS = {"holds": "green", "does not hold": "red", "not faithful": "bold red", "not measured": "yellow"}
_ABOUT = """What this project claims: each number as it was measured or predicted last,
what it is compared with, and whether it holds. With NAMEs (of claims or of
runs) these claims in full.

  railyard claims                        # all claims
  railyard claims opus-slope             # one, with its command and origin
  sudo railyard claims --run             # measure all again (half an hour)
  sudo railyard claims --run rails mesh  # some of them
  railyard claims --run --quick          # those without root, in seconds
  railyard claims --pages                # the pages of the documents again"""


def main(arguments: Sequence[str]) -> int:
    """Show or measure claims; returns 0, 1 if a run failed or a verdict is not the expected one, 8 if not faithful."""
    parser = Parser(prog="railyard claims", description=_ABOUT)
    parser.add_argument("names", nargs="*", metavar="NAME", help="claims, or runs for all claims of each (default all)")
    parser.add_argument("--run", action="store_true", help="run their commands, keep the numbers, write the pages")
    parser.add_argument("--quick", action="store_true", help="only claims that need no root and take seconds")
    parser.add_argument("--pages", action="store_true", help="write the pages from the kept numbers")
    parser.add_argument(
        "--docs", type=folder, metavar="FOLDER", default=DOCS, help="documents (default the checkout's)"
    )
    parser.add_argument(
        "--out", type=folder, metavar="FOLDER", help="results of --run (default results/claims-DATE-TIME)"
    )
    parser.add_argument("--results", type=folder, metavar="FOLDER", help="with --run: take those of an earlier --out")
    parser.add_argument("--wide", action="store_true", help="all columns of the table")
    options = parser.read(arguments)
    if not options.docs.is_dir():
        raise ConfigError(f"{options.docs} is no folder; name the folder docs of a checkout of Railyard", key="--docs")
    catalog = read_catalog(options.docs)
    chosen = claims_of(catalog, options.names, quick=options.quick)
    runs = [run for name, run in catalog.runs.items() if any(claim.run == name for claim in chosen)]
    _check(options, runs)
    failed: list[str] = []
    try:
        failed = _measure(runs, options) if options.run else []
    finally:  # what was measured until Ctrl-C is kept, and the pages show it
        kept, said = read_kept(options.docs / "measured", list(catalog.runs))
        judged = judged_claims(catalog, kept)
        if options.run or options.pages:
            failed += write_pages(Pages(catalog.runs, kept, judged), options.docs)
    shown = [each for each in judged if each.claim in chosen]
    if not options.pages:
        _show(shown, catalog, kept, full=bool(options.names) and not options.run, wide=options.wide)
    unexpected = [each.unexpected for each in shown if each.unexpected is not None]
    for sentence in (*said, *failed, *unexpected):
        print(f"railyard: {sentence}", file=sys.stderr)
    if failed or unexpected:
        return FAILED_EXIT_STATUS
    return NOT_FAITHFUL_EXIT_STATUS if options.run and any(each.verdict == "not faithful" for each in shown) else 0


def judged_claims(catalog: Catalog, kept: Mapping[str, Kept]) -> list[Judged]:
    """Every claim of the catalog, judged by what is kept of its run."""
    return [
        replace(
            judge(claim, kept[claim.run].rows if claim.run in kept else None),
            predicted=catalog.runs[claim.run].verb == "predict",
        )
        for claim in catalog.claims.values()
    ]


def claims_of(catalog: Catalog, names: Sequence[str], *, quick: bool = False) -> list[Claim]:
    """The claims that ``names`` name, or all; ``ConfigError`` for a name of no claim and no run."""
    known = [*catalog.claims, *catalog.runs]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"is no claim and no run{nearest(name, known) or '; railyard claims lists them'}", key=name
            )
    wanted = [claim for claim in catalog.claims.values() if not names or claim.name in names or claim.run in names]
    chosen = [claim for claim in wanted if catalog.runs[claim.run].quick or not quick]
    if not chosen:
        raise ConfigError(f"{', '.join(names)} needs root or takes minutes; leave --quick out", key="--quick")
    return chosen


def _check(options: Namespace, runs: Sequence[MeasuredRun]) -> None:
    if (options.run or options.pages) and options.docs == DOCS and not SETUP.exists():
        raise ConfigError(f"writes numbers and pages: copy {DOCS}, and name the copy", key="--docs")
    for name in ("out", "results"):
        if getattr(options, name) is not None and not options.run:
            raise ConfigError("is used with --run alone; leave it out", key=f"--{name}")
    if options.out is not None and options.results is not None:
        raise ConfigError("measures nothing, so --out is not used with it; leave one out", key="--results")
    need = [run.name for run in runs if run.root]
    if options.run and options.results is None and need and os.geteuid() != 0:
        verb = "needs" if len(need) == 1 else "need"
        raise MachineError(
            f"{', '.join(need)} {verb} root; run: sudo {shlex.join(sys.argv)} (with --quick: what needs none)"
        )


def _measure(runs: Sequence[MeasuredRun], options: Namespace) -> list[str]:
    if options.results is not None:
        return measure_all(runs, options.results.resolve(), options.docs, print, again=False)
    out: Path = options.out or new_folder(Path("results"), "claims")
    make_folder(out.resolve())
    began = time.monotonic()
    failed = measure_all(runs, out.resolve(), options.docs, lambda line: print(line, flush=True))
    print(f"{len(runs)} runs in {(time.monotonic() - began) / 60:.1f} min; results in {out}")
    return failed


def write_pages(pages: Pages, docs: Path) -> list[str]:
    """Write the blocks of every page in the folder ``docs``; a sentence for each page that could not be made."""
    failed = []
    for path in pages_of(docs):
        try:
            text = pages.rewritten(path.read_text(encoding="utf-8"), str(path))
        except ConfigError as error:
            failed.append(str(error))
            continue
        if write_file(path, text.encode()):
            print(f"wrote {path}")
    return failed


# ---- on the terminal -------------------------------------------------------------------------------------------------


def _show(judged: Sequence[Judged], catalog: Catalog, kept: Mapping[str, Kept], *, full: bool, wide: bool) -> None:
    console = console_for_tables(wide=wide)
    if not full:
        table = Table("", _COLUMNS, [{"judged": claim} for claim in judged])
        console.print(as_rich(table, console.width))
        for line in left_out_lines([table], console.width):
            console.print(line, highlight=False)
        counts = {verdict: sum(each.verdict == verdict for each in judged) for verdict in _COLOURS}
        console.print("; ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count) + ".")
        claimed = {each.claim.run for each in judged}
        for line in _older([run for name, run in catalog.runs.items() if name in claimed], kept):
            console.print(line, highlight=False, markup=False)
        return
    for each in judged:
        console.print(Text(f"{each.claim.name}: ", style="bold").append(f"{each.claim.says}.", style="not bold"))
        for line in _lines(each, catalog.runs[each.claim.run], kept.get(each.claim.run)):
            console.print(f"  {line}", highlight=False, markup=False)


def _older(runs: Iterable[MeasuredRun], kept: Mapping[str, Kept]) -> Iterator[str]:
    """Name those of ``runs`` whose code has changed since their numbers were measured."""
    counts = {run.name: older_by(run, kept[run.name]) for run in runs if run.name in kept}
    older = [f"{name} ({count})" for name, count in counts.items() if count]
    if older:
        yield f"Measured before the last changes of their code (commits since): {', '.join(older)}."


def _here(row: Row) -> str | None:
    claim, number = row["judged"].claim, row["judged"].number
    if number is None:
        return None
    return f"{median_in_words(number, claim.form, claim.unit)}{PREDICTED if row['judged'].predicted else ''}"


def _interval(row: Row) -> str:
    claim, number = row["judged"].claim, row["judged"].number
    return "" if number is None else interval_in_words(number, claim.form)


_COLUMNS = (
    Column("claim", lambda row: row["judged"].claim.name, left=True),
    Column("here", _here, left=True),
    Column("95 % interval", _interval, left=True, wide=True),
    Column("compared with", lambda row: cells(row["judged"])[1], left=True),
    Column("verdict", lambda row: Text(row["judged"].verdict, _COLOURS[row["judged"].verdict]), left=True),
)


def _lines(judged: Judged, run: MeasuredRun, kept: Kept | None) -> list[str]:
    claim = judged.claim
    here, expected, tolerance, _ = cells(judged)
    lines = [f"here: {here}", f"compared with: {expected}, {tolerance}; source: {claim.source}"]
    lines += [f"verdict: {judged.verdict}", f"command: {run.command} (about {run.minutes:g} min)"]
    if kept is not None:
        done = "predicted" if judged.predicted else "measured"
        lines.append(f"last {done}: {day(kept)}, {version(kept)}, {machine(kept)}")
        count = older_by(run, kept)
        lines += [f"older than its code by {count} commit{'s' * (count > 1)}"] if count else []
    return lines + [text for text in (claim.note, claim.why) if text]


# ---- measuring again -------------------------------------------------------------------------------------------------


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
    status = run_command(["railyard", *run.words, "--out", str(out / run.name)], log)
    if status not in _WITH_RESULTS or not (out / run.name).is_dir():
        raise ConfigError(f"the command ended with status {status}: {last_line(log)}")


def keep(run: MeasuredRun, folder: Path, docs: Path, *, draw: bool = False) -> Kept:
    """Keep the numbers of a results folder, and its figures, which are drawn again with ``draw``; returns the numbers.

    ``ConfigError`` for results that are not there, not complete, or that this version does not write.
    """
    results = Results.open(folder)
    with reading(folder):
        manifest, rows = results.manifest(), results.rows()
        missing_points, kept = partial(manifest, rows), kept_from(run, results, manifest, rows)
    if missing_points is not None or not rows:
        raise ConfigError(f"{missing_points or 'no row was measured'}; see {folder}.log")
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
