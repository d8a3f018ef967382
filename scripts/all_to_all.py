#!/usr/bin/env python3
"""Everybody sends to everybody: circuits that take turns, circuits made for the demand, a ring, and a packet switch.

sudo scripts/all_to_all.py                                      # all studies: bytes, ranks, delay, slot, skew
sudo scripts/all_to_all.py --quick                              # two of them, shorter
sudo scripts/all_to_all.py --study slot --slots 50,100,200      # duty cycle of slots of fixed length
sudo scripts/all_to_all.py --study grid --policies rotor,electrical --ranks 8 --sizes 625000 --delays 10,50
sudo scripts/all_to_all.py --study skew --demand demand.csv     # demand-aware circuits for a matrix of one's own
sudo scripts/all_to_all.py --reach --ranks 8,16                 # who hears whom in every slot
sudo scripts/all_to_all.py --mesh 5x5 --study delay             # the switch is a photonic mesh (docs/pip.md)
scripts/all_to_all.py --predict                                 # the model alone: no root, no packets
"""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

import argparse
import sys
from pathlib import Path

from rich.console import Console

from experiments.all_to_all.report import print_all_to_all, redraw_all_to_all
from experiments.all_to_all.row import all_to_all_columns, predicted_all_to_all_row
from experiments.all_to_all.settings import STUDIES, AllToAllExperiment
from experiments.all_to_all.slot_reach import meetings, slot_reach
from experiments.command import base_values, given, need_root, put_section, results_folder, run_script, words
from experiments.rails.report import exit_status
from experiments.settings import validated
from experiments.trials.plan import TrialPlan
from experiments.trials.progress import TrialProgress
from experiments.trials.run import TrialRun
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS

QUICK = {"iterations": 1, "studies": ["ranks", "slot"], "ranks": [4, 8], "sizes": ["625000"]}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    studies = "; ".join(f"{name}: {what}" for name, what in STUDIES.items())
    add("--study", type=words, dest="studies", metavar="NAME,...", help=f"{studies} (default all but grid)")
    add("--policies", type=words, metavar="NAME,...", help="of electrical,rotor,valiant,demand,multi-hop")
    add("--ranks", type=words, metavar="4,8,16", help="how many ranks (default 8)")
    add("--sizes", type=words, metavar="BYTES,...", help="bytes from each rank to each (default 1250000)")
    add("--delays", type=words, dest="delays_ms", metavar="MS,...", help="of a reconfiguration (default 10)")
    add(
        "--slots",
        type=words,
        dest="slots_ms",
        metavar="MS,...",
        help="light of a slot (default 0: as long as it takes)",
    )
    add("--guard", dest="guard_ms", metavar="MS", help="unused end of a slot of fixed length (default 2)")
    add("--demand", metavar="WHAT", help="uniform, skewed, or a CSV file with a row for each sender")
    add("--simplex", action="store_true", default=None, help="send to one and receive from another rank at a time")
    add("--most-slots", metavar="K", help="bound of the slots that are made for a demand")
    add("--mesh", metavar="WxH", help="the optical switch is a photonic mesh of this size")
    add("--port-gbps", help="rate of a rank (default 0.05)")
    add("--mtu", help="of the links (default 9000)")
    add("--iterations", help="measured iterations after one that warms up (default 3)")
    add("--verify", action="store_true", default=None, help="carry float32 and check what arrives")
    add("--rest", metavar="ADDRESS", help="offer REST meanwhile, as 127.0.0.1:8080")
    add("--seed", help="seed of the skew and of payloads")
    add("--rate", metavar="1/250", help="scale: emulated / real link rate (default 1: sizes and rates as given)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="two studies, one iteration")
    add("--reach", action="store_true", help="no all-to-all: set every slot, have everybody call everybody")
    add("--pcap", action="store_true", help="capture every packet: captures/*.pcapng")
    add("--out", type=Path, help="results folder (default results/all-to-all-DATE-TIME)")
    add("--predict", action="store_true", help="print the model's times only; needs no root")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> AllToAllExperiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
    values = base_values(options, QUICK, AllToAllExperiment, "studies, ranks, sizes, delays_ms")
    plain = ("studies", "policies", "ranks", "sizes", "delays_ms", "slots_ms", "guard_ms", "demand", "simplex")
    values |= given(options, *plain, "most_slots", "mesh", "port_gbps", "mtu", "iterations", "verify", "rest", "seed")
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(AllToAllExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Everything the command line asks for; returns the exit status."""
    console = Console()
    experiment = experiment_of(options)
    plan = TrialPlan("all-to-all", experiment, experiment.scale.scale(), experiment.iterations)
    trials = list(experiment.trials())
    if options.predict:
        print_all_to_all([predicted_all_to_all_row(trial, plan) for trial in trials], console)
        return 0
    if options.reach:
        need_root("all_to_all.py")
        return reach(experiment, console)
    for trial in trials:
        trial.program(plan.scale, plan.total_steps(trial), experiment.seed)
    need_root("all_to_all.py")
    out = results_folder(options.out, "all-to-all")
    progress = TrialProgress(Console(stderr=True))
    trial_run = TrialRun(plan, out, progress, capture=options.pcap, columns=all_to_all_columns)
    try:
        with trial_run:
            for trial in trials:
                trial_run.measure(trial)
    finally:
        progress.stop()
        rows = trial_run.record.rows
        if rows:
            redraw_all_to_all(out)
            print_all_to_all(rows, console)
            console.print(f"Results in {out}", highlight=False)
    return exit_status(trial_run.record.rows)


def reach(experiment: AllToAllExperiment, console: Console) -> int:
    """The ping matrix of every slot; returns the exit status."""
    status = 0
    for n in experiment.ranks or (8, 16):
        found = list(slot_reach(experiment, experiment.fabric("rotor", n), experiment.simplex))
        wrong = [one.slot for one in found if not one.as_expected]
        once = set(meetings(found).values()) == {1} and len(meetings(found)) == n * (n - 1)
        text = f"{n} ranks: {len(found)} slots; matched partners hear each other and nobody else in "
        text += "all" if not wrong else f"all but {', '.join(map(str, wrong))}"
        console.print(f"{text}; each pair meets {'once' if once else 'NOT just once'}", soft_wrap=True)
        status = status if once and not wrong else NOT_FAITHFUL_EXIT_STATUS
    return status


if __name__ == "__main__":
    sys.exit(run_script("all_to_all.py", lambda: run(parse())))
