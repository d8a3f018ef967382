#!/usr/bin/env python3
"""Draw the figures and the trace of a results folder again, and print its tables."""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from experiments.all_to_all.report import ALL_TO_ALL, print_all_to_all, redraw_all_to_all
from experiments.allocation.report import print_allocation, redraw_allocation
from experiments.racks.redraw import redraw_failover
from experiments.racks.report import print_recoveries, print_server_fabric
from experiments.rails.report import exit_status, print_report, redraw
from experiments.trials.report import TRIAL_EXPERIMENTS, print_trials, redraw_trials
from measure.results.manifest import scale_of
from measure.results.results import Results
from railyard.errors import RailyardError


def main() -> int:
    """Run the script; returns 0, or the exit status of an unfaithful run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, metavar="RESULTS", help="results folder of a run (its --out)")
    parser.add_argument("--quiet", action="store_true", help="names of the written files only, no tables")
    options = parser.parse_args()
    try:
        results = Results.open(options.results)
        draw, show = functions_of(str(results.manifest()["experiment"].get("experiment")))
        written = draw(options.results)
    except RailyardError as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return error.exit_status
    if not options.quiet:
        show(results)
    for path in written:
        print(path)
    return 0 if draw is redraw_allocation else exit_status(results.rows())


def functions_of(experiment: str) -> tuple[Callable[[Path], Sequence[Path]], Callable[[Results], None]]:
    """The function that draws the figures of an experiment, and the function that prints its tables."""
    console = Console()
    if experiment == "allocation":
        return redraw_allocation, lambda results: print_allocation(results.rows(), console)
    if experiment == "server-fabric":
        return redraw_failover, lambda results: print_server_fabric(results.rows(), console)
    if experiment == "failover":
        return redraw_failover, lambda results: print_recoveries(results.rows(), console)
    if experiment == ALL_TO_ALL:
        return redraw_all_to_all, lambda results: print_all_to_all(results.rows(), console)
    if experiment in TRIAL_EXPERIMENTS:
        return redraw_trials, lambda results: print_trials(results.rows(), console)
    return redraw, lambda results: print_report(results.rows(), scale_of(results.manifest()))


if __name__ == "__main__":
    sys.exit(main())
