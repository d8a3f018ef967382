#!/usr/bin/env python3
"""What does a late rank cost an all-reduce? Ring, halving-doubling, Direct and StragglAR, measured beside the model.

sudo scripts/straggler.py                                   # time against delay, 8 ranks, break-even marked
sudo scripts/straggler.py --quick                           # the same in under two minutes
sudo scripts/straggler.py --ranks 4,8,16 --study ranks      # speed-up after arrival against the number of ranks
sudo scripts/straggler.py --study size,reconfiguration      # buffer sizes; circuits that follow the schedule
sudo scripts/straggler.py --study prediction,detector,step  # expected rightly or not; as a share of a training step
sudo scripts/straggler.py --inject slow-link:0.4            # another cause; --inject help lists them
scripts/straggler.py --predict --ranks 8                    # the model alone: no root, no packets
"""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

import argparse
import sys
from pathlib import Path

from rich.console import Console

from experiments.command import base_values, given, need_root, put_section, results_folder, run_script, words
from experiments.rails.report import exit_status
from experiments.settings import validated
from experiments.straggler.findings import print_findings, print_predictions
from experiments.straggler.run import run_studies
from experiments.straggler.settings import STUDIES, StragglerExperiment
from experiments.trials.plan import TrialPlan
from experiments.trials.progress import TrialProgress
from experiments.trials.report import print_trials, redraw_trials
from experiments.trials.run import TrialRun
from workloads.stragglers.injection import INJECTIONS

QUICK = {"iterations": 1, "algorithms": ["ring", "stragglar"], "sizes": ["2M"]}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    add("--study", type=words, dest="studies", metavar="NAME,...", help=f"of {','.join(STUDIES)} (default delay)")
    add("--algorithms", type=words, metavar="NAME,...", help="what is compared (default all four)")
    add("--ranks", type=words, metavar="4,8,16", help="how many ranks (default 8)")
    add("--sizes", type=words, metavar="1M,4M", help="buffer sizes (default 512K for each rank)")
    add("--straggler", help="the late rank (default the last)")
    add("--delays", type=words, dest="delays_ms", metavar="MS,MS", help="how late, in ms (default around break-even)")
    add("--reconfiguration-delays", type=words, dest="reconfiguration_delays_ms", metavar="MS,MS", help="of the OCS")
    add("--inject", metavar="WHAT", help="make it late in another way: 'help' lists them")
    add("--fabric", choices=("electrical", "ocs"), help="packet switches, or circuits that follow the schedule")
    add("--port-gbps", help="rate of a port (default 0.05)")
    add("--iterations", help="measured iterations after one that warms up (default 3)")
    add("--verify", action="store_true", default=None, help="carry float32 and check every sum")
    add("--seed", help="seed of delays and payloads")
    add("--rate", metavar="1/250", help="scale: emulated / real link rate (default 1: sizes and rates as given)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="two algorithms, one iteration, smaller buffers")
    add("--pcap", action="store_true", help="capture every packet: captures/*.pcapng, step and chunk as comments")
    add("--out", type=Path, help="results folder (default results/straggler-DATE-TIME)")
    add("--predict", action="store_true", help="print the model's times only; needs no root")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> StragglerExperiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
    values = base_values(options, QUICK, StragglerExperiment, "studies, ranks, sizes, delays_ms")
    plain = ("studies", "algorithms", "ranks", "sizes", "straggler", "delays_ms", "reconfiguration_delays_ms")
    values |= given(options, *plain, "inject", "fabric", "port_gbps", "iterations", "verify", "seed")
    if options.inject and options.studies is None:
        values["studies"] = ["injection"]
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(StragglerExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Everything the command line asks for; returns the exit status."""
    console = Console()
    if options.inject == "help":
        for word, example in INJECTIONS.items():
            console.print(f"{word:<14} such as {example}", highlight=False)
        return 0
    experiment = experiment_of(options)
    plan = TrialPlan("straggler", experiment, experiment.scale.scale(), experiment.iterations)
    if options.predict:
        print_predictions(experiment, plan, console)
        return 0
    for trial in experiment.trials():
        trial.program(plan.scale, plan.total_steps(trial), experiment.seed)
    need_root("straggler.py")
    out = results_folder(options.out, "straggler")
    progress = TrialProgress(Console(stderr=True))
    trial_run = TrialRun(plan, out, progress, capture=options.pcap)
    try:
        with trial_run:
            run_studies(experiment, trial_run)
    finally:
        progress.stop()
        rows = trial_run.record.rows
        if rows:
            redraw_trials(out)
            print_trials(rows, console)
            print_findings(experiment, rows, console)
            console.print(f"Results in {out}", highlight=False)
    return exit_status(trial_run.record.rows)


if __name__ == "__main__":
    sys.exit(run_script("straggler.py", lambda: run(parse())))
