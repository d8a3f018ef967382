#!/usr/bin/env python3
"""What does an optical rail cost against an electrical one? A sweep of mode and reconfiguration delay.

sudo scripts/rail_reconfiguration.py                          # Llama-3 8B on 16 GPUs, every mode
sudo scripts/rail_reconfiguration.py --quick                  # the same in under two minutes
sudo scripts/rail_reconfiguration.py --workload smoke --modes electrical,on-demand --delays 0,100
sudo scripts/rail_reconfiguration.py my_experiment.yaml       # the same keys, from a file
scripts/rail_reconfiguration.py --predict --delays 0.01,10    # the model alone: no root, no packets
"""

from __future__ import annotations

import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controllers.engine.jobs import Job
from experiments.command import given, need_root, put_section, results_folder, run_script, words
from experiments.rails.forecast import forecast
from experiments.rails.job import load_job, policy_name, program_on
from experiments.rails.layout import topology_options
from experiments.rails.progress import ConsoleProgress
from experiments.rails.report import exit_status, print_report, redraw
from experiments.rails.run import RailRun, plan_json, resolve_scale
from experiments.rails.settings import MODES, Experiment, load_experiment, make_experiment
from experiments.session import Session
from measure.live.calibration import load_calibration
from railyard.size import parse_size
from topos.rails import RailTopo
from workloads.catalog import CATALOG, Workload

QUICK = {"steps": 1, "delays_ms": [0.0, 200.0], "modes": ["electrical", "on-demand", "provisioned"]}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; an option that is not given leaves the file's value, or the default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options given as well go before its keys")
    add(
        "--workload", help=f"{', '.join(CATALOG)}, a YAML file, or a trace: MSCCL XML, Chakra ET, SimAI, ASTRA-sim text"
    )
    add("--compute-unit", metavar="ns|us|cycles:GHZ", help="unit of the compute times in a trace that does not say")
    add("--ranks", help="ranks of a trace that leaves them open")
    add("--size", metavar="1M", help="buffer of a schedule file (default 1M)")
    add("--model-parallel", help="ranks of a model-parallel group of a trace")
    add("--gpus-per-server", help="GPUs per server for a trace (default 1: all ranks on one rail)")
    add("--port-gbps", help="real rate of a port (default the workload's own)")
    add("--modes", type=words, help=f"of {','.join(MODES)}")
    add("--delays", type=words, dest="delays_ms", metavar="MS,MS", help="reconfiguration delays in ms of real time")
    add("--link-recovery", dest="link_recovery_ms", metavar="MS", help="dark time after the switch, in ms")
    add(
        "--slot",
        dest="slot_ms",
        metavar="MS",
        help="light of a turn in modes rotor and demand (0: as long as it takes)",
    )
    add("--steps", help="training steps per point")
    add("--seed", help="seed of everything random (payloads of --verify)")
    add("--out", type=Path, help="results folder (default results/EXPERIMENT-DATE-TIME)")
    add("--quick", action="store_true", help="one step, delays 0 and 200 ms, without one-shot: under two minutes")
    add("--verify", action="store_true", default=None, help="carry float32 and check every sum")
    add("--overlap", action="store_true", default=None, help="FSDP prefetch: communication beside compute")
    add("--tp-on-packets", action="store_true", default=None, help="tensor parallelism as packets, not as time")
    add("--policy", metavar="MODULE:CLASS", help="a policy of your own instead of Opus (docs/policies.md)")
    add("--controller", choices=("ryu", "os-ken", "remote"), help="framework of our controller, or your own app")
    add("--remote", metavar="HOST:PORT", help="where your own controller listens (default 127.0.0.1:6653)")
    add("--fabric", choices=("electrical", "ocs"), help="rails of mode native; ocs needs --controller remote")
    add("--rest", metavar="HOST:PORT", help="offer the REST interface there while the run lasts")
    add("--rate", dest="rate", metavar="1/250", help="scale: emulated / real link rate, or auto")
    add("--time", dest="time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--cli", action="store_true", help="bring up the fabric of the first mode and open the Mininet CLI on it")
    add("--predict", action="store_true", help="print the model's predictions only; needs no root")
    add("--print-plan", action="store_true", help="print the fabric as JSON (for a controller of your own) and end")
    return parser.parse_args(arguments)


