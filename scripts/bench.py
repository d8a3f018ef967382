#!/usr/bin/env python3
"""Run benchmarks of Railyard on this machine: links, collectives, bring-up,
control plane, dark time, slopes.

sudo scripts/bench.py                         # all, about ten minutes
sudo scripts/bench.py --only links,rewire     # some of them
sudo scripts/bench.py --only slopes --json slopes.json
scripts/bench.py --list                       # names and descriptions

Each value is shown beside its limit and, if there is one, beside the value of
stock Mininet in the same run. A machine with other load gives worse values:
compare ratios, and repeat the run.
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.bench import Measurement, finite, not_measured
from experiments.bench.catalog import BENCHES
from measure.results.ownership import hand_over
from railyard.errors import ConfigError, MachineError, RailyardError


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME,...", help=f"benchmarks to run (default all): {', '.join(BENCHES)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the measurements as JSON")
    parser.add_argument("--list", action="store_true", help="list of the benchmarks; nothing is measured")
    return parser.parse_args(arguments)


def chosen(only: str | None) -> list[str]:
    """The names of the benchmarks to run; ``ConfigError`` for an unknown name."""
    if only is None:
        return list(BENCHES)
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in BENCHES:
            raise ConfigError(f"{name} is not a benchmark; choose from {', '.join(BENCHES)}", key="--only")
    return names


def table(found: list[Measurement]) -> Table:
    """The measurements as a table for the terminal."""
    shown = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    for name, side in (("measurement", "left"), ("value", "right"), ("unit", "left"), ("stock", "right"),
                       ("ratio", "right"), ("limit", "right"), ("ok", "left")):  # fmt: skip
        shown.add_column(name, justify=side)  # type: ignore[arg-type]
    for one in found:
        verdict = "" if one.ok is None else "[green]yes[/green]" if one.ok else "[bold red]NO[/bold red]"
        if one.value is None:
            shown.add_row(one.name, "", "not measured", "", "", "", verdict)
            continue
        cells = [f"{n:.4g}" if n is not None else "" for n in (one.value, one.baseline, one.ratio, one.limit)]
        shown.add_row(one.name, cells[0], one.unit, cells[1], cells[2], cells[3], verdict)
    return shown


def measured(name: str) -> list[Measurement]:
    """The measurements of benchmark ``name``, or one row with the reason if it cannot measure."""
    try:
        return finite(BENCHES[name].measure())
    except RailyardError as error:
        return [not_measured(name, error)]


def main() -> int:
    """Run the script; returns 0 if every measurement kept its limit, 1 if one did not or could not be measured."""
    options = parse()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    if options.list:
        for name, bench in BENCHES.items():
            console.print(f"{name:<10} {bench.says}", highlight=False)
        return 0
    names = chosen(options.only)
    if os.geteuid() != 0:
        raise MachineError("network namespaces and Open vSwitch need root; run: sudo scripts/bench.py")
    found: list[Measurement] = []
    try:
        for name in names:
            with console.status(f"{name}: {BENCHES[name].says}"):
                found += measured(name)
    finally:
        console.print(table(found))
        for one in found:
            if one.value is None:
                console.print(f"{one.name}: not measured: {one.why_not}", markup=False, highlight=False, soft_wrap=True)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
            hand_over(options.json)
    return 1 if any(one.ok is False for one in found) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RailyardError as error:
        print(f"bench.py: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit("bench.py: stopped; the measurements so far are shown above")
