#!/usr/bin/env python3
"""What does a dead accelerator cost a job? A real kill on a photonic rack, on electrical ones, and with migration.

sudo scripts/failover.py                                # all four fabrics, beside a second tenant
sudo scripts/failover.py --quick                        # photonic and E1, shorter
sudo scripts/failover.py --fabric photonic --kill 1@4.5,16@+0.5   # the spare dies during the recovery
sudo scripts/failover.py --fabric photonic --stages paper         # restart stages as MORPHLUX measured them
sudo scripts/failover.py --fabric photonic --random-kills 20 --time 0.2   # twenty kills at random moments
sudo scripts/failover.py --fabric photonic --controller-dies-after 300    # the controller dies in mid-recovery
scripts/failover.py --predict                           # the model alone: no root, no packets
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
from experiments.failover.run import FailoverRun, predicted_rows
from experiments.failover.settings import FABRICS, FailoverExperiment
from experiments.racks.redraw import redraw_failover
from experiments.racks.report import print_predictions, print_recoveries
from experiments.rails.report import exit_status
from experiments.settings import validated

QUICK: dict[str, Any] = {"fabrics": ["photonic", "e1"], "steps": 6, "kill": "1@3.5", "job": {"checkpoint_every": 2}}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    add("--fabric", type=words, dest="fabrics", metavar="NAME,...", help=f"of {','.join(FABRICS)} (default all)")
    add("--policy", metavar="NAME|FILE.py:Class", help="who leads the photonic rack: lumion (default), morphlux, yours")
    add("--kill", metavar="RANK@STEP,...", help="which chip dies when; RANK@+SECONDS after the kill before (1@4.5)")
    add("--random-kills", metavar="N", help="N runs, each with one kill of a random member at a random moment, instead")
    add("--steps", help="steps of the job (default 10)")
    add("--checkpoint-every", metavar="K", help="a checkpoint after every K steps (default 3)")
    add("--heartbeat", dest="heartbeat_ms", metavar="MS", help="an agent says so often that it lives (default 250)")
    add("--misses", help="heartbeats that must be missing before a chip is held for dead (default 3)")
    add("--detect", type=words, metavar="exit,port", help="what else counts: an ended agent, a port without light")
    add("--reconfiguration-delay", dest="reconfiguration_delay_ms", metavar="MS", help="of the rack's switch (10)")
    add("--stages", choices=("real", "paper"), help="restart stages as lived here (default), or with MORPHLUX's times")
    add("--spare-servers", metavar="N", help="servers outside the torus (default 1)")
    add("--alone", action="store_true", help="without the second tenant")
    add("--controller-dies-after", dest="controller_dies_after_ms", metavar="MS", help="kill the controller, too")
    add("--verify", action="store_true", default=None, help="check every element of every sum as well")
    add("--seed", help="seed of payloads and random kills")
    add("--rate", metavar="1/800", help="scale: emulated / real link rate (default 1/800)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="photonic and E1 only, fewer steps")
    add("--out", type=Path, help="results folder (default results/failover-DATE-TIME)")
    add("--predict", action="store_true", help="print what the model says only; needs no root")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> FailoverExperiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
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
    """Everything the command line asks for; returns the exit status."""
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
