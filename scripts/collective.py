#!/usr/bin/env python3
r"""Measure collectives on real packets, in the manner of nccl-tests, beside the
model.

sudo scripts/collective.py                      # ring all-reduce, 8 ranks, 1M
sudo scripts/collective.py --algorithm ring,stragglar,direct \
    --sizes 4K,64K,1M,4M --verify
sudo scripts/collective.py --algorithm my_schedule.xml          # MSCCL XML
sudo scripts/collective.py --op all_to_all --algorithm pairwise --ranks 16
sudo scripts/collective.py --fabric ocs --algorithm stragglar \
    --reconfiguration-delay 10
scripts/collective.py --predict --sizes 1M,16M  # the model alone; needs no root
scripts/collective.py --list                    # algorithms and collectives
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from experiments.collective.nccl_table import format_table, table_row
from experiments.collective.settings import CollectiveExperiment
from experiments.command import base_values, given, need_root, put_section, results_folder, run_script, words
from experiments.rails.report import exit_status, verdict_lines
from experiments.settings import validated
from experiments.trials.plan import TrialPlan
from experiments.trials.progress import TrialProgress
from experiments.trials.report import redraw_trials, trial_place
from experiments.trials.run import TrialRun, predicted_row
from measure.results.ownership import hand_over
from measure.results.results import plain
from measure.results.row import Row
from railyard.size import in_words
from workloads.collectives.catalog import ALGORITHMS
from workloads.schedule import CollectiveKind

QUICK = {"iterations": 1, "sizes": ["64K", "1M"]}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options override its keys")
    add(
        "--algorithm",
        type=words,
        dest="algorithms",
        metavar="NAME|FILE.xml,...",
        help="algorithms of --list, or MSCCL XML files (default ring)",
    )
    add(
        "--op",
        dest="collective",
        choices=get_args(CollectiveKind),
        metavar="KIND",
        help=f"collective: {', '.join(get_args(CollectiveKind))} (default all_reduce, or that of the file)",
    )
    add("--ranks", metavar="N", help="number of ranks (default 8, or that of the file)")
    add("--sizes", type=words, metavar="4K,1M", help="buffer sizes; K, M, G are powers of 1024 (default 1M)")
    add("--straggler", metavar="RANK", help="predicted late rank of straggler-aware algorithms (default the last)")
    add("--iterations", metavar="N", help="measured iterations after one warm-up (default 3)")
    add(
        "--fabric",
        choices=("electrical", "ocs"),
        help="packet switches, or circuits that follow the schedule (default electrical)",
    )
    add(
        "--reconfiguration-delay",
        dest="reconfiguration_delay_ms",
        metavar="MS",
        help="reconfiguration delay of the OCS, in ms (default 0)",
    )
    add("--gpus-per-server", metavar="N", help="GPUs per server, joined by a scale-up switch (default 1)")
    add("--ports", metavar="N", help="ports per rank on packet switches, 1 or 2 (default 1)")
    add("--port-gbps", metavar="GBPS", help="rate of a port, in Gb/s (default 0.05)")
    add("--scale-up-gbps", metavar="GBPS", help="rate of a GPU inside its server, in Gb/s (default 0.1)")
    add("--lockstep", action="store_true", default=None, help="barrier after every round")
    add("--verify", action="store_true", default=None, help="float32 payloads and a check of every sum")
    add("--seed", metavar="N", help="seed of the payloads (default 1)")
    add("--rate", metavar="1/250", help="scale: emulated / real link rate (default 1)")
    add("--time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--quick", action="store_true", help="two sizes with one iteration each")
    add("--json", type=Path, metavar="FILE", help="file for the rows as JSON")
    add(
        "--pcap",
        action="store_true",
        help="capture of every packet in captures/*.pcapng of the results folder, with step and chunk as comments",
    )
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/collective-DATE-TIME)")
    add("--predict", action="store_true", help="times of the model only; needs no root")
    add("--list", action="store_true", help="list of the algorithms; nothing is measured")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> CollectiveExperiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
    values = base_values(options, QUICK, CollectiveExperiment, "algorithms, ranks, sizes")
    plain = ("algorithms", "collective", "ranks", "sizes", "straggler", "iterations", "lockstep", "verify", "seed")
    values |= given(options, *plain)
    fabric = given(options, "reconfiguration_delay_ms", "gpus_per_server", "ports", "port_gbps", "scale_up_gbps")
    put_section(values, "fabric", fabric | ({"kind": options.fabric} if options.fabric else {}))
    put_section(values, "scale", given(options, "rate", "time"))
    return validated(CollectiveExperiment, values)


def print_table(rows: Sequence[Row], experiment: CollectiveExperiment) -> None:
    """Print a table in the layout of nccl-tests for each algorithm."""
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        mine = [row for row in rows if row["algorithm"] == algorithm]
        print(f"# {algorithm}, {mine[0]['collective']}, {mine[0]['n']} ranks, {mine[0]['fabric']}, "
              f"{mine[0]['port_gbps']:g} Gb/s a port")  # fmt: skip
        table = [
            table_row(row["collective"], row["n"], row["bytes"], row["after_arrival_s"], row["wrong"]) for row in mine
        ]
        devices = [f"g{rank}" for rank in range(mine[0]["n"])]
        print(format_table(table, iterations=experiment.iterations, warmup=1, devices=devices))


def list_algorithms(console: Console) -> None:
    """Print a table of the algorithms with their collectives."""
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("algorithm")
    table.add_column("collectives")
    for name, algorithm in ALGORITHMS.items():
        table.add_row(name, ", ".join(algorithm.kinds))
    console.print(table)


def print_predictions(experiment: CollectiveExperiment, plan: TrialPlan, console: Console) -> None:
    """Print a table of the model's times, marked as the model's."""
    console = console if console.is_terminal else Console(width=150)
    table = Table(title="MODEL ONLY, nothing was measured")
    for column in ("algorithm", "ranks", "size", "fabric", "rounds", "time s", "bound s"):
        table.add_column(
            column, justify="right" if column in ("ranks", "size", "rounds", "time s", "bound s") else "left"
        )
    for trial in experiment.trials():
        row = predicted_row(trial, plan)
        table.add_row(
            trial.schedule.algorithm,
            str(trial.schedule.n),
            in_words(trial.bytes),
            trial.fabric.kind,
            str(trial.schedule.rounds),
            f"{row['predicted_time_s']:.6f}",
            f"{row['bound_s']:.6f}",
        )
    console.print(table)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
    console = Console()
    if options.list:
        list_algorithms(console)
        return 0
    experiment = experiment_of(options)
    plan = TrialPlan("collective", experiment, experiment.scale.scale(), experiment.iterations)
    trials = list(experiment.trials())
    if options.predict:
        print_predictions(experiment, plan, console)
        return 0
    for trial in trials:
        trial.program(plan.scale, plan.total_steps(trial), experiment.seed)
    need_root("collective.py")
    out = results_folder(options.out, "collective")
    progress = TrialProgress(Console(stderr=True))
    trial_run = TrialRun(plan, out, progress, capture=options.pcap)
    try:
        with trial_run:
            for trial in trials:
                trial_run.measure(trial)
    finally:
        progress.stop()
        finish(trial_run.record.rows, experiment, options, out, console)
    return exit_status(trial_run.record.rows)


def finish(
    rows: Sequence[Row], experiment: CollectiveExperiment, options: argparse.Namespace, out: Path, console: Console
) -> None:
    """Show and save the measured rows, also after a run that was interrupted."""
    if not rows:
        return
    print_table(rows, experiment)
    redraw_trials(out)
    for line in verdict_lines(rows, trial_place):
        console.print(line)
    console.print(f"Results in {out}", highlight=False)
    if options.json is not None:
        options.json.write_text(json.dumps(plain(list(rows)), indent=2) + "\n", encoding="utf-8")
        hand_over(options.json)


if __name__ == "__main__":
    sys.exit(run_script("collective.py", lambda: run(parse())))
