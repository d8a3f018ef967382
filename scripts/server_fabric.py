#!/usr/bin/env python3
"""What do a server's own links bring when they can be steered? MORPHLUX's prototype: iperf3, all-reduce, epochs.

sudo scripts/server_fabric.py                        # three slice shapes on both fabrics, and a host's death
sudo scripts/server_fabric.py --quick                # one shape, shorter
sudo scripts/server_fabric.py --study batch          # epochs at batch 2, 4 and 8
sudo scripts/server_fabric.py --study recovery --time 1   # the recovery timeline in real time
"""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

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
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    add("--study", type=words, dest="studies", metavar="NAME,...", help=f"of {','.join(STUDIES)} (default all)")
    add("--shapes", type=words, metavar="NAME,...", help="slice shapes (default 2x1x1,1x2x1,fragmented)")
    add("--batch", type=int, choices=(2, 4, 8), help="batch size of the epochs (default 8: 8 steps)")
    add("--iperf-seconds", dest="iperf_s", metavar="S", help="how long iperf3 measures (default 3)")
    add("--verify", action="store_true", default=None, help="check every element of every sum as well")
    add("--seed", help="seed of the payloads")
    add("--rate", metavar="1/100", help="scale: emulated / real link rate (default 1/100)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 0.25)")
    add("--quick", action="store_true", help="one shape, at a tenth of the time")
    add("--out", type=Path, help="results folder (default results/server-fabric-DATE-TIME)")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> ServerFabricExperiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
    values = base_values(options, QUICK, ServerFabricExperiment, "studies, shapes, batch")
    values |= given(options, "studies", "shapes", "batch", "iperf_s", "verify", "seed")
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(ServerFabricExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Everything the command line asks for; returns the exit status."""
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
