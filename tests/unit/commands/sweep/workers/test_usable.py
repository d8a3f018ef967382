from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commands.sweep.folder import Ended, SweepFolder
from commands.sweep.scales import SweepScales
from commands.sweep.spec import read_spec
from commands.sweep.workers.dask_executor import Worker, common_scales
from commands.sweep.workers.machine_check import MachineReport
from railyard.scale import Scale

TEXT = """experiment: rails
base: {workload: smoke}
grid: {modes: [[electrical], [on-demand]]}
together: [modes]
repeats: 2
"""
SLOW, FAST = Scale(1 / 4000), Scale(1 / 1000)
FOUND = [Worker(name, name, MachineReport(name, "0", "", "3", "root")) for name in ("slow", "fast")]


@dataclass
class Answer:
    """A future that is done."""

    scales: list[Any]

    def result(self, timeout: float) -> list[Any]:
        """What a worker gives back."""
        return self.scales


class Machines:
    """A slow and a fast machine; the slow one refuses the first of the files that it is asked about."""

    def submit(self, address: str, act: Any, files: list[Any]) -> Answer:
        """Answer for a machine at once."""
        scale = {"slow": SLOW, "fast": FAST}[address].__dict__
        return Answer([None if address == "slow" and not number else scale for number, _ in enumerate(files)])


@pytest.mark.parametrize(
    ("earlier", "of_repeats", "of_others"),
    [
        (None, SLOW, SLOW),
        (Scale(1 / 8000), Scale(1 / 8000), Scale(1 / 8000)),  # every machine carries it
        (FAST, FAST, SLOW),  # the slow machine does not
    ],
)
def test_the_scale_of_all_points_where_some_were_done_before(
    earlier: Scale | None, of_repeats: Scale, of_others: Scale, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    sweep = SweepFolder.create(tmp_path / "folder", read_spec(tmp_path / "sweep.yaml"))
    first = sweep.points[0]
    if earlier:
        results = sweep.place(first) / f"attempt-{sweep.begin(first)}" / "results"
        results.mkdir()
        (results / "summary.json").write_text(json.dumps([{"rate_scale": earlier.rate, "time_scale": earlier.time}]))
        sweep.end_attempt(first, Ended(1, 0, "here", 1.0))
    common_scales(SweepScales(sweep), sweep.points, Machines(), FOUND)  # type: ignore[arg-type]
    assert SweepScales(sweep).kept == {
        point.name: of_repeats if point.swept == first.swept else of_others for point in sweep.points
    }
