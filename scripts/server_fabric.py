#!/usr/bin/env python3
"""Measure the gain of steerable server links on MORPHLUX's prototype: iperf3,
all-reduce, epochs, recovery.

sudo scripts/server_fabric.py                 # all studies on both fabrics
sudo scripts/server_fabric.py --quick         # one shape, shorter
sudo scripts/server_fabric.py --study batch   # epochs at batch sizes 2, 4, 8
sudo scripts/server_fabric.py --study recovery --time 1   # in real time
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.command import (
    base_values,
    given,
    need_root,
    print_progress,
    put_section,
    results_folder,
    run_script,
    words,
)
from experiments.racks.redraw import redraw_failover
from experiments.racks.report import print_server_fabric
from experiments.rails.report import exit_status
from experiments.server_fabric.run import ServerFabricRun
from experiments.server_fabric.settings import STUDIES, ServerFabricExperiment
from experiments.settings import validated

QUICK: dict[str, Any] = {"studies": ["iperf3", "epoch"], "shapes": ["2x1x1"], "iperf_s": 2, "scale": {"time": 0.1}}


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
        help=f"studies to measure (default all): {', '.join(STUDIES)}",
    )
    add("--shapes", type=words, metavar="NAME,...", help="slice shapes (default 2x1x1,1x2x1,fragmented)")
    add("--batch", type=int, choices=(2, 4, 8), help="batch size of the epochs (default 8, which is 8 steps)")
    add("--iperf-seconds", dest="iperf_s", metavar="S", help="time of each iperf3 measurement, in s (default 3)")
    add("--verify", action="store_true", default=None, help="check of every element of every sum, besides checksums")
    add("--seed", metavar="N", help="seed of the payloads (default 1)")
    add("--rate", metavar="1/100", help="scale: emulated / real link rate (default 1/100)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 0.25)")
    add("--quick", action="store_true", help="one shape, studies iperf3 and epoch, time scale 0.1")
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/server-fabric-DATE-TIME)")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> ServerFabricExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, ServerFabricExperiment, "studies, shapes, batch")
    values |= given(options, "studies", "shapes", "batch", "iperf_s", "verify", "seed")
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(ServerFabricExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
    console = Console()
    experiment = experiment_of(options)
    experiment.check()
    need_root("server_fabric.py")
    out = results_folder(options.out, "server-fabric")
    server_fabric = ServerFabricRun(experiment, out, print_progress)
    try:
        server_fabric.run()
    finally:
        if server_fabric.record.rows:
            redraw_failover(out)
            print_server_fabric(server_fabric.record.rows, console)
            console.print(f"Results in {out}", highlight=False)
    return exit_status(server_fabric.record.rows)


if __name__ == "__main__":
    sys.exit(run_script("server_fabric.py", lambda: run(parse())))
