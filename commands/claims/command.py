"""``railyard claims``: what this project claims, with the numbers that were measured last, and how to repeat them."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text

from commands.claims.claim import DOCS, Catalog, Claim, Judged, MeasuredRun, judge, read_catalog
from commands.claims.kept import MEASURED, Kept, as_text, kept_from, older_by, read_kept, write_file
from commands.claims.pages import (
    PREDICTED,
    Pages,
    cells,
    day,
    in_words,
    interval_in_words,
    machine,
    median_in_words,
    page_of,
    pages_of,
    version,
)
from commands.command_process import last_line, run_command
from experiments.parser import Parser, folder
from experiments.redraw import redraw
from experiments.report import Column, Table, as_rich, console_for_tables, left_out_lines
from measure.results.folder import new_folder
from measure.results.foreign import reading
from measure.results.partial import partial as partial_sentence
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
  railyard claims --run --out FOLDER     # measured for somebody else to compare
  railyard claims --compare FOLDER...    # and compared with what is kept here
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
        "--out", type=folder, metavar="FOLDER", help="with --run: keep numbers and verdicts here, not in the documents"
    )
    parser.add_argument(
        "--results", type=folder, metavar="FOLDER", help="with --run: take the results of an earlier one"
    )
    parser.add_argument(
        "--compare", type=folder, nargs="+", metavar="FOLDER", help="show what others have measured (--out) beside ours"
    )
    parser.add_argument("--wide", action="store_true", help="all columns of the table")
    options = parser.read(arguments)
    if not options.docs.is_dir():
        raise ConfigError(f"{options.docs} is no folder; name the folder docs of a checkout of Railyard", key="--docs")
    catalog = read_catalog(options.docs)
    chosen = claims_of(catalog, options.names, quick=options.quick)
    runs = [run for name, run in catalog.runs.items() if any(claim.run == name for claim in chosen)]
    _check(options, runs)
    if options.compare:
        return _compare(options, catalog, chosen)
    place: Path = options.out or options.docs / MEASURED
    failed: list[str] = []
    try:
        failed = _measure(runs, options, place) if options.run else []
    finally:  # what was measured until Ctrl-C is kept, and the pages show it
        kept, said = read_kept(place, list(catalog.runs))
        judged = judged_claims(catalog, kept)
        if options.out is not None:
            write_file(place / "claims.md", page_of(catalog.runs, kept, judged).encode())
        elif options.run or options.pages:
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
    if (options.run or options.pages) and options.out is None and options.docs == DOCS and not SETUP.exists():
        raise ConfigError(f"writes numbers and pages: copy {DOCS}, and name the copy", key="--docs")
    for name in ("out", "results"):
        if getattr(options, name) is not None and not options.run:
            raise ConfigError("is used with --run alone; leave it out", key=f"--{name}")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise ConfigError(f"{options.out} is no folder; name another", key="--out")
    if options.compare and (options.run or options.pages):
        raise ConfigError("measures nothing and writes nothing; leave it or the other option out", key="--compare")
    need = [run.name for run in runs if run.root]
    if options.run and options.results is None and need and os.geteuid() != 0:
        verb = "needs" if len(need) == 1 else "need"
        raise MachineError(
            f"{', '.join(need)} {verb} root; run: sudo {shlex.join(sys.argv)} (with --quick: what needs none)"
        )


def _measure(runs: Sequence[MeasuredRun], options: Namespace, place: Path) -> list[str]:
    figures = None if options.out is not None else options.docs / FIGURES
    make_folder(place.resolve())
    if options.results is not None:
        return measure_all(runs, options.results.resolve(), place, figures, print, again=False)
    out, began = new_folder(Path("results"), "claims"), time.monotonic()
    failed = measure_all(runs, out.resolve(), place, figures, lambda line: print(line, flush=True))
    print(f"{len(runs)} runs in {(time.monotonic() - began) / 60:.1f} min; results in {out}")
    if options.out is not None:
        print(f"To send: {place}")
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


# ---- beside what others have measured --------------------------------------------------------------------------------


def _compare(options: Namespace, catalog: Catalog, chosen: Sequence[Claim]) -> int:
    """Print the claims of ``chosen`` that are measured in one of the folders, with our number and that of each folder.

    What a folder holds is somebody else's: what is unreadable in it is named, and its claims count as not measured.
    """
    names, ours = ["documents", *map(str, options.compare)], options.docs / MEASURED
    kept, judged = list[dict[str, Kept]](), list[list[Judged]]()
    for place in (ours, *options.compare):
        found, unreadable = read_kept(place, list(catalog.runs))
        if place is not ours and not found and not unreadable:
            raise ConfigError(
                f"{place} holds no number of a claim; railyard claims --run --out writes such a folder", key="--compare"
            )
        for sentence in unreadable:
            print(f"railyard: {sentence}", file=sys.stderr)
        with reading(place):
            judged.append(judged_claims(catalog, found))
        kept.append(found)
    rows = [
        {"claim": of_one[0].claim, "judged": of_one}
        for of_one in zip(*judged, strict=True)
        if of_one[0].claim in chosen and any(of_one[0].claim.run in found for found in kept[1:])
    ]
    columns = [Column("claim", lambda row: row["claim"].name, left=True)]
    columns += [Column(name, partial(_on_machine, number), left=True) for number, name in enumerate(names)]
    table = Table("", columns, rows)
    console = console_for_tables(wide=options.wide)
    console.print(as_rich(table, console.width))
    for name, found in zip(names, kept, strict=True):
        counts = Counter(f"{machine(run)}, Railyard {run.origin['version']}" for run in found.values()).most_common()
        runs = "; ".join(f"{where} ({count} run{'s' * (count > 1)})" for where, count in counts)
        console.print(f"{name}: {runs or 'nothing'}.", highlight=False, markup=False)
    same = sum(len({of_one.verdict for of_one in row["judged"]}) == 1 for row in rows)
    console.print(f"Of {len(rows)} claims {same} have the same verdict everywhere.", highlight=False)
    return 0


def _on_machine(place: int, row: Row) -> Text:
    """The number of a claim on a machine, with its interval, and below it the verdict."""
    each: Judged = row["judged"][place]
    claim, number = each.claim, each.number
    shown = "" if number is None else f"{in_words(number, claim.form, claim.unit)}\n"
    said = each.verdict.upper() if each.verdict == "not faithful" else each.verdict
    return Text(shown).append(f"{said}{PREDICTED if each.predicted and number else ''}", _COLOURS[each.verdict])


# ---- measuring again -------------------------------------------------------------------------------------------------


_WITH_RESULTS = (0, 1, NOT_FAITHFUL_EXIT_STATUS)
"""Exit statuses of a command with complete results; 1: a limit was missed (bench), a matching got no answer (mesh)."""


def measure_all(
    runs: Sequence[MeasuredRun],
    out: Path,
    place: Path,
    figures: Path | None,
    say: Callable[[str], None],
    *,
    again: bool = True,
) -> list[str]:
    """Measure ``runs``, each into a folder of ``out``; when it ends its numbers are kept in ``place`` (``keep``).

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
            kept = keep(run, out / run.name, place, figures, draw=not again)
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

    ``ConfigError`` with its last words if the command failed. A run of which points are not faithful, or miss a limit,
    has results too.
    """
    log = out / f"{run.name}.log"
    status = run_command(["railyard", *run.words, "--out", str(out / run.name)], log)
    if status not in _WITH_RESULTS or not (out / run.name).is_dir():
        raise ConfigError(f"the command ended with status {status}: {last_line(log)}")


def keep(run: MeasuredRun, folder: Path, place: Path, figures: Path | None, *, draw: bool = False) -> Kept:
    """Keep the numbers of a results folder in ``place``, and its figures in ``figures``; returns the numbers.

    The figures are drawn again with ``draw``; with ``figures`` None they are not kept.
    ``ConfigError`` for results that are not there, not complete, or that this version does not write.
    """
    results = Results.open(folder)
    with reading(folder):
        manifest, rows = results.manifest(), results.rows()
        missing_points, kept = partial_sentence(manifest, rows), kept_from(run, results, manifest, rows)
    if missing_points is not None or not rows:
        raise ConfigError(f"{missing_points or 'no row was measured'}; see {folder}.log")
    write_file(place / f"{run.name}.json", as_text(run.name, kept).encode())
    if figures is None:
        return kept
    if draw and run.figures:
        redraw(folder)
    images = {file: folder / FIGURES / f"{name}.png" for name, file in run.figures.items()}
    for file, image in images.items():
        if image.is_file():
            write_file(figures / file, image.read_bytes())
    missing = [path for path in images.values() if not path.is_file()]
    if missing:
        raise ConfigError(f"its numbers are kept, but {missing[0]} was not drawn")
    return kept
