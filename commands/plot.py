"""``railyard plot``: figures and report of a results folder, made again, and its tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from html import escape

from commands.page.report.file import write_report
from commands.page.report.record import tables
from experiments.parser import Parser, folder
from experiments.redraw import kind_of, read_folder, redraw
from experiments.registry import find
from experiments.report import exit_status, show
from measure.results.foreign import reading
from measure.results.results import Results
from railyard.errors import PARTIAL_EXIT_STATUS


def main(arguments: Sequence[str]) -> int:
    """Draw the figures and print the tables; returns 0, or the exit status of a partial or an unfaithful run."""
    parser = Parser(
        prog="railyard plot",
        description="Draw figures and trace of a results folder and write its report again;\nprint its tables.",
    )
    parser.add_argument("results", type=folder, metavar="FOLDER", help="results folder of a run (its --out)")
    parser.add_argument("--quiet", action="store_true", help="names of the written files only, no tables")
    parser.add_argument("--json", action="store_true", help="the rows as JSON instead of tables")
    parser.add_argument("--html", action="store_true", help="the tables as HTML, for a notebook")
    parser.add_argument("--no-figures", action="store_true", help="nothing is written")
    parser.add_argument("--wide", action="store_true", help="all columns of the tables")
    parser.add_argument("--experiment", metavar="FILE.py:Class", help="the experiment, if its code is yours")
    options = parser.read(arguments)
    results = Results.open(options.results)
    with reading(results.folder):
        return _plot(results, options)


def _plot(results: Results, options: argparse.Namespace) -> int:
    kind = find(options.experiment) if options.experiment else kind_of(results)
    recorded = read_folder(results, kind)
    settings, rows = recorded.manifest["experiment"], recorded.rows
    if options.json:
        print(json.dumps(rows, indent=2))
    elif options.html:
        print(*tables(kind.report().tables(rows)), *(f"<p>{escape(note)}</p>" for note in recorded.notes), sep="")
    elif not options.quiet:
        show(kind.report(), rows, settings, packets=kind.packets, wide=options.wide, notes=recorded.notes)
    for note in recorded.notes if options.json or options.quiet else ():
        print(f"railyard: {note}", file=sys.stderr)
    if not options.no_figures:
        written = [*redraw(results.folder, kind, recorded), write_report([results.folder], kind=kind)]
        for path in () if options.json or options.html else written:
            print(path)
    if recorded.partial is not None:
        return PARTIAL_EXIT_STATUS
    return exit_status(rows) if kind.packets and not recorded.predicted else 0
