#!/usr/bin/env python3
r"""Measure the step time of a training job on optical rails against electrical
ones, in a sweep over modes and reconfiguration delays.

sudo scripts/rail_reconfiguration.py            # Llama-3 8B on 16 GPUs
sudo scripts/rail_reconfiguration.py --quick    # in under two minutes
sudo scripts/rail_reconfiguration.py --workload smoke \
    --modes electrical,on-demand --delays 0,100
sudo scripts/rail_reconfiguration.py my_experiment.yaml
scripts/rail_reconfiguration.py --predict --delays 0.01,10    # model; no root
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import os
import sys
from collections.abc import Callable
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
    """The options of the command line; None for an option that was not given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("experiment", nargs="?", type=Path, help="experiment file (YAML); options override its keys")
    add(
        "--workload",
        metavar="NAME|FILE",
        help=f"workload: {', '.join(CATALOG)}, a YAML file, or a trace (MSCCL XML, Chakra ET, SimAI, ASTRA-sim text); "
        "default llama3-8b-16",
    )
    add(
        "--compute-unit",
        metavar="ns|us|cycles:GHZ",
        help="unit of the compute times in a trace (default that of the file)",
    )
    add("--ranks", metavar="N", help="number of ranks of a trace (default that of the file)")
    add("--size", metavar="1M", help="buffer size of a schedule file (default 1M)")
    add("--model-parallel", metavar="N", help="ranks per model-parallel group of a trace (default that of the file)")
    add("--gpus-per-server", metavar="N", help="GPUs per server for a trace (default 1: all ranks on one rail)")
    add("--port-gbps", metavar="GBPS", help="real rate of a port, in Gb/s (default that of the workload)")
    add(
        "--modes",
        type=words,
        metavar="NAME,...",
        help=f"modes to measure: {', '.join(MODES)} (default electrical,one-shot,on-demand,provisioned)",
    )
    add(
        "--delays",
        type=words,
        dest="delays_ms",
        metavar="MS,...",
        help="reconfiguration delays, in ms of real time (default 0,50,200)",
    )
    add(
        "--link-recovery",
        dest="link_recovery_ms",
        metavar="MS",
        help="link recovery after a reconfiguration, in ms (default 0)",
    )
    add(
        "--slot",
        dest="slot_ms",
        metavar="MS",
        help="up time of a slot in modes rotor and demand, in ms (default 0: until all ranks have sent)",
    )
    add_run_options(add)
    return parser.parse_args(arguments)


def add_run_options(add: Callable[..., object]) -> None:
    """Add the options on measurement, controller and output to the parser."""
    add("--steps", metavar="N", help="training steps per point (default 3)")
    add("--seed", metavar="N", help="seed of the payloads (default 1)")
    add("--out", type=Path, metavar="FOLDER", help="results folder (default results/rail-reconfiguration-DATE-TIME)")
    add("--quick", action="store_true", help="one step, delays 0 and 200 ms, without one-shot")
    add("--verify", action="store_true", default=None, help="float32 payloads and a check of every sum")
    add("--overlap", action="store_true", default=None, help="FSDP prefetch: communication during compute")
    add(
        "--tp-on-packets",
        action="store_true",
        default=None,
        help="tensor parallelism as packets instead of compute time",
    )
    add("--policy", metavar="MODULE:CLASS", help="policy of your own instead of Opus (docs/policies.md)")
    add(
        "--controller",
        choices=("os-ken", "ryu", "remote"),
        help="framework of Railyard's controller, or remote for a controller of your own (default os-ken)",
    )
    add("--remote", metavar="HOST:PORT", help="address of your own controller (default 127.0.0.1:6653)")
    add(
        "--fabric",
        choices=("electrical", "ocs"),
        help="switches of mode native; ocs needs --controller remote (default electrical)",
    )
    add("--rest", metavar="HOST:PORT", help="address of a REST interface during the run (default none)")
    add("--rate", dest="rate", metavar="1/250", help="scale: emulated / real link rate, or auto (default auto)")
    add("--time", dest="time", metavar="X", help="scale: emulated seconds per real second (default 1)")
    add("--cli", action="store_true", help="Mininet CLI on the fabric of the first mode, instead of a run")
    add("--predict", action="store_true", help="times of the model only; needs no root")
    add("--print-plan", action="store_true", help="plan of the fabric as JSON, for a controller of your own; no run")


def experiment_of(options: argparse.Namespace) -> Experiment:
    """The experiment of the options; they override the file, which overrides --quick and the defaults."""
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
    """Print a table of the model's times of every point, marked as the model's."""
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
    """Bring up the fabric of the experiment's first mode and open the Mininet CLI on it."""
    from topos.kernel.cli import RailCLI

    scale = resolve_scale(experiment, workload, load_calibration())
    mode = experiment.points()[0][0]
    topo = RailTopo(**topology_options(experiment, workload, experiment.fabric_of(mode), scale))
    with Session(experiment, topo) as session:
        groups = tuple(program_on(experiment, workload, mode).groups.values())
        session.register(Job("cli", groups, mode), policy_name(experiment, workload, mode))
        RailCLI(session.net, session)


def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns the exit status."""
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
    """Run the experiment, then show and draw the measured rows, also after a run that was interrupted."""
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
    """Run the script; returns 0 for a faithful run, otherwise an exit status of ``railyard.errors``."""
    sys.path.insert(1, os.getcwd())  # a user's policy is looked up in the current folder
    return run_script("rail_reconfiguration.py", lambda: run(parse()))


if __name__ == "__main__":
    sys.exit(main())
