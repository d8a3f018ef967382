"""The calibration as an experiment: what this machine can emulate faithfully, saved for later runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from experiments.calibrate.machine import BUSY_SHARE, FAITHFUL_SHARE, calibrate_machine
from experiments.experiment import Experiment
from experiments.report import Report
from experiments.runner import Runner
from experiments.settings import Option, Settings
from measure.live.calibration import (
    CALIBRATION_FILE,
    Calibration,
    TimerError,
    load_calibration,
    pick_scale,
    save_calibration,
)
from measure.results.row import ResultRow, Row
from railyard.checkout import sudo
from railyard.errors import MachineError
from railyard.validation import from_plain

MOST_BUSY_SHARE = 0.5
"""Highest load by other work at which a calibration is saved, as a share of all processors."""


class CalibrateSettings(Settings):
    """How carefully the machine is measured, and the example scale of the table."""

    coarse: bool = Field(default=False, description="coarser measurement in under 20 seconds")
    show: bool = Field(default=False, description="the saved result; nothing is measured")
    ports: Annotated[int, Option("--example-ports", "N", old=("--ports",))] = Field(
        default=32, ge=1, description="number of ports of the example scale"
    )
    gbps: Annotated[float, Option("--example-gbps", "GBPS", old=("--gbps",))] = Field(
        default=400.0, gt=0, description="real link rate of the example scale, in Gb/s"
    )
    file: Annotated[Path, Option("--out", "FILE")] = Field(default=CALIBRATION_FILE, description="file of the result")


@dataclass(kw_only=True)
class CalibrationRow(ResultRow):
    """The result of a calibration, as in its file (``measure.live.calibration.Calibration``)."""

    calibration: Annotated[Mapping[str, Any], "all measured values"]


class Calibrate(Experiment[CalibrateSettings]):
    """Measure the traffic that this machine emulates faithfully: timer error, aggregate goodput, message latency.

    Later runs choose their scale from the saved result.
    """

    name = "calibrate"
    Settings = CalibrateSettings
    rows = (CalibrationRow,)
    quick: ClassVar = {"coarse": True}
    examples = (
        "              # under a minute",
        "--quick       # under 20 seconds, coarser",
        "--show        # the saved result; needs no root",
    )
    packets = keeps = False

    def needs_root(self) -> bool:
        """Measuring needs root, showing does not."""
        return not self.settings.show

    def run(self, runner: Runner) -> None:
        """Measure (or load) and save the calibration; ``MachineError`` if the machine was too busy to save it."""
        file = self.settings.file
        if self.settings.show:
            found = load_calibration(file)
            if found is None:
                raise MachineError(f"{file} holds no calibration of this machine; run: {sudo('calibrate')}")
        else:
            found = calibrate_machine(self.settings.coarse, runner.progress.say)
        runner.add(CalibrationRow(calibration=asdict(found)))
        if self.settings.show:
            runner.progress.say(f"read from {file}")
        elif found.busy_share <= MOST_BUSY_SHARE:
            save_calibration(found, file)
            runner.progress.say(f"saved in {file}")
        else:
            raise MachineError(
                f"not saved: {found.busy_share:.0%} of the processors did other work; measure again on an idle machine"
            )

    def as_json(self, rows: Sequence[Row]) -> Any:
        """The calibration, as in its file."""
        return rows[0]["calibration"]

    @classmethod
    def report(cls) -> Report:
        """A table of what the machine carries, with an example scale."""
        return Report(tables=lambda rows: (), findings=_findings)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    """The result as lines, with an example scale."""
    found = from_plain(Calibration, rows[0]["calibration"], "a calibration")
    more = "" if found.aggregate_limited else " or more"
    ports, gbps = settings["ports"], settings["gbps"]
    scale = pick_scale(ports, gbps, 0, calibration=found)
    lines = {
        "Open vSwitch datapath": "kernel" if found.datapath == "system" else "userspace (netdev)",
        f"{found.hosts} links, each within {1 - FAITHFUL_SHARE:.0%} of line rate": f"{found.aggregate_mbps:,.0f} "
        f"Mb/s{more}",
        "small message, one way (median / p99)": f"{found.alpha_s * 1e6:.0f} / {found.alpha_p99_s * 1e6:.0f} µs",
        "timer late at rest (median / p99 / worst)": _timer(found.timer_idle),
        "timer late, every processor busy": _timer(found.timer_loaded),
        f"scale for {ports} ports of {gbps:g} Gb/s": f"1/{1 / scale.rate:,.0f} ({scale.emulated_mbps(gbps):.3g} Mb/s "
        "per port)",
        "shortest delay that can be emulated": f"{found.floors().delay_s * 1e3:.3g} ms",
    }
    yield f"What this machine carries faithfully ({found.cpus} processors, kernel {found.kernel})"
    yield from (f"  {name:<42} {value:>30}" for name, value in lines.items())
    if found.busy_share > BUSY_SHARE:
        yield f"  other work took {found.busy_share:.0%} of the processors meanwhile; measure again"


def _timer(error: TimerError) -> str:
    return f"{error.p50_s * 1e6:.0f} / {error.p99_s * 1e6:.0f} / {error.max_s * 1e6:.0f} µs"
