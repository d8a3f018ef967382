#!/usr/bin/env python3
"""Compute the cost of fragmentation in racks of accelerators, and the savings of
a photonic fabric in the servers. No packets; needs no root.

scripts/allocation.py                 # all studies: 8 clusters, 64 racks each
scripts/allocation.py --quick         # one cluster
scripts/allocation.py --study requests,mixes --freed 0.3    # large slices
scripts/allocation.py --mix 4:4,8:2,16:1      # sizes of slices and weights
scripts/allocation.py --torus 4x4x2 --server 2x2x1 --request 16
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

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
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options override its keys")
    add(
        "--study",
        type=words,
        dest="studies",
        metavar="NAME,...",
        help=f"studies to compute (default all): {', '.join(STUDIES)}",
    )
    add("--racks", metavar="N", help="number of racks per cluster (default 64)")
    add("--clusters", metavar="N", help="number of clusters, each with other draws (default 8)")
    add("--torus", metavar="XxYxZ", help="torus of chips of a rack (default 4x4x4)")
    add("--server", metavar="XxYxZ", help="block of chips of a server (default 2x2x1)")
    add("--fibres", metavar="N", help="fibres between two adjacent servers (default 4)")
    add(
        "--mix",
        metavar="NAME|4:4,8:2",
        help=f"mix of slices that fill the racks: {', '.join(MIXES)}, or chips:weight,... (default servers)",
    )
    add("--freed", type=words, metavar="SHARE,...", help="shares of the chips that are released (default 0.2,0.3)")
    add("--request", metavar="CHIPS", help="size of the slices requested after that, in chips (default 32)")
    add("--failures", type=words, metavar="N,...", help="numbers of dead chips per rack (default 1,2,3,4)")
    add("--slo", metavar="SHARE", help="service level that the spares must guarantee (default 0.95)")
    add("--no-wrap", dest="wrap", action="store_false", default=None, help="no slices across the edge of a rack")
    add("--limit-ms", metavar="MS", help="time limit of one fragmented request, in ms (default 500)")
    add("--seed", metavar="N", help="seed of all draws (default 1)")
    add("--quick", action="store_true", help="one cluster only")
    add("--json", type=Path, metavar="FILE", help="file for the rows as JSON")
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/allocation-DATE-TIME)")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> AllocationExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, AllocationExperiment, "studies, racks, mix, freed")
    values |= given(options, "studies", "racks", "clusters", "torus", "server", "fibres", "mix", "freed", "request")
    values |= given(options, "failures", "slo", "wrap", "limit_ms", "seed")
    return validated(AllocationExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
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
    """Show and save the computed rows, also after a run that was interrupted."""
    console = Console()
    print_allocation(record.rows, console)
    redraw_allocation(out)
    console.print(f"Results in {out}", highlight=False)
    if options.json is not None:
        options.json.write_text(json.dumps(plain(record.rows), indent=2) + "\n", encoding="utf-8")
        hand_over(options.json)


if __name__ == "__main__":
    sys.exit(run_script("allocation.py", lambda: run(parse())))
