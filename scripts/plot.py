#!/usr/bin/env python3
"""Draw the figures and the trace of a results folder again, from the folder alone; prints its table too."""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

import argparse
import sys
from pathlib import Path

from rich.console import Console

from measure.allocation_report import print_allocation, redraw_allocation
from measure.case_report import CASE_EXPERIMENTS, print_cases, redraw_cases
from measure.manifest import scale_of
from measure.report import exit_status, print_report, redraw
from measure.results import Results
from railyard.errors import RailyardError


def main() -> int:
    """0, or the status that the run itself ended with: a run that was not faithful stays so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the folder that a run wrote (--out)")
    parser.add_argument("--quiet", action="store_true", help="no table, only the files written")
    options = parser.parse_args()
    try:
        results = Results.open(options.results)
        experiment = results.manifest()["experiment"].get("experiment")
        if experiment == "allocation":
            return show_allocation(results, quiet=options.quiet)
        of_cases = experiment in CASE_EXPERIMENTS
        written = redraw_cases(options.results) if of_cases else redraw(options.results)
    except RailyardError as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return error.exit_status
    if not options.quiet and of_cases:
        print_cases(results.rows(), Console())
    elif not options.quiet:
        print_report(results.rows(), scale_of(results.manifest()))
    for path in written:
        print(path)
    return exit_status(results.rows())


def show_allocation(results: Results, *, quiet: bool) -> int:
    """The same for studies that were computed: there is nothing to be faithful to."""
    written = redraw_allocation(results.folder)
    if not quiet:
        print_allocation(results.rows(), Console())
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
