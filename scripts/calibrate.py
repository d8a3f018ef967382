#!/usr/bin/env python3
"""Measure what this machine can emulate faithfully: timer error, aggregate
goodput, message latency, datapath. Later runs choose their scale from the
saved result.

sudo scripts/calibrate.py             # under a minute
sudo scripts/calibrate.py --quick     # under 20 seconds, coarser
scripts/calibrate.py --show           # the saved result
"""

from __future__ import annotations

import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.calibrate.machine import BUSY_SHARE, FAITHFUL_SHARE, calibrate_machine
from measure.live.calibration import (
    CALIBRATION_FILE,
    Calibration,
    TimerError,
    load_calibration,
    pick_scale,
    save_calibration,
)
from railyard.errors import MachineError, RailyardError

MOST_BUSY_SHARE = 0.5
"""Highest load by other work at which a calibration is saved, as a share of all processors."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="coarser measurement in under 20 seconds")
    parser.add_argument("--show", action="store_true", help="the saved result; nothing is measured")
    parser.add_argument("--json", action="store_true", help="output as JSON instead of a table")
    parser.add_argument(
        "--ports", type=int, default=32, metavar="N", help="number of ports of the example scale (default 32)"
    )
    parser.add_argument(
        "--gbps",
        type=float,
        default=400.0,
        metavar="GBPS",
        help="real link rate of the example scale, in Gb/s (default 400)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=CALIBRATION_FILE,
        metavar="FILE",
        help=f"file of the result (default {CALIBRATION_FILE})",
    )
    return parser.parse_args(arguments)


def table(found: Calibration, ports: int, real_gbps: float) -> Table:
    """The result as a table, with an example scale for ``ports`` ports of ``real_gbps``."""
    shown = Table(title=f"What this machine carries faithfully ({found.cpus} processors, kernel {found.kernel})")
    shown.add_column("measured")
    shown.add_column("value", justify="right")
    datapath = "kernel" if found.datapath == "system" else "userspace (netdev)"
    more = "" if found.aggregate_limited else " or more"
    shown.add_row("Open vSwitch datapath", datapath)
    shown.add_row(
        f"aggregate of {found.hosts} links, each within {1 - FAITHFUL_SHARE:.0%} of line rate",
        f"{found.aggregate_mbps:,.0f} Mb/s{more}",
    )
    shown.add_row(
        "small message, one way (median / p99)", f"{found.alpha_s * 1e6:.0f} / {found.alpha_p99_s * 1e6:.0f} µs"
    )
    shown.add_row("timer late at rest (median / p99 / worst)", _timer(found.timer_idle))
    shown.add_row("timer late, every processor busy", _timer(found.timer_loaded))
    if found.busy_share > BUSY_SHARE:
        shown.add_row("[bold]load by other work meanwhile; measure again[/bold]", f"{found.busy_share:.0%}")
    scale = pick_scale(ports, real_gbps, 0, calibration=found)
    shown.add_row(
        f"scale for {ports} ports of {real_gbps:g} Gb/s",
        f"1/{1 / scale.rate:,.0f} ({scale.emulated_mbps(real_gbps):.3g} Mb/s per port)",
    )
    shown.add_row("shortest delay that can be emulated", f"{found.floors().delay_s * 1e3:.3g} ms")
    return shown


def _timer(error: TimerError) -> str:
    return f"{error.p50_s * 1e6:.0f} / {error.p99_s * 1e6:.0f} / {error.max_s * 1e6:.0f} µs"


def main() -> int:
    """Measure (or load), save and show the calibration; returns the exit status."""
    options = parse()
    progress = Console(stderr=True)
    if options.show:
        found = load_calibration(options.out)
        if found is None:
            raise MachineError(f"{options.out} holds no calibration of this machine; run sudo scripts/calibrate.py")
    else:
        found = calibrate_machine(options.quick, say=lambda line: progress.print(f"[dim]{line}[/dim]", highlight=False))
        if found.busy_share <= MOST_BUSY_SHARE:
            save_calibration(found, options.out)
    if options.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        Console().print(table(found, options.ports, options.gbps))
    if found.busy_share > MOST_BUSY_SHARE and not options.show:
        raise MachineError(
            f"not saved: {found.busy_share:.0%} of the processors did other work; measure again on an idle machine"
        )
    if not options.json:
        print(f"{'read from' if options.show else 'saved in'} {options.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RailyardError as error:
        print(f"calibrate.py: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit("calibrate.py: stopped; nothing was saved")
