#!/usr/bin/env python3
r"""Measure all-to-alls over rotor slots, demand-aware circuits, a ring of
circuits, and a packet switch.

sudo scripts/all_to_all.py                  # bytes, ranks, delay, slot, skew
sudo scripts/all_to_all.py --quick          # two studies, one iteration
sudo scripts/all_to_all.py --study slot --slots 50,100,200    # duty cycle
sudo scripts/all_to_all.py --study grid --policies rotor,electrical \
    --ranks 8 --sizes 625000 --delays 10,50
sudo scripts/all_to_all.py --study skew --demand demand.csv   # a user's matrix
sudo scripts/all_to_all.py --reach --ranks 8,16     # test the circuits by pings
sudo scripts/all_to_all.py --mesh 5x5 --study delay # on a mesh (docs/pip.md)
scripts/all_to_all.py --predict             # the model alone; needs no root
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import sys
from collections.abc import Callable
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
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options override its keys")
    studies = "; ".join(f"{name}: {what}" for name, what in STUDIES.items())
    add(
        "--study",
        type=words,
        dest="studies",
        metavar="NAME,...",
        help=f"studies to measure (default all but grid): {studies}",
    )
    add(
        "--policies",
        type=words,
        metavar="NAME,...",
        help="variants to compare (default by study): electrical, rotor, valiant, demand, multi-hop",
    )
    add("--ranks", type=words, metavar="N,...", help="numbers of ranks (default 8; study ranks 4,8,16)")
    add(
        "--sizes",
        type=words,
        metavar="BYTES,...",
        help="bytes from each rank to each other (default 1250000; study bytes 312500,625000,1250000,2500000)",
    )
    add(
        "--delays",
        type=words,
        dest="delays_ms",
        metavar="MS,...",
        help="reconfiguration delays, in ms (default 10; study delay 10,20,50,100)",
    )
    add(
        "--slots",
        type=words,
        dest="slots_ms",
        metavar="MS,...",
        help="up times of slots, in ms (default 0: until all ranks have sent; study slot 50,100,200,400)",
    )
    add("--guard", dest="guard_ms", metavar="MS", help="guard time in slots of fixed length, in ms (default 2)")
    add(
        "--demand",
        metavar="NAME|FILE",
        help="demand matrix: uniform, skewed, or a CSV file with a row for each sender (default uniform; study skew "
        "skewed)",
    )
    add(
        "--simplex",
        action="store_true",
        default=None,
        help="circuits in one direction: a rank sends to one rank and receives from another",
    )
    add("--most-slots", metavar="K", help="largest number of slots for a demand (default 0: no limit)")
    add("--mesh", metavar="WxH", help="size of a photonic mesh as the optical switch, in hexagons (default none)")
    add_run_options(add)
    return parser.parse_args(arguments)


def add_run_options(add: Callable[..., object]) -> None:
    """Add the options on ports, measurement and output to the parser."""
    add("--port-gbps", metavar="GBPS", help="rate of a rank, in Gb/s (default 0.05)")
    add("--mtu", metavar="BYTES", help="MTU of the links, in bytes (default 9000)")
    add("--iterations", metavar="N", help="measured iterations after one warm-up (default 3)")
    add("--verify", action="store_true", default=None, help="float32 payloads and a check of all received data")
    add("--rest", metavar="HOST:PORT", help="address of a REST interface during the run (default none)")
    add("--seed", metavar="N", help="seed of skewed demands and of payloads (default 1)")
    add("--rate", metavar="1/250", help="scale: emulated / real link rate (default 1)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="two studies with one iteration each")
    add("--reach", action="store_true", help="test of the rotor's circuits by pings in every slot, no all-to-all")
    add("--pcap", action="store_true", help="capture of every packet in captures/*.pcapng of the results folder")
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/all-to-all-DATE-TIME)")
    add("--predict", action="store_true", help="times of the model only; needs no root")


def experiment_of(options: argparse.Namespace) -> AllToAllExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, AllToAllExperiment, "studies, ranks, sizes, delays_ms")
    plain = ("studies", "policies", "ranks", "sizes", "delays_ms", "slots_ms", "guard_ms", "demand", "simplex")
    values |= given(options, *plain, "most_slots", "mesh", "port_gbps", "mtu", "iterations", "verify", "rest", "seed")
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(AllToAllExperiment, values)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
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
    """Test by pings which ranks reach each other in every slot of a rotor; returns the exit status."""
    status = 0
    for n in experiment.ranks or (8, 16):
        found = list(slot_reach(experiment, experiment.fabric("rotor", n), experiment.simplex))
        wrong = [one.slot for one in found if not one.as_expected]
        once = set(meetings(found).values()) == {1} and len(meetings(found)) == n * (n - 1)
        text = f"{n} ranks: {len(found)} slots; exactly the matched ranks reach each other in "
        text += "all slots" if not wrong else f"all slots but {', '.join(map(str, wrong))}"
        console.print(f"{text}; each pair has a circuit {'once' if once else 'NOT exactly once'}", soft_wrap=True)
        status = status if once and not wrong else NOT_FAITHFUL_EXIT_STATUS
    return status


if __name__ == "__main__":
    sys.exit(run_script("all_to_all.py", lambda: run(parse())))
