"""The calibration as an experiment: what this machine can emulate faithfully, saved for later runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from commands.calibrate.machine import BUSY_SHARE, FAITHFUL_SHARE, calibrate_machine
from experiments.experiment import Experiment
from experiments.report import Report, to_nothing
from experiments.settings import Option, Settings
from measure.live.calibration import (
    CALIBRATION_FILE,
    DATAPATHS,
    Calibration,
    Capacity,
    Datapath,
    TimerError,
    load_calibration,
    save_calibration,
)
from measure.live.scale_choice import ScaleNeeds, pick_scale
from measure.results.row import ResultRow, Row
from railyard.checkout import railyard_as_root
from railyard.errors import MachineError
from railyard.validation import from_plain

if TYPE_CHECKING:
    from experiments.runner import Runner

MOST_BUSY_SHARE = 0.5
"""Highest load by other work at which a calibration is saved, as a share of all processors."""


class CalibrateSettings(Settings):
    """How carefully the machine is measured, and the example scale of the table."""

    coarse: bool = Field(default=False, description="coarser measurement, 20 seconds for each datapath")
    show: bool = Field(default=False, description="the saved result; nothing is measured")
    datapaths: Annotated[tuple[Datapath, ...], Option("--datapaths", "NAME,...")] = Field(
        default=DATAPATHS, min_length=1, description="datapaths to measure; those that the machine lacks are left out"
    )
    ports: Annotated[int, Option("--example-ports", "N")] = Field(
        default=32, ge=1, description="number of ports of the example scale"
    )
    gbps: Annotated[float, Option("--example-gbps", "GBPS")] = Field(
        default=400.0, gt=0, description="real link rate of the example scale, in Gb/s"
    )
    file: Annotated[Path, Option("--out", "FILE")] = Field(default=CALIBRATION_FILE, description="file of the result")


@dataclass(kw_only=True)
class CalibrationRow(ResultRow):
    """The result of a calibration, as in its file (``measure.live.calibration.Calibration``)."""

    calibration: Annotated[Mapping[str, Any], "all measured values"]


class Calibrate(Experiment[CalibrateSettings]):
    """Measure what this machine emulates faithfully: timers, and throughput, latency and costs of each datapath.

    Later runs take their scale and their floors from the saved result.
    """

    name = "calibrate"
    Settings = CalibrateSettings
    rows = (CalibrationRow,)
    quick: ClassVar = {"coarse": True}
    examples = (
        "              # about a minute for each datapath",
        "--quick       # about 20 seconds for each, coarser",
        "--show        # the saved result; needs no root",
    )
    packets = keeps = False

    def needs_root(self) -> bool:
        return not self.settings.show

    def points(self) -> int:
        return 1

    def run(self, runner: Runner) -> None:
        """Measure (or load) and save the calibration; ``MachineError`` if the machine was too busy to save it."""
        file = self.settings.file
        if self.settings.show:
            found = load_calibration(file)
            if found is None:
                raise MachineError(f"{file} holds no calibration of this machine; run: {railyard_as_root('calibrate')}")
        else:
            found = calibrate_machine(self.settings.coarse, runner.progress.say, self.settings.datapaths)
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
        return rows[0]["calibration"]

    @classmethod
    def report(cls) -> Report:
        """A table of what the machine carries, with an example scale."""
        return Report(tables=lambda rows: (), findings=_findings, calibrated=to_nothing)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    """The result as lines, with an example scale."""
    found = from_plain(Calibration, rows[0]["calibration"], "a calibration")
    open_vswitch = "kernel" if found.open_vswitch == "system" else "userspace (netdev)"
    yield f"What this machine carries faithfully ({found.cpus} processors, kernel {found.kernel})"
    yield from _lines(
        {
            "timer late at rest (median / p99 / worst)": _timer(found.timer_idle),
            "timer late, every processor busy": _timer(found.timer_loaded),
            "datapath of Open vSwitch": open_vswitch,
        }
    )
    for name, capacity in found.datapaths.items():
        yield f"Datapath {name}{', which auto takes' if name == found.takes() else ''}"
        yield from _lines(_capacity_lines(found, name, capacity, settings["ports"], settings["gbps"]))
    if found.busy_share > BUSY_SHARE:
        yield f"  other work took {found.busy_share:.0%} of the processors meanwhile; measure again"


def _capacity_lines(
    found: Calibration, name: Datapath, capacity: Capacity, ports: int, gbps: float
) -> Mapping[str, str]:
    more = "" if capacity.aggregate_limited else " or more"
    floors, control = found.floors(name), capacity.control
    scale = pick_scale(ScaleNeeds(ports, gbps), floors, capacity)
    least = (f"{seconds * 1e3:.3g}" for seconds in (floors.delay_s, floors.slot_s, floors.guard_s))
    transfers = {
        f"transfer over line rate, {cost.ranks} ranks, {cost.aggregate_mbps:,.0f} Mb/s": f"{cost.seconds * 1e3:.2g} ms"
        for cost in capacity.transfers
    }
    return {
        f"{capacity.hosts} links, each within {1 - FAITHFUL_SHARE:.0%} of line rate": f"{capacity.aggregate_mbps:,.0f} "
        f"Mb/s{more}",
        "small message, one way (median / p99)": _pair(capacity.alpha_s, capacity.alpha_p99_s),
        **transfers,
        **{f"message that waits for another, {c.hosts} hosts": f"{c.seconds * 1e6:,.0f} µs" for c in capacity.hops},
        "request to packets following (median / p99)": _pair(control.swap_s, control.swap_p99_s),
        "shortest dark time that is kept": f"{control.shortest_dark_s * 1e6:,.0f} µs",
        f"scale for {ports} ports of {gbps:g} Gb/s": f"1/{1 / scale.rate:,.0f} ({scale.emulated_mbps(gbps):.3g} Mb/s "
        "per port)",
        "shortest delay / slot / guard time": " / ".join(least) + " ms",
    }


def _pair(median_s: float, p99_s: float) -> str:
    return f"{median_s * 1e6:,.0f} / {p99_s * 1e6:,.0f} µs"


def _lines(values: Mapping[str, str]) -> Iterator[str]:
    yield from (f"  {name:<46} {value:>28}" for name, value in values.items())


def _timer(error: TimerError) -> str:
    return f"{error.p50_s * 1e6:.0f} / {error.p99_s * 1e6:.0f} / {error.max_s * 1e6:.0f} µs"
