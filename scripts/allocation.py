#!/usr/bin/env python3
"""What does fragmentation cost racks of accelerators, and what does a photonic fabric in the servers save? No packets.

scripts/allocation.py                                       # all studies, 8 clusters of 64 racks of 4x4x4 chips
scripts/allocation.py --quick                               # one cluster
scripts/allocation.py --study requests,mixes --freed 0.3    # 32-chip slices that no longer fit
scripts/allocation.py --mix 4:4,8:2,16:1                    # sizes of slices and their weights
scripts/allocation.py --torus 4x4x2 --server 2x2x1 --request 16
"""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from experiments.allocation.report import print_allocation, redraw_allocation
from experiments.allocation.settings import MIXES, STUDIES, AllocationExperiment
from experiments.allocation.studies import Studies
from experiments.command import base_values, given, results_folder, run_script, words
from experiments.record import Record
from experiments.settings import validated
from measure.results.manifest import build_manifest
from measure.results.ownership import hand_over
from measure.results.results import plain
from railyard.scale import Scale

QUICK = {"clusters": 1}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    add("--study", type=words, dest="studies", metavar="NAME,...", help=f"of {','.join(STUDIES)} (default all)")
    add("--racks", help="racks of a cluster (default 64)")
    add("--clusters", help="clusters, each with its own draws (default 8)")
    add("--torus", metavar="4x4x4", help="chips of a rack")
    add("--server", metavar="2x2x1", help="chips of a server")
    add("--fibres", help="fibres between two adjacent servers (default 4)")
    add("--mix", metavar="NAME|4:4,8:2", help=f"slices that fill the racks: {', '.join(MIXES)}, or chips:weight,...")
    add("--freed", type=words, metavar="0.2,0.3", help="share of the chips that is given back (default both)")
    add("--request", help="chips of the slice asked for then (default 32)")
    add("--failures", type=words, metavar="1,2,3,4", help="dead chips in a rack")
    add("--slo", help="service level that the spares are for (default 0.95)")
    add("--no-wrap", dest="wrap", action="store_false", default=None, help="no slice across the edge of a rack")
    add("--limit-ms", help="bound in time of one fragmented request (default 500)")
    add("--seed", help="seed of all draws")
    add("--quick", action="store_true", help="one cluster")
    add("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    add("--out", type=Path, help="results folder (default results/allocation-DATE-TIME)")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> AllocationExperiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
    values = base_values(options, QUICK, AllocationExperiment, "studies, racks, mix, freed")
    values |= given(options, "studies", "racks", "clusters", "torus", "server", "fibres", "mix", "freed", "request")
    values |= given(options, "failures", "slo", "wrap", "limit_ms", "seed")
    return validated(AllocationExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Everything the command line asks for; returns the exit status."""
    experiment = experiment_of(options)
    out = results_folder(options.out, "allocation")
    record = Record(out)
    record.open(
        build_manifest(
            experiment=experiment.model_dump(mode="json"),
            seed=experiment.seed,
            scale=Scale(1.0, 1.0),
            plans=[],
            groups={},
        )
    )
    error: BaseException | None = None
    try:
        with Console(stderr=True).status("computing"):
            for row in Studies(experiment).rows():
                record.add_row(row)
    except BaseException as stopped:
        error = stopped
        raise
    finally:
        record.close(error)
        finish(record, options, out)
    return 0


def finish(record: Record, options: argparse.Namespace, out: Path) -> None:
    """Show and keep what was computed, also when the run stopped half-way."""
    console = Console()
    print_allocation(record.rows, console)
    redraw_allocation(out)
    console.print(f"Results in {out}", highlight=False)
    if options.json is not None:
        options.json.write_text(json.dumps(plain(record.rows), indent=2) + "\n", encoding="utf-8")
        hand_over(options.json)


if __name__ == "__main__":
    sys.exit(run_script("allocation.py", lambda: run(parse())))
