#!/usr/bin/env python3
"""Measure the cost of a dead accelerator for a job: kills on a photonic rack, on
electrical racks, and with migration.

sudo scripts/failover.py            # four fabrics, with a second tenant
sudo scripts/failover.py --quick    # photonic and E1, fewer steps
sudo scripts/failover.py --fabric photonic --kill 1@4.5,16@+0.5   # spare, too
sudo scripts/failover.py --fabric photonic --stages paper         # as MORPHLUX
sudo scripts/failover.py --fabric photonic --random-kills 20 --time 0.2
sudo scripts/failover.py --fabric photonic --controller-dies-after 300
scripts/failover.py --predict       # the model alone; needs no root
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import sys
from collections.abc import Callable
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
from experiments.failover.run import FailoverRun, predicted_rows
from experiments.failover.settings import FABRICS, FailoverExperiment
from experiments.racks.redraw import redraw_failover
from experiments.racks.report import print_predictions, print_recoveries
from experiments.rails.report import exit_status
from experiments.settings import validated

QUICK: dict[str, Any] = {"fabrics": ["photonic", "e1"], "steps": 6, "kill": "1@3.5", "job": {"checkpoint_every": 2}}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options override its keys")
    add(
        "--fabric",
        type=words,
        dest="fabrics",
        metavar="NAME,...",
        help=f"fabrics to measure (default all): {', '.join(FABRICS)}",
    )
    add(
        "--policy",
        metavar="NAME|FILE.py:Class",
        help="policy of the photonic rack: lumion, morphlux, or a class of your own (default lumion)",
    )
    add(
        "--kill",
        metavar="RANK@STEP,...",
        help="chips to kill, after a number of steps or, as RANK@+SECONDS, after the kill before (default 1@4.5)",
    )
    add(
        "--random-kills",
        metavar="N",
        help="number of runs with one kill of a random member at a random moment, instead of --kill",
    )
    add("--steps", metavar="N", help="steps of the job (default 10)")
    add("--checkpoint-every", metavar="K", help="steps between two checkpoints (default 3)")
    add("--heartbeat", dest="heartbeat_ms", metavar="MS", help="heartbeat interval of agents, in ms (default 250)")
    add("--misses", metavar="N", help="missing heartbeats after which a chip counts as dead (default 3)")
    add(
        "--detect",
        type=words,
        metavar="exit,port",
        help="further signs of a dead chip: an ended agent (exit), a dark port (port); default heartbeats alone",
    )
    add(
        "--reconfiguration-delay",
        dest="reconfiguration_delay_ms",
        metavar="MS",
        help="reconfiguration delay of the rack's switch, in ms (default 10)",
    )
    add(
        "--stages",
        choices=("real", "paper"),
        help="start-up stages as measured here, or with MORPHLUX's times (default real)",
    )
    add_run_options(add)
    return parser.parse_args(arguments)


def add_run_options(add: Callable[..., object]) -> None:
    """Add the options on spares, measurement and output to the parser."""
    add("--spare-servers", metavar="N", help="number of spare servers outside the torus (default 1)")
    add("--alone", action="store_true", help="no second tenant")
    add(
        "--controller-dies-after",
        dest="controller_dies_after_ms",
        metavar="MS",
        help="time from the first kill to a kill of the controller, in ms (default none)",
    )
    add("--verify", action="store_true", default=None, help="check of every element of every sum, besides checksums")
    add("--seed", metavar="N", help="seed of payloads and random kills (default 1)")
    add("--rate", metavar="1/800", help="scale: emulated / real link rate (default 1/800)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="photonic and E1 only, with fewer steps")
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/failover-DATE-TIME)")
    add("--predict", action="store_true", help="times of the model only; needs no root")


def experiment_of(options: argparse.Namespace) -> FailoverExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, FailoverExperiment, "fabrics, kill, steps")
    plain = ("fabrics", "policy", "kill", "random_kills", "steps", "reconfiguration_delay_ms", "stages")
    values |= given(options, *plain, "spare_servers", "controller_dies_after_ms", "verify", "seed")
    if options.random_kills is not None and options.kill is None:
        values.pop("kill", None)
    if options.kill is not None and options.random_kills is None:
        values.pop("random_kills", None)
    if options.alone:
        values["neighbour"] = None
    put_section(values, "job", given(options, "checkpoint_every"))
    detection = given(options, "heartbeat_ms", "misses")
    put_section(values, "detection", detection | dict.fromkeys(options.detect or (), True))
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(FailoverExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
    console = Console()
    experiment = experiment_of(options)
    scale = experiment.scale.scale()
    for name in experiment.fabrics:
        experiment.kills(experiment.plan(experiment.setting(name), scale))
    if options.predict:
        print_predictions(predicted_rows(experiment), console)
        return 0
    need_root("failover.py")
    out = results_folder(options.out, "failover")
    failover = FailoverRun(experiment, out, print_progress)
    try:
        failover.run()
    finally:
        if failover.record.rows:
            redraw_failover(out)
            print_recoveries(failover.record.rows, console)
            console.print(f"Results in {out}", highlight=False)
    return exit_status(failover.record.rows)


if __name__ == "__main__":
    sys.exit(run_script("failover.py", lambda: run(parse())))