def experiment_of(options: argparse.Namespace) -> Experiment:
    """The experiment: defaults, then --quick, then the file, then the options."""
    values: dict[str, Any] = dict(QUICK) if options.quick else {}
    if options.experiment is not None:
        values |= load_experiment(options.experiment).model_dump(exclude_unset=True)
    plain = ("workload", "modes", "delays_ms", "link_recovery_ms", "slot_ms", "steps", "seed", "verify", "overlap")
    values |= given(options, *plain, "tp_on_packets", "policy", "controller", "remote", "rest")
    if options.controller == "remote" and options.modes is None:
        values["modes"] = ["native"]
    put_section(values, "scale", given(options, "rate", "time"))
    fabric = {"kind": options.fabric, "rate_gbps": options.port_gbps}
    put_section(values, "fabric", {key: value for key, value in fabric.items() if value is not None})
    trace = given(options, "compute_unit", "ranks", "model_parallel", "gpus_per_server")
    put_section(values, "trace", trace | ({"size": parse_size(options.size, "--size")} if options.size else {}))
    return make_experiment(values)


def print_predictions(experiment: Experiment, workload: Workload, console: Console) -> None:
    """What the model says of every point, marked as the model."""
    calibration = load_calibration()
    scale = resolve_scale(experiment.model_copy(update={"delays_ms": (0.0,)}), workload, calibration)
    table = Table(title=f"{workload.name}: MODEL ONLY, nothing was measured")
    for column in ("mode", "delay ms", "step s", "reconfigurations/step", "exposed stall s", "hidden s"):
        table.add_column(column, justify="right" if column != "mode" else "left")
    for mode, delay_ms in experiment.points():
        found = forecast(experiment, workload, mode, delay_ms, scale)
        table.add_row(
            mode,
            f"{delay_ms:g}",
            f"{found.step_time_s:.4f}",
            f"{found.reconfigurations_per_step:g}",
            f"{found.exposed_stall_s:.4f}",
            f"{found.hidden_stall_s:.4f}",
        )
    console.print(table)


def open_cli(experiment: Experiment, workload: Workload) -> None:
    """The Mininet CLI on the fabric of the experiment's first mode."""
    from topos.kernel.cli import RailCLI

    scale = resolve_scale(experiment, workload, load_calibration())
    mode = experiment.points()[0][0]
    topo = RailTopo(**topology_options(experiment, workload, experiment.fabric_of(mode), scale))
    with Session(experiment, topo) as session:
        groups = tuple(program_on(experiment, workload, mode).groups.values())
        session.register(Job("cli", groups, mode), policy_name(experiment, workload, mode))
        RailCLI(session.net, session)


def run(options: argparse.Namespace) -> int:
    """Everything the command line asks for; returns the exit status."""
    experiment = experiment_of(options)
    workload = load_job(experiment)
    console = Console()
    if options.print_plan:
        print(plan_json(experiment, workload, resolve_scale(experiment, workload, load_calibration())))
        return 0
    if options.predict:
        print_predictions(experiment, workload, console)
        return 0
    need_root("rail_reconfiguration.py")
    if options.cli:
        open_cli(experiment, workload)
        return 0
    return measure(experiment, workload, options.out, console)


def measure(experiment: Experiment, workload: Workload, out: Path | None, console: Console) -> int:
    """Run the experiment, then show and draw what was measured, also when it stopped half-way."""
    out = results_folder(out, experiment.experiment)
    with ConsoleProgress(console, len(experiment.points()), experiment.steps) as progress:
        rail_run = RailRun(experiment, workload, out, progress)
        console.print(
            f"{workload.description}; scale: rate 1/{1 / rail_run.scale.rate:g}, time {rail_run.scale.time:g}; "
            f"results in {out}",
            highlight=False,
        )
        try:
            rail_run.run()
        finally:
            progress.stop()
            if rail_run.rows:
                redraw(out)
                print_report(rail_run.rows, rail_run.scale, console)
    return exit_status(rail_run.rows)


def main() -> int:
    """Exit status 0 for a run that can be trusted; the errors of railyard.errors otherwise."""
    sys.path.insert(1, os.getcwd())  # a policy of one's own is found beside the experiment
    return run_script("rail_reconfiguration.py", lambda: run(parse()))


if __name__ == "__main__":
    sys.exit(main())
