"""Which machines can be used for one sweep."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from commands.sweep.folder import Ended, SweepFolder
from commands.sweep.scales import SweepScales
from commands.sweep.spec import read_spec
from commands.sweep.workers.dask_executor import Worker, common_scales
from commands.sweep.workers.machine_check import MachineReport, check_machines, inspected
from railyard import __version__
from railyard.scale import Scale
from railyard.validation import from_plain

HERE = MachineReport("here", "0.5.0", "1eeb9c7", "3.11.2", "root", calibrated="2026-11-01", files={"/w.yaml": "ab"})
OTHER = replace(HERE, host="b", python="3.11.9")


def test_differences_that_may_explain_others_are_said_and_the_model_needs_less() -> None:
    assert check_machines(HERE, [HERE, OTHER], measured=True) == []
    poor = replace(OTHER, root="", lacking=("mnexec",), calibrated="")
    assert check_machines(HERE, [poor], measured=False) == []
    other = replace(OTHER, commit="", calibrated="")
    assert check_machines(HERE, [other], measured=True) == [
        "machine b has commit unknown of Railyard 0.5.0, and this one 1eeb9c7",
        "b was not calibrated: what it carries is a guess, and railyard calibrate measures it",
    ]


def test_this_machine_is_described_and_its_report_can_be_sent(tmp_path: Path) -> None:
    there, missing = tmp_path / "w.yaml", tmp_path / "no.yaml"
    there.write_text("name: w\n")
    found = inspected([str(there), str(missing)], "sudo")
    assert (found.railyard, found.root, found.files[str(missing)]) == (__version__, "sudo", "")
    assert len(found.files[str(there)]) == 64
    assert {"cpu", "cores", "kernel"} <= found.facts.keys()
    assert from_plain(MachineReport, asdict(found), "a report") == found


# ---- workers that are given points -----------------------------------------------------------------------------------


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
