#!/usr/bin/env python3
"""Measure the cost of a late rank for an all-reduce: Ring, halving-doubling,
Direct and StragglAR, beside the model.

sudo scripts/straggler.py                   # time against delay, 8 ranks
sudo scripts/straggler.py --quick           # in under two minutes
sudo scripts/straggler.py --ranks 4,8,16 --study ranks
sudo scripts/straggler.py --study size,reconfiguration
sudo scripts/straggler.py --study prediction,detector,step
sudo scripts/straggler.py --inject slow-link:0.4    # --inject help lists causes
scripts/straggler.py --predict --ranks 8    # the model alone; needs no root
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import sys
from pathlib import Path

from rich.console import Console

from experiments.command import base_values, given, need_root, put_section, results_folder, run_script, words
from experiments.rails.report import exit_status
from experiments.settings import validated
from experiments.straggler.findings import print_findings, print_predictions
from experiments.straggler.run import run_studies
from experiments.straggler.settings import COMPARED, STUDIES, StragglerExperiment
from experiments.trials.plan import TrialPlan
from experiments.trials.progress import TrialProgress
from experiments.trials.report import print_trials, redraw_trials
from experiments.trials.run import TrialRun
from workloads.stragglers.injection import INJECTIONS

QUICK = {"iterations": 1, "algorithms": ["ring", "stragglar"], "sizes": ["2M"]}


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
        help=f"studies to measure (default delay): {', '.join(STUDIES)}",
    )
    add(
        "--algorithms",
        type=words,
        metavar="NAME,...",
        help=f"algorithms to compare (default {','.join(COMPARED)})",
    )
    add("--ranks", type=words, metavar="N,...", help="numbers of ranks (default 8)")
    add("--sizes", type=words, metavar="1M,4M", help="buffer sizes (default 512K for each rank)")
    add("--straggler", metavar="RANK", help="the late rank (default the last)")
    add(
        "--delays",
        type=words,
        dest="delays_ms",
        metavar="MS,...",
        help="delays of the late rank, in ms (default around the break-even delay)",
    )
    add(
        "--reconfiguration-delays",
        type=words,
        dest="reconfiguration_delays_ms",
        metavar="MS,...",
        help="reconfiguration delays of the OCS, in ms (default 0,10,25,50,100)",
    )
    add("--inject", metavar="CAUSE", help="another cause of lateness; help lists the causes (default a fixed delay)")
    add(
        "--fabric",
        choices=("electrical", "ocs"),
        help="packet switches, or circuits that follow the schedule (default electrical)",
    )
    add("--port-gbps", metavar="GBPS", help="rate of a port, in Gb/s (default 0.05)")
    add("--iterations", metavar="N", help="measured iterations after one warm-up (default 3)")
    add("--verify", action="store_true", default=None, help="float32 payloads and a check of every sum")
    add("--seed", metavar="N", help="seed of delays and payloads (default 1)")
    add("--rate", metavar="1/250", help="scale: emulated / real link rate (default 1)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="two algorithms with one iteration each and smaller buffers")
    add(
        "--pcap",
        action="store_true",
        help="capture of every packet in captures/*.pcapng of the results folder, with step and chunk as comments",
    )
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/straggler-DATE-TIME)")
    add("--predict", action="store_true", help="times of the model only; needs no root")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> StragglerExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, StragglerExperiment, "studies, ranks, sizes, delays_ms")
    plain = ("studies", "algorithms", "ranks", "sizes", "straggler", "delays_ms", "reconfiguration_delays_ms")
    values |= given(options, *plain, "inject", "fabric", "port_gbps", "iterations", "verify", "seed")
    if options.inject and options.studies is None:
        values["studies"] = ["injection"]
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(StragglerExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
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
